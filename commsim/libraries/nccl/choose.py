"""
What NCCL runs for a collective: the cheapest algorithm and protocol by its own tuning model, with
its channels, threads and chunks.

    tuner = Tuner(comm, knobs)
    tuner.choose("all_reduce", 1 << 20)        one Choice
    tuner.sweep("all_reduce", sizes)           one Choice per size
    tuner.candidates("all_reduce", sizes)      every usable (algorithm, protocol) at each size
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.nccl.channels import Widths
from commsim.libraries.nccl.chunks import Chunks
from commsim.libraries.nccl.enabling import enabled
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.nvls import nvls_setup
from commsim.libraries.nccl.partition import Cut, cut, interleaved
from commsim.libraries.nccl.rules import FUNCTIONS
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, Protocol
from commsim.libraries.nccl.tables import tables_of
from commsim.libraries.nccl.tuning import Cost, Floats, Ints, Tuning
from commsim.libraries.nccl.tuning_terms import COLLNET, GATHERING, NVLS

__all__ = ["Tuner", "candidates", "choose"]

_SLOW_NVLS_GB = 150.0
Pair = tuple[Algorithm, Protocol]


class Tuner:
    """NCCL's choices on one communicator under one environment."""

    def __init__(self, comm: Communicator, env: Knobs | None = None) -> None:
        self.comm, self.knobs = comm, env or Knobs()
        self.tables = tables_of(comm.version)
        nvls = nvls_setup(comm, self.tables, self.knobs)
        self.widths = Widths(comm, self.tables, self.knobs, nvls_channels=nvls.channels)
        self.tuning = Tuning(comm, self.tables, self.knobs, channels=self.widths.channels)
        self.chunks = Chunks(comm, self.knobs, nvls=nvls, slow_nvls=self._slow_nvls())
        self._usable: dict[str, tuple[dict[Pair, Cost], tuple[str, ...]]] = {}

    def choose(self, op: str, size: int, *, dtype_size: int = 4) -> Choice:
        """Return what NCCL runs for `op` of `size` bytes (nccl-tests' S).

        Raises:
            ScenarioError: `op` is none of NCCL's collectives, or nothing allowed works here.
        """
        return self.sweep(op, [size], dtype_size=dtype_size)[0]

    def sweep(self, op: str, sizes: Sequence[int], *, dtype_size: int = 4) -> tuple[Choice, ...]:
        """Return NCCL's choice for each size.

        Raises:
            ScenarioError: as `choose`.
        """
        moved = np.array([self._bytes(op, size, dtype_size) for size in sizes], dtype=np.int64)
        pairs, times = self._times(op, moved)
        # argmin takes the first of equals, as NCCL's strict comparison does
        best = np.argmin(times, axis=0)
        return tuple(
            self._choice(op, size, pairs[place], float(times[place, column]), dtype_size)
            for column, (size, place) in enumerate(zip(sizes, best.tolist(), strict=True))
        )

    def candidates(
        self, op: str, sizes: Sequence[int], *, dtype_size: int = 4
    ) -> Mapping[Pair, tuple[Choice, ...]]:
        """Return for every usable algorithm and protocol what NCCL would run if forced to it.

        Raises:
            ScenarioError: as `choose`.
        """
        moved = np.array([self._bytes(op, size, dtype_size) for size in sizes], dtype=np.int64)
        pairs, times = self._times(op, moved)
        return {
            pair: tuple(
                self._choice(op, size, pair, float(time), dtype_size)
                for size, time in zip(sizes, row, strict=True)
            )
            for pair, row in zip(pairs, times, strict=True)
        }

    def costs(self, op: str) -> Mapping[Pair, Cost]:
        """Return latency and bandwidth of every usable algorithm and protocol.

        Raises:
            ScenarioError: as `choose`.
        """
        return dict(self._costs(op)[0])

    def _costs(self, op: str) -> tuple[dict[Pair, Cost], tuple[str, ...]]:
        if op not in FUNCTIONS:
            raise ScenarioError(
                f"{op}: NCCL's tuner knows {', '.join(FUNCTIONS)}.{did_you_mean(op, FUNCTIONS)}"
            )
        if op not in self._usable:
            pairs, notes = enabled(self.comm, self.tables, self.knobs, op)
            if self.comm.n_ranks == 1:
                costs = dict.fromkeys(pairs, Cost(0.0, np.inf))
            else:
                costs = {pair: self.tuning.cost(op, *pair) for pair in pairs}
            usable = {pair: cost for pair, cost in costs.items() if cost.bandwidth > 0}
            if not usable:
                raise ScenarioError(f"NCCL {self.comm.version}: no algorithm for {op} works here.")
            self._usable[op] = usable, notes
        return self._usable[op]

    def _times(self, op: str, moved: Ints) -> tuple[list[Pair], Floats]:
        costs, _ = self._costs(op)
        rows = [self.tuning.times(op, *pair, moved, cost) for pair, cost in costs.items()]
        return list(costs), np.stack(rows)

    def _choice(self, op: str, size: int, pair: Pair, time: float, dtype_size: int) -> Choice:
        algorithm, protocol = pair
        moved = self._bytes(op, size, dtype_size)
        width = self.widths.width(algorithm, protocol, moved)
        laid = self._cut(op, moved, pair, width.channels, dtype_size)
        chunk = self.chunks.chunk(
            op, algorithm, protocol, self._share(op, pair, laid, moved, dtype_size)
        )
        return Choice(
            op=op,
            size=size,
            algorithm=algorithm,
            protocol=protocol,
            channels=laid.channels,
            max_channels=width.channels,
            threads=width.threads,
            chunk=chunk,
            slice=self.chunks.slice(op, algorithm, protocol, chunk),
            selection_us=time,
            count_lo=laid.lo,
            count_mid=laid.mid,
            count_hi=laid.hi,
            notes=self._costs(op)[1],
        )

    def _share(self, op: str, pair: Pair, laid: Cut, moved: int, dtype_size: int) -> int:
        """Return the operation's bytes that a channel carries; CollNet interleaves them."""
        if pair[0] in COLLNET:
            return moved // max(1, laid.channels)
        element, ranks = self._element(op, dtype_size)
        return laid.typical * element * ranks

    def _cut(self, op: str, moved: int, pair: Pair, most: int, dtype_size: int) -> Cut:
        algorithm, protocol = pair
        element, ranks = self._element(op, dtype_size)
        count = moved // (element * ranks)
        if algorithm in COLLNET:
            return interleaved(count, most)
        nvls = algorithm in NVLS
        return cut(
            count,
            element,
            traffic_per_byte=2 if op == "all_reduce" else ranks,
            ll=protocol is Protocol.LL,
            most=most,
            total=self.widths.nvls_channels if nvls else self.widths.channels,
            tables=self.tables,
        )

    def _element(self, op: str, dtype_size: int) -> tuple[int, int]:
        """Return (bytes of an element, ranks' parts in S): all-gather and broadcast move bytes."""
        element = 1 if op in ("all_gather", "broadcast") else dtype_size
        return element, self.comm.n_ranks if op in GATHERING else 1

    def _bytes(self, op: str, size: int, dtype_size: int) -> int:
        """Return the bytes of whole elements on every rank."""
        element, ranks = self._element(op, dtype_size)
        whole = dtype_size * ranks if element == 1 else element * ranks
        return size // whole * whole

    def _slow_nvls(self) -> bool:
        """Is NVLS with SHARP between nodes slow enough that NCCL makes its chunks small?"""
        graph = self.comm.graphs.get("nvls")
        if self.comm.n_nodes == 1 or graph is None or not graph.channels:
            return False
        cost = self.tuning.cost("all_reduce", Algorithm.NVLS, Protocol.Simple)
        return cost.bandwidth < _SLOW_NVLS_GB


def choose(
    comm: Communicator, op: str, size_bytes: int, *, dtype_size: int = 4, env: Knobs | None = None
) -> Choice:
    """Return what NCCL runs for one collective; use a `Tuner` for more than one.

    Raises:
        ScenarioError: `op` is none of NCCL's collectives, or nothing allowed works here.
    """
    return Tuner(comm, env).choose(op, size_bytes, dtype_size=dtype_size)


def candidates(
    comm: Communicator, op: str, size_bytes: int, *, dtype_size: int = 4, env: Knobs | None = None
) -> tuple[Choice, ...]:
    """Return what NCCL would run under each usable algorithm and protocol.

    Raises:
        ScenarioError: as `choose`.
    """
    every = Tuner(comm, env).candidates(op, [size_bytes], dtype_size=dtype_size)
    return tuple(choices[0] for choices in every.values())
