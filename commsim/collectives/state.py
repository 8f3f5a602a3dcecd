"""
Symbolic data: what every actor holds while a chunk program runs.

Place p of actor a holds chunk `what[a, p]` of the op (-1: nothing), and in it the contribution
of rank r `count[a, p, r]` times. A copy replaces, a reduce adds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from commsim.arrays import Ints, Ints32
from commsim.collectives.program import Program
from commsim.collectives.semantics import promise, start
from commsim.ops import REDUCING

__all__ = ["Holdings", "begin", "carry", "steps", "wanted"]


class Holdings(msgspec.Struct, frozen=True, eq=False):
    """What all actors hold: `what` of shape (actors, places), `count` (actors, places, n)."""

    what: Ints
    count: Ints32


def begin(program: Program) -> Holdings:
    """Return what every actor holds before the first step; switches hold nothing."""
    n, places = program.n, len(program.share)
    what = np.full((program.actors, places), -1, dtype=np.int64)
    count = np.zeros((program.actors, places, n), dtype=np.int32)
    if program.layout is None:
        count[:n] = start(program.op, n, places, program.root)
        what[:n] = np.where(count[:n].any(axis=2), np.arange(places), -1)
        return Holdings(what, count)
    what[:n] = program.layout.held
    rank, place = np.nonzero(program.layout.held >= 0)
    count[rank, place, rank] = 1
    return Holdings(what, count)


def wanted(program: Program) -> Holdings:
    """Return what every rank must hold after the last step; -1 if nothing is promised."""
    n, places = program.n, len(program.share)
    if program.layout is None:
        count, promised = promise(program.op, n, places, program.root)
        return Holdings(np.where(promised, np.arange(places), -1), count)
    what = program.layout.wanted
    if program.op in REDUCING:
        return Holdings(what, np.ones((n, places, n), dtype=np.int32))
    count = np.zeros((n, places, n), dtype=np.int32)
    rank, place = np.nonzero(what >= 0)
    count[rank, place, _origin(program.layout.held)[what[rank, place]]] = 1
    return Holdings(what, count)


def _origin(held: Ints) -> Ints:
    """Return the rank that each chunk comes from, if every chunk comes from one."""
    origin = np.zeros(int(held.max(initial=-1)) + 1, dtype=np.int64)
    rank, place = np.nonzero(held >= 0)
    origin[held[rank, place]] = rank
    return origin


def steps(program: Program) -> Iterator[tuple[int, Ints]]:
    """Yield each step and its rows; messages of a step happen at once."""
    of_row = program.step[program.message]
    numbers, first = np.unique(of_row, return_index=True)
    rows = np.split(np.arange(len(of_row)), first[1:])
    yield from zip(numbers.tolist(), rows, strict=False)


def carry(program: Program, holdings: Holdings, rows: Ints) -> None:
    """Let the messages of one step happen: all read before any writes."""
    of, chunk, place = program.message[rows], program.chunk[rows], program.places[rows]
    source, target, adds = program.source[of], program.target[of], program.reduce[of]
    what, count = holdings.what[source, chunk], holdings.count[source, chunk]
    alone = ~adds
    holdings.what[target[alone], place[alone]] = what[alone]
    holdings.count[target[alone], place[alone]] = count[alone]
    empty = adds & (holdings.what[target, place] < 0)
    holdings.what[target[empty], place[empty]] = what[empty]
    np.add.at(holdings.count, (target[adds], place[adds]), count[adds])
