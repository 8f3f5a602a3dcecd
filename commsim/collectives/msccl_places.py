"""
Where the chunks of an MSCCL algorithm lie: its input, output and scratch buffers as places.

In place, input and output are one buffer: an all-gather's input is then the rank's own part of
the output, and a reduce-scatter's output the rank's own part of the input, as in NCCL.
"""

from __future__ import annotations

import numpy as np

from commsim.collectives.msccl_file import MscclAlgorithm, Where
from commsim.collectives.program import DataLayout
from commsim.errors import ScenarioError
from commsim.ops import PAIRED, ROOTED

__all__ = ["Places"]

_SPLIT_INPUT = frozenset({"all_gather", "gather"})  # a rank starts with its part of the whole
_SPLIT_OUTPUT = frozenset({"reduce_scatter", "scatter"})


class Places:
    """The places of every rank, in one numbering: buffers first, then spare ones."""

    def __init__(self, algorithm: MscclAlgorithm) -> None:
        self._op, self._n, self._whole = algorithm.op, algorithm.n, algorithm.chunks
        self.root = algorithm.root if algorithm.op in ROOTED else -1
        parted = self._op in _SPLIT_INPUT | _SPLIT_OUTPUT | PAIRED
        if parted and self._whole % self._n:
            raise ScenarioError(
                f"nchunksperloop={self._whole} cannot be dealt evenly to {self._n} GPUs."
            )
        self._part = self._whole // self._n if parted else self._whole
        self._inputs = self._part if self._op in _SPLIT_INPUT else self._whole
        self._outputs = self._part if self._op in _SPLIT_OUTPUT else self._whole
        self._in_place = algorithm.in_place
        self._scratch = algorithm.scratch
        self._first_output = 0 if self._in_place else self._inputs
        buffers = self._whole if self._in_place else self._inputs + self._outputs
        self._first_scratch = buffers
        self._first_spare = buffers + max(algorithm.scratch, default=0)
        self._spares = [0] * self._n

    @property
    def total(self) -> int:
        """How many places a rank has."""
        return self._first_spare + max(self._spares)

    def of(self, rank: int, where: Where, count: int, step: str) -> list[int]:
        """Return the places of `count` chunks of a rank; `step` is named if there are none.

        Raises:
            ScenarioError: the buffer ends before.
        """
        sizes = {"i": self._inputs, "o": self._outputs, "s": self._scratch[rank]}
        shift = {"i": self._input(rank), "o": self._output(rank), "s": self._first_scratch}
        if where.offset < 0 or where.offset + count > sizes[where.buffer]:
            name = {"i": "input", "o": "output", "s": "scratch"}[where.buffer]
            raise ScenarioError(
                f"{step}: chunks {where.offset} to {where.offset + count - 1} of the {name}"
                f" buffer, which has {sizes[where.buffer]}."
            )
        first = shift[where.buffer] + where.offset
        return list(range(first, first + count))

    def spare(self, rank: int, count: int) -> list[int]:
        """Return places for data that is in none of the rank's buffers."""
        first = self._first_spare + self._spares[rank]
        self._spares[rank] += count
        return list(range(first, first + count))

    def name(self, place: int) -> str:
        """Say what a place is."""
        if place >= self._first_spare:
            return f"chunk {place - self._first_spare} in flight"
        if place >= self._first_scratch:
            return f"scratch chunk {place - self._first_scratch}"
        if self._in_place:
            return f"buffer chunk {place}"
        if place >= self._first_output:
            return f"output chunk {place - self._first_output}"
        return f"input chunk {place}"

    def layout(self) -> DataLayout:
        """Return what every place starts with and must end with."""
        n, whole = self._n, self._whole
        held = np.full((n, self.total), -1, dtype=np.int64)
        wanted = np.full((n, self.total), -1, dtype=np.int64)
        for rank in range(n):
            starts = np.arange(self._inputs) + self._offset(rank, _SPLIT_INPUT)
            ends = np.arange(self._outputs) + self._offset(rank, _SPLIT_OUTPUT)
            if self._op in PAIRED:
                part, within = np.divmod(np.arange(whole), self._part)
                starts = (rank * n + part) * self._part + within
                ends = (part * n + rank) * self._part + within
            if self._op not in ("broadcast", "scatter") or rank == self.root:
                held[rank, self._input(rank) + np.arange(self._inputs)] = starts
            if self._op not in ("reduce", "gather") or rank == self.root:
                wanted[rank, self._output(rank) + np.arange(self._outputs)] = ends
        return DataLayout(held, wanted, tuple(self.name(p) for p in range(self.total)))

    def _offset(self, rank: int, split: frozenset[str]) -> int:
        return rank * self._part if self._op in split else 0

    def _input(self, rank: int) -> int:
        """Return the place where a rank's input starts."""
        return self._offset(rank, _SPLIT_INPUT) if self._in_place else 0

    def _output(self, rank: int) -> int:
        """Return the place where a rank's output starts."""
        return self._offset(rank, _SPLIT_OUTPUT) if self._in_place else self._first_output
