"""
Prove a chunk program right: run it on symbolic data and look at what every rank ends with.

The data of (rank, chunk) is how often each rank's contribution is in it. A copy replaces, a
reduce adds; right is what the op promises, each contribution exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from commsim.collectives.ops import REDUCING, State, parts, promise, start
from commsim.collectives.program import Program

__all__ = ["check", "final_state"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_SHOWN = 8


def check(program: Program) -> list[str]:
    """Return what is wrong with a program, in sentences; nothing if it is right."""
    problems = list(_malformed(program))
    if problems:
        return _first(problems, "malformed messages")
    problems = _share_problems(program) + list(_self_sends(program))
    state = _start(program)
    for step, rows in _steps(program):
        problems += _first(list(_misuses(program, state, step, rows)), f"messages of step {step}")
        _move(program, state, rows)
    wanted, promised = promise(program.op, program.n, len(program.share), program.root)
    wrong = np.argwhere((state != wanted).any(axis=2) & promised)
    broken = [_difference(state[r, c], wanted[r, c], r, c) for r, c in wrong.tolist()]
    return problems + _first(broken, "chunks that are wrong at the end")


def final_state(program: Program) -> State:
    """Return what every rank holds after all steps; the program must be well formed."""
    state = _start(program)
    for _, rows in _steps(program):
        _move(program, state, rows)
    return state


def _start(program: Program) -> State:
    return start(program.op, program.n, len(program.share), program.root)


def _steps(program: Program) -> Iterator[tuple[int, Rows]]:
    """Yield each step and its rows; messages of a step happen at once."""
    of_row = program.step[program.message]
    steps, first = np.unique(of_row, return_index=True)
    yield from zip(steps.tolist(), np.split(np.arange(len(of_row)), first[1:]), strict=False)


def _move(program: Program, state: State, rows: Rows) -> None:
    """Let the messages of one step happen: all read before any writes."""
    of, chunk = program.message[rows], program.chunk[rows]
    target, copied = program.target[of], ~program.reduce[of]
    data = state[program.source[of], chunk]
    state[target[copied], chunk[copied]] = data[copied]
    np.add.at(state, (target[~copied], chunk[~copied]), data[~copied])


def _malformed(program: Program) -> Iterator[str]:
    """Yield what keeps a program from being run at all."""
    chunks, count, owned = len(program.share), len(program), parts(program.op, program.n)
    if chunks == 0 or chunks % owned:
        yield f"{chunks} chunks cannot be dealt evenly to the {owned} parts of {program.op}."
    for m in np.flatnonzero(np.diff(program.step) < 0).tolist():
        yield f"message {m + 1} is of step {program.step[m + 1]}, message {m} of a later step."
    named = np.flatnonzero(np.diff(program.message, prepend=-1))
    if not np.array_equal(program.message[named], np.arange(count)):
        yield f"the rows do not name the messages 0 to {count - 1} in ascending order."
        return
    for what, ends in (("source", program.source), ("target", program.target)):
        for m in np.flatnonzero(_outside(ends, program.n)).tolist():
            yield f"step {program.step[m]}: {what} {ends[m]} is none of the {program.n} ranks."
    for row in np.flatnonzero(_outside(program.chunk, chunks)).tolist():
        step, chunk = program.step[program.message[row]], program.chunk[row]
        yield f"step {step}: chunk {chunk} is none of the {chunks} chunks."


def _outside(values: Rows, end: int) -> npt.NDArray[np.bool_]:
    return (values < 0) | (values >= end)


def _share_problems(program: Program) -> list[str]:
    """Return how the chunks' shares differ from what S is for the op."""
    op, n, share = program.op, program.n, program.share
    if not (np.isfinite(share) & (share >= 0)).all():
        return ["the share of a chunk is negative or not a number."]
    held = share.reshape(parts(op, n), -1).sum(axis=1)
    if op == "all_to_all_v":
        held = held.reshape(n, n).sum(axis=1).max(keepdims=True)
        return _unlike(held[held > 0], 1.0, "what the busiest rank sends")
    if op == "barrier":
        return _unlike(held, 0.0, "the token of a rank")
    if len(held) == 1:
        return _unlike(held, 1.0, "all chunks together")
    return _unlike(held, 1 / n, "each part of S")


def _unlike(held: Floats, wanted: float, what: str) -> list[str]:
    wrong = held[~np.isclose(held, wanted, rtol=1e-9, atol=1e-12)]
    return [f"{what} should be {wanted:.6g} of S, not {wrong[0]:.6g}."] if len(wrong) else []


def _self_sends(program: Program) -> Iterator[str]:
    for m in np.flatnonzero(program.source == program.target).tolist():
        yield f"step {program.step[m]}: rank {program.source[m]} sends to itself."


def _misuses(program: Program, state: State, step: int, rows: Rows) -> Iterator[str]:
    """Yield each chunk that is sent, added to or overwritten against the rules in one step."""
    of, chunk = program.message[rows], program.chunk[rows]
    source, target, reduce = program.source[of], program.target[of], program.reduce[of]
    for i in np.flatnonzero(~state[source, chunk].any(axis=1)).tolist():
        yield f"step {step}: rank {source[i]} sends chunk {chunk[i]}, of which it holds nothing."
    if program.op not in REDUCING and reduce.any():
        yield f"step {step}: rank {target[reduce][0]} adds, but {program.op} adds nothing."
    place, counts = np.unique(target * len(program.share) + chunk, return_counts=True)
    shared = np.isin(target * len(program.share) + chunk, place[counts > 1])
    for i in np.flatnonzero(shared & ~reduce).tolist():
        yield f"step {step}: rank {target[i]} gets chunk {chunk[i]} more than once, one a copy."


def _difference(has: State, wants: State, rank: int, chunk: int) -> str:
    missing, surplus = np.flatnonzero(has < wants), np.flatnonzero(has > wants)
    if missing.size:
        return f"rank {rank}, chunk {chunk}: the contribution of rank {missing[0]} is missing."
    return (
        f"rank {rank}, chunk {chunk}: the contribution of rank {surplus[0]} is in it"
        f" {has[surplus[0]]} times instead of {wants[surplus[0]]}."
    )


def _first(sentences: list[str], what: str) -> list[str]:
    """Return the first few sentences, and how many more there are."""
    more = len(sentences) - _SHOWN
    return sentences if more <= 0 else [*sentences[:_SHOWN], f"and {more} more {what}."]
