"""
Prove a chunk program right: run it on symbolic data and look at what every rank ends with.

Right is what the op promises: at every promised place the chunk that belongs there, holding
each contribution exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commsim.arrays import Bools, Floats, Ints, Ints32
from commsim.collectives.program import IN_NETWORK, IN_NODE, Program
from commsim.collectives.semantics import parts
from commsim.collectives.state import Holdings, begin, carry, steps, wanted
from commsim.ops import REDUCING

__all__ = ["check", "final_state"]


_SHOWN = 8


def check(program: Program) -> list[str]:
    """Return what is wrong with a program, in sentences; nothing if it is right."""
    problems = list(_malformed(program))
    if problems:
        return _first(problems, "malformed messages")
    problems = _share_problems(program) + list(_self_sends(program))
    holdings = begin(program)
    for step, rows in steps(program):
        problems += _first(
            list(_misuses(program, holdings, step, rows)), f"messages of step {step}"
        )
        carry(program, holdings, rows)
    return problems + _first(
        _unlike_promised(program, holdings), "chunks that are wrong at the end"
    )


def final_state(program: Program) -> Ints32:
    """Return what every actor holds after all steps, shape (actors, places, n).

    The program must be well formed.
    """
    holdings = begin(program)
    for _, rows in steps(program):
        carry(program, holdings, rows)
    return holdings.count


def _unlike_promised(program: Program, ends: Holdings) -> list[str]:
    """Return how the ranks' data differs from what the op promises."""
    goal = wanted(program)
    has, count = ends.what[: program.n], ends.count[: program.n]
    wrong = (has != goal.what) | (count != goal.count).any(axis=2)
    return [
        _difference(program, ends, goal, rank, place)
        for rank, place in np.argwhere(wrong & (goal.what >= 0)).tolist()
    ]


def _malformed(program: Program) -> Iterator[str]:
    """Yield what keeps a program from being run at all."""
    chunks, count, owned = len(program.share), len(program), parts(program.op, program.n)
    if chunks == 0 or program.layout is None and chunks % owned:
        yield f"{chunks} chunks cannot be dealt evenly to the {owned} parts of {program.op}."
    for kind in program.switches:
        if kind not in (IN_NODE, IN_NETWORK):
            yield f"a switch is {IN_NODE!r} or {IN_NETWORK!r}, not {kind!r}."
    for m in np.flatnonzero(np.diff(program.step) < 0).tolist():
        yield f"message {m + 1} is of step {program.step[m + 1]}, message {m} of a later step."
    named = np.flatnonzero(np.diff(program.message, prepend=-1))
    if not np.array_equal(program.message[named], np.arange(count)):
        yield f"the rows do not name the messages 0 to {count - 1} in ascending order."
        return
    who = f"the {program.n} ranks"
    if program.switches:
        who += f" and {len(program.switches)} switches"
    for what, ends in (("source", program.source), ("target", program.target)):
        for m in np.flatnonzero(_outside(ends, program.actors)).tolist():
            yield f"step {program.step[m]}: {what} {ends[m]} is none of {who}."
    for row in np.flatnonzero(
        _outside(program.chunk, chunks) | _outside(program.places, chunks)
    ).tolist():
        step = program.step[program.message[row]]
        at = (program.chunk if _outside(program.chunk, chunks)[row] else program.places)[row]
        yield f"step {step}: chunk {at} is none of the {chunks} chunks."


def _outside(values: Ints, end: int) -> Bools:
    return (values < 0) | (values >= end)


def _share_problems(program: Program) -> list[str]:
    """Return how the chunks' shares differ from what S is for the op."""
    op, n, share = program.op, program.n, program.share
    if not (np.isfinite(share) & (share >= 0)).all():
        return ["the share of a chunk is negative or not a number."]
    if program.layout is not None:
        return []  # places are not parts of S there
    held = share.reshape(parts(op, n), -1).sum(axis=1)
    if op == "all_to_all_v":
        held = held.reshape(n, n).sum(axis=1).max(keepdims=True)
        return _unlike(held[held > 0], 1.0, "what the busiest rank sends")
    if op == "barrier":
        return _unlike(held, 0.0, "the token of a rank")
    if len(held) == 1:
        return _unlike(held, 1.0, "all chunks together")
    return _unlike(held, 1 / n, "each part of S")


