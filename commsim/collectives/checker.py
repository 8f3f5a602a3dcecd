"""
Prove a chunk program right: run it on symbolic data and look at what every rank ends with.

The data of (actor, chunk) is how often each rank's contribution is in it. A copy replaces, a
reduce adds; right is what the op promises, each contribution exactly once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from commsim.collectives.ops import REDUCING
from commsim.collectives.program import Program

__all__ = ["check", "final_state", "initial_state", "wanted_state"]

State = npt.NDArray[np.int32]

_SHOWN = 8


def check(program: Program) -> list[str]:
    """Return what is wrong with a program, in sentences; nothing if it is right."""
    if program.n < 2:
        return []
    problems = _bad_messages(program)
    state = initial_state(program)
    for step in np.unique(program.step).tolist():
        problems += _run_step(program, state, step)
    wanted, matters = wanted_state(program)
    wrong = np.argwhere((state != wanted).any(axis=2) & matters)
    for actor, chunk in wrong[:_SHOWN].tolist():
        problems.append(_difference(state[actor, chunk], wanted[actor, chunk], actor, chunk))
    if len(wrong) > _SHOWN:
        problems.append(f"and {len(wrong) - _SHOWN} more chunks are wrong at the end.")
    return problems


def _bad_messages(program: Program) -> list[str]:
    selves = np.flatnonzero(program.source == program.target)
    return [f"step {program.step[m]}: rank {program.source[m]} sends to itself." for m in selves]


def initial_state(program: Program) -> State:
    """Return who holds what at first, shape (n, chunks, n): counts of contributions."""
    n, chunks = program.n, len(program.share)
    state = np.zeros((n, chunks, n), dtype=np.int32)
    ranks = np.arange(n)
    if program.op in ("all_reduce", "reduce", "reduce_scatter"):
        state[ranks, :, ranks] = 1
    elif program.op in ("broadcast", "scatter"):
        state[program.root, :, program.root] = 1
    elif program.op in ("all_to_all", "all_to_all_v"):
        for rank in range(n):
            state[rank, rank * n : (rank + 1) * n, rank] = 1
    else:  # gather, all_gather, barrier: each holds its own chunk
        state[ranks, ranks, ranks] = 1
    return state


def wanted_state(program: Program) -> tuple[State, npt.NDArray[np.bool_]]:
    """Return what the op promises, and which (actor, chunk) it promises anything for."""
    n, chunks = program.n, len(program.share)
    wanted = np.zeros((n, chunks, n), dtype=np.int32)
    matters = np.zeros((n, chunks), dtype=np.bool_)
    ranks = np.arange(n)
    if program.op in REDUCING - {"barrier"}:
        wanted[:] = 1
    elif program.op in ("broadcast", "scatter"):
        wanted[:, :, program.root] = 1
    elif program.op in ("all_to_all", "all_to_all_v"):
        wanted[:, np.arange(chunks), np.arange(chunks) // n] = 1
    else:
        wanted[:, ranks, ranks] = 1
    if program.op in ("reduce", "gather"):
        matters[program.root] = True
    elif program.op in ("reduce_scatter", "scatter"):
        matters[ranks, ranks] = True
    elif program.op in ("all_to_all", "all_to_all_v"):
        matters[np.arange(chunks) % n, np.arange(chunks)] = True
    else:
        matters[:] = True
    return wanted, matters


def final_state(program: Program) -> State:
    """Return who holds what after all steps."""
    state = initial_state(program)
    for step in np.unique(program.step).tolist():
        _run_step(program, state, step)
    return state


def _run_step(program: Program, state: State, step: int) -> list[str]:
    """Let the messages of a step happen at once: all read before any writes."""
    messages = np.flatnonzero(program.step == step)
    rows = np.flatnonzero(np.isin(program.message, messages))
    of, chunk = program.message[rows], program.chunk[rows]
    source, target = program.source[of], program.target[of]
    data = state[source, chunk]
    empty = np.flatnonzero(data.sum(axis=1) == 0)
    problems = [
        f"step {step}: rank {source[i]} sends chunk {chunk[i]}, of which it holds nothing."
        for i in empty[:_SHOWN].tolist()
    ]
    copied = ~program.reduce[of]
    state[target[copied], chunk[copied]] = data[copied]
    np.add.at(state, (target[~copied], chunk[~copied]), data[~copied])
    return problems


def _difference(has: State, wants: State, actor: int, chunk: int) -> str:
    missing = np.flatnonzero(has < wants)
    surplus = np.flatnonzero(has > wants)
    if missing.size:
        return f"rank {actor}, chunk {chunk}: the contribution of rank {missing[0]} is missing."
    return (
        f"rank {actor}, chunk {chunk}: the contribution of rank {surplus[0]} is in it"
        f" {has[surplus[0]]} times instead of {wants[surplus[0]]}."
    )
