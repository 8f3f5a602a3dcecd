"""
A chunk program step by step: what moves, and what each actor holds afterwards.

This runs the very program that is timed, on the symbolic data that proves it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Bools, Ints
from commsim.collectives.program import Program
from commsim.collectives.state import begin, carry, steps, wanted
from commsim.follow import Follow, followed, unfollowed

__all__ = ["Move", "Picture", "Walk", "WalkStep", "walk"]


class Move(msgspec.Struct, frozen=True):
    """One message: chunks copied or added from an actor to another.

    `places[i]` at the source goes to `into[i]` at the target.
    """

    source: int
    target: int
    adds: bool
    places: tuple[int, ...]
    into: tuple[int, ...]


class Picture(msgspec.Struct, frozen=True, eq=False):
    """What the actors hold at one moment, shape (actors, places).

    `chunk`: which chunk, -1 for none. `parts`: how many contributions are in it. `done`:
    whether a rank's place holds exactly what the op promises there.
    """

    chunk: Ints
    parts: Ints
    done: Bools


class WalkStep(msgspec.Struct, frozen=True):
    """One step: its moves, all at once, and the picture after them."""

    moves: tuple[Move, ...]
    after: Picture


class Walk(msgspec.Struct, frozen=True, eq=False):
    """A whole program: the picture before it, its stages, and which places are promised."""

    program: Program
    start: Picture
    stages: tuple[WalkStep, ...]
    promised: Bools

    @property
    def bare(self) -> Bools:
        """The places in use: held at the start, promised, or sent."""
        used: Bools = np.zeros(self.start.chunk.shape[1], dtype=np.bool_)
        used |= (self.start.chunk >= 0).any(axis=0) | self.promised.any(axis=0)
        used[self.program.chunk] = True
        used[self.program.places] = True
        return used


def walk(program: Program, follow: Follow = unfollowed) -> Walk:
    """Run a program on symbolic data, keeping a picture of every step, which `follow` follows."""
    holdings, goal = begin(program), wanted(program)
    promised = goal.what >= 0

    def picture() -> Picture:
        done = np.zeros(holdings.what.shape, dtype=np.bool_)
        same = (holdings.what[: program.n] == goal.what) & promised
        done[: program.n] = same & (holdings.count[: program.n] == goal.count).all(axis=2)
        parts = (holdings.count > 0).sum(axis=2)
        return Picture(holdings.what.copy(), parts, done)

    start, stages = picture(), []
    first = np.searchsorted(program.message, np.arange(len(program) + 1)).tolist()
    for _, rows in followed(list(steps(program)), follow):
        moves = [_move(program, message, first) for message in np.unique(program.message[rows])]
        carry(program, holdings, rows)
        stages.append(WalkStep(tuple(moves), picture()))
    return Walk(program, start, tuple(stages), promised)


def _move(program: Program, message: int, first: list[int]) -> Move:
    rows = slice(first[message], first[message + 1])
    return Move(
        int(program.source[message]),
        int(program.target[message]),
        bool(program.reduce[message]),
        tuple(program.chunk[rows].tolist()),
        tuple(program.places[rows].tolist()),
    )