def _unlike(held: Floats, goal: float, what: str) -> list[str]:
    wrong = held[~np.isclose(held, goal, rtol=1e-9, atol=1e-12)]
    return [f"{what} should be {goal:.6g} of S, not {wrong[0]:.6g}."] if len(wrong) else []


def _self_sends(program: Program) -> Iterator[str]:
    """Yield the messages from an actor to itself; between its own places a rank may copy."""
    idle = np.ones(len(program), dtype=np.bool_)
    np.logical_and.at(idle, program.message, program.chunk == program.places)
    for m in np.flatnonzero((program.source == program.target) & idle).tolist():
        yield f"step {program.step[m]}: {_actor(program, program.source[m])} sends to itself."


def _misuses(program: Program, state: Holdings, step: int, rows: Ints) -> Iterator[str]:
    """Yield each chunk that is sent, added to or overwritten against the rules in one step."""
    of, chunk, place = program.message[rows], program.chunk[rows], program.places[rows]
    source, target, reduce = program.source[of], program.target[of], program.reduce[of]
    sent, there = state.what[source, chunk], state.what[target, place]
    for i in np.flatnonzero(sent < 0).tolist():
        yield (
            f"step {step}: {_actor(program, source[i])} sends {_place(program, chunk[i])},"
            " of which it holds nothing."
        )
    if program.op not in REDUCING and reduce.any():
        yield (
            f"step {step}: {_actor(program, target[reduce][0])} adds, but {program.op} adds"
            " nothing."
        )
        reduce = np.zeros_like(reduce)  # reported once: where it is added again does not matter
    for i in np.flatnonzero(reduce & (there < 0) & (target < program.n)).tolist():
        yield (
            f"step {step}: {_actor(program, target[i])} adds to {_place(program, place[i])},"
            " of which it holds nothing."
        )
    for i in np.flatnonzero(reduce & (there >= 0) & (sent >= 0) & (there != sent)).tolist():
        yield (
            f"step {step}: {_actor(program, target[i])} adds chunk {sent[i]} to chunk {there[i]}"
            f" in {_place(program, place[i])}."
        )
    at, counts = np.unique(target * len(program.share) + place, return_counts=True)
    shared = np.isin(target * len(program.share) + place, at[counts > 1])
    for i in np.flatnonzero(shared & ~program.reduce[of]).tolist():
        yield (
            f"step {step}: {_actor(program, target[i])} gets {_place(program, place[i])} more"
            " than once, one a copy."
        )


def _actor(program: Program, actor: int) -> str:
    return f"rank {actor}" if actor < program.n else f"switch {actor - program.n}"


def _place(program: Program, place: int) -> str:
    return f"chunk {place}" if program.layout is None else program.layout.names[place]


def _difference(program: Program, ends: Holdings, goal: Holdings, rank: int, place: int) -> str:
    where = f"rank {rank}, {_place(program, place)}"
    has, belongs = int(ends.what[rank, place]), int(goal.what[rank, place])
    if program.layout is not None and has != belongs:
        held = "it holds nothing" if has < 0 else f"it holds chunk {has}"
        return f"{where}: must end with chunk {belongs}, but {held}."
    count, once = ends.count[rank, place], goal.count[rank, place]
    missing, surplus = np.flatnonzero(count < once), np.flatnonzero(count > once)
    if missing.size:
        return f"{where}: the contribution of rank {missing[0]} is missing."
    return (
        f"{where}: the contribution of rank {surplus[0]} is in it"
        f" {count[surplus[0]]} times instead of {once[surplus[0]]}."
    )


def _first(sentences: list[str], what: str) -> list[str]:
    """Return the first few sentences, and how many more there are."""
    more = len(sentences) - _SHOWN
    return sentences if more <= 0 else [*sentences[:_SHOWN], f"and {more} more {what}."]
