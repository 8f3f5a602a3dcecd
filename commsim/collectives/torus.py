"""
Rings along each dimension of a torus in turn, with every link of it at work all the time.

Rank r stands at the coordinates of r, the last dimension fastest, with the `per_node` ranks of a
router as one more, fastest dimension. These first reduce among themselves; then the data is cut
into a part for each dimension and way round. A part goes round the dimensions in turn, beginning
with its own: at any time each dimension and way round carries one of them (Sack and Gropp 2012,
"Faster topology-aware collective algorithms through non-minimal communication"). With k dimensions
of d routers and links of B bytes/s one way, n = d^k, an all-reduce takes S (n - 1) / (n k B).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import msgspec

from commsim.collectives.program import Program, ProgramBuilder
from commsim.collectives.two_level import gather_around, reduce_around

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]


class _Stage(msgspec.Struct, frozen=True):
    """Lines of ranks that a part goes round at once, with the chunks of each member's block."""

    lines: list[tuple[list[int], list[list[int]]]]
    first: int
    number: int


class _Torus:
    """The grid of ranks, and the order in which each part takes its dimensions."""

    def __init__(self, dims: Sequence[int], per_node: int) -> None:
        self.sizes = (*dims, per_node)
        self.n = math.prod(self.sizes)
        axes = [axis for axis, size in enumerate(dims) if size > 1]
        inside = [len(dims)] if per_node > 1 else []
        turned = [axes[at:] + axes[:at] for at in range(len(axes))] or [[]]
        self.parts = [((*inside, *order), way) for order in turned for way in (1, -1)]
        self.strides = [math.prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes))]

    def builder(self, op: str) -> ProgramBuilder:
        """Return an empty program with a chunk for each rank and part."""
        chunks = self.n * len(self.parts)
        return ProgramBuilder(op, "torus", self.n, [1 / chunks] * chunks)

    def stages(self, part: int, *, upwards: bool, first: int, number: int) -> Iterator[_Stage]:
        """Yield the stages of a part in order: those of a reduce-scatter, or `upwards` the reverse.

        `first` and `number` are the step and the phase of the earliest.
        """
        order, way = self.parts[part]
        positions = range(len(order))
        for at in reversed(positions) if upwards else positions:
            yield _Stage(self._lines(part, order, at, way), first, number)
            first += self.sizes[order[at]] - 1
            number += 1

    def _lines(
        self, part: int, order: Sequence[int], at: int, way: int
    ) -> list[tuple[list[int], list[list[int]]]]:
        """Return the lines along dimension `order[at]`; what comes later in `order` is whole."""
        axis, later = order[at], order[at + 1 :]
        others = [range(s) if a != axis else range(1) for a, s in enumerate(self.sizes)]
        spread = [sum(place) for place in itertools.product(*(self._steps(a) for a in later))]
        found = []
        for place in itertools.product(*others):
            base = self._rank(place)
            line = [base + step for step in self._steps(axis)][::way]
            free = sum(place[a] * self.strides[a] for a in later)
            owners = [[rank - free + other for other in spread] for rank in line]
            blocks = [[owner * len(self.parts) + part for owner in block] for block in owners]
            found.append((line, blocks))
        return found

    def _steps(self, axis: int) -> list[int]:
        return [i * self.strides[axis] for i in range(self.sizes[axis])]

    def _rank(self, place: Sequence[int]) -> int:
        return sum(i * stride for i, stride in zip(place, self.strides, strict=True))


def _down(program: ProgramBuilder, torus: _Torus) -> None:
    for part in range(len(torus.parts)):
        for stage in torus.stages(part, upwards=False, first=0, number=0):
            for line, blocks in stage.lines:
                reduce_around(program, line, blocks, stage.first, stage.number)


def _up(program: ProgramBuilder, torus: _Torus, *, after: bool) -> None:
    steps, stages = _length(torus) if after else (0, 0)
    for part in range(len(torus.parts)):
        for stage in torus.stages(part, upwards=True, first=steps, number=stages):
            for line, blocks in stage.lines:
                gather_around(program, line, blocks, stage.first, stage.number)


def _length(torus: _Torus) -> tuple[int, int]:
    """Return the steps and the stages of a reduce-scatter: the same for each part."""
    order = torus.parts[0][0]
    return sum(torus.sizes[axis] - 1 for axis in order), len(order)


def all_reduce(dims: Sequence[int], per_node: int) -> Program:
    """Reduce-scatter along each dimension, then all-gather along each in reverse."""
    torus = _Torus(dims, per_node)
    program = torus.builder("all_reduce")
    _down(program, torus)
    _up(program, torus, after=True)
    return program.build()


def reduce_scatter(dims: Sequence[int], per_node: int) -> Program:
    """Reduce along each dimension, so that each rank ends with its own chunks."""
    torus = _Torus(dims, per_node)
    program = torus.builder("reduce_scatter")
    _down(program, torus)
    return program.build()


def all_gather(dims: Sequence[int], per_node: int) -> Program:
    """Gather along each dimension."""
    torus = _Torus(dims, per_node)
    program = torus.builder("all_gather")
    _up(program, torus, after=False)
    return program.build()
