"""
What NCCL runs for a collective: the cheapest algorithm and protocol by its own tuning model, with
its channels, threads and chunks.

    tuner = Tuner(comm, knobs)
    tuner.choose("all_reduce", 1 << 20)        one Choice
    tuner.sweep("all_reduce", sizes)           one Choice per size
    tuner.candidates("all_reduce", sizes)      every usable (algorithm, protocol) at each size

Follows ncclGetAlgoInfo and topoGetAlgoInfo (src/enqueue.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from commsim.arrays import Singles
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, Protocol
from commsim.libraries.nccl.tuning.algo_filter import FUNCTIONS
from commsim.libraries.nccl.tuning.channels import Widths
from commsim.libraries.nccl.tuning.chunks import Chunks
from commsim.libraries.nccl.tuning.enabling import enabled
from commsim.libraries.nccl.tuning.model import TunerCost, Tuning
from commsim.libraries.nccl.tuning.nvls import nvls_setup
from commsim.libraries.nccl.tuning.partition import Cut, cut, interleaved
from commsim.libraries.nccl.tuning.reduction import Reduction
from commsim.libraries.nccl.tuning.tables import tables_of
from commsim.libraries.nccl.tuning.terms import COLLNET, GATHERING, NVLS
from commsim.ops import REDUCING

__all__ = ["FLOAT_SUM", "Tuner", "candidates", "choose"]

FLOAT_SUM = Reduction("float32", "sum")
_SLOW_NVLS_GB_PER_S = 150.0
_MAX_FP8_RING_RANKS, _FP8_RING_PENALTY = 8, 1024.0
"""An 8-bit reduction loses precision at every rank of a ring: beyond 8 ranks NCCL multiplies the
ring's time by 1024, so that another algorithm is chosen."""
Pair = tuple[Algorithm, Protocol]


class _Call(msgspec.Struct, frozen=True):
    """One kind of call, of S bytes as nccl-tests counts them.

    `parts`: shares of single ranks in S (n for all-gather and reduce-scatter, else 1); `element`:
    bytes per unit of NCCL's `count`.
    """

    op: str
    element: int
    parts: int
    dtype_size: int
    reduction: Reduction

    def whole_bytes(self, size: int) -> int:
        """Return S rounded down so that every rank has whole elements."""
        whole = self.dtype_size * self.parts
        return size // whole * whole

    def count(self, size: int) -> int:
        """Return what NCCL takes as the count of elements."""
        return self.whole_bytes(size) // (self.element * self.parts)


class Tuner:
    """NCCL's choices on one communicator under one environment."""

    def __init__(self, comm: Communicator, env: Knobs | None = None) -> None:
        self.comm, self.knobs = comm, env or Knobs()
        self.tables = tables_of(comm.version)
        nvls = nvls_setup(comm, self.tables, self.knobs)
        self.widths = Widths(comm, self.tables, self.knobs, nvls_channels=nvls.channels)
        self.tuning = Tuning(comm, self.tables, self.knobs, channels=self.widths.channels)
        self.chunks = Chunks(comm, self.tables, self.knobs, nvls=nvls, slow_nvls=self._slow_nvls())
        self._usable: dict[
            tuple[str, Reduction], tuple[dict[Pair, TunerCost], tuple[str, ...]]
        ] = {}

    def choose(
        self, op: str, size: int, *, dtype_size: int = 4, reduction: Reduction = FLOAT_SUM
    ) -> Choice:
        """Return what NCCL runs for `op` of `size` bytes (nccl-tests' S).

        Raises:
            ScenarioError: `op` is none of NCCL's collectives, or nothing allowed works here.
        """
        return self.sweep(op, [size], dtype_size=dtype_size, reduction=reduction)[0]

    def sweep(
        self,
        op: str,
        sizes: Sequence[int],
        *,
        dtype_size: int = 4,
        reduction: Reduction = FLOAT_SUM,
    ) -> tuple[Choice, ...]:
        """Return NCCL's choice for each size.

        Raises:
            ScenarioError: as `choose`.
        """
        call = self._call(op, dtype_size, reduction)
        pairs, times = self._times(call, sizes)
        # argmin takes the first of equals, as NCCL's strict comparison does
        best = np.argmin(times, axis=0)
        return tuple(
            self._choice(call, size, pairs[place], float(times[place, column]))
            for column, (size, place) in enumerate(zip(sizes, best.tolist(), strict=True))
        )

    def candidates(
        self,
        op: str,
        sizes: Sequence[int],
        *,
        dtype_size: int = 4,
        reduction: Reduction = FLOAT_SUM,
    ) -> Mapping[Pair, tuple[Choice, ...]]:
        """Return for every usable algorithm and protocol what NCCL would run if forced to it.

        Raises:
            ScenarioError: as `choose`.
        """
        call = self._call(op, dtype_size, reduction)
        pairs, times = self._times(call, sizes)
        return {
            pair: tuple(
                self._choice(call, size, pair, float(time))
                for size, time in zip(sizes, row, strict=True)
            )
            for pair, row in zip(pairs, times, strict=True)
        }

    def costs(self, op: str, reduction: Reduction = FLOAT_SUM) -> Mapping[Pair, TunerCost]:
        """Return latency and bandwidth of every usable algorithm and protocol.

        Raises:
            ScenarioError: as `choose`.
        """
        return dict(self._costs(op, reduction)[0])

    def _call(self, op: str, dtype_size: int, reduction: Reduction) -> _Call:
        """Describe a call: all-gather and broadcast count bytes, whatever the type."""
        element = 1 if op in ("all_gather", "broadcast") else dtype_size
        parts = self.comm.n_ranks if op in GATHERING else 1
        return _Call(op, element, parts, dtype_size, reduction)

    def _costs(
        self, op: str, reduction: Reduction
    ) -> tuple[dict[Pair, TunerCost], tuple[str, ...]]:
        if op not in FUNCTIONS:
            raise ScenarioError(
                f"{op}: NCCL's tuner knows {', '.join(FUNCTIONS)}.{did_you_mean(op, FUNCTIONS)}"
            )
        if (op, reduction) not in self._usable:
            pairs, notes = enabled(self.comm, self.tables, self.knobs, op, reduction)
            if self.comm.n_ranks == 1:
                costs = dict.fromkeys(pairs, TunerCost(0.0, np.inf))
            else:
                costs = {pair: self.tuning.cost(op, *pair) for pair in pairs}
            usable = {pair: cost for pair, cost in costs.items() if cost.bandwidth > 0}
            if not usable:
                raise ScenarioError(f"NCCL {self.comm.version}: no algorithm for {op} works here.")
            self._usable[op, reduction] = usable, notes
        return self._usable[op, reduction]

    def _times(self, call: _Call, sizes: Sequence[int]) -> tuple[list[Pair], Singles]:
        rounded = np.array([call.whole_bytes(size) for size in sizes], dtype=np.int64)
        costs, _ = self._costs(call.op, call.reduction)
        rows = [self.tuning.times(call.op, *pair, rounded, cost) for pair, cost in costs.items()]
        times = np.stack(rows)
        if (
            call.reduction.is_float8
            and call.op in REDUCING
            and self.comm.n_ranks > _MAX_FP8_RING_RANKS
        ):
            rings = [place for place, pair in enumerate(costs) if pair[0] is Algorithm.Ring]
            times[rings] *= np.float32(_FP8_RING_PENALTY)
        return list(costs), times

    def _choice(self, call: _Call, size: int, pair: Pair, time: float) -> Choice:
        width = self.widths.width(*pair, call.whole_bytes(size))
        partition = self._partition(call, size, pair, width.channels)
        chunk = self.chunks.chunk(call.op, *pair, _share(call, size, pair, partition))
        return Choice(
            op=call.op,
            size=size,
            algorithm=pair[0],
            protocol=pair[1],
            channels=partition.channels,
            max_channels=width.channels,
            threads=width.threads,
            chunk=chunk,
            slice=self.chunks.slice(call.op, *pair, chunk),
            selection_us=time,
            count_lo=partition.lo,
            count_mid=partition.mid,
            count_hi=partition.hi,
            notes=self._costs(call.op, call.reduction)[1],
        )

    def _partition(self, call: _Call, size: int, pair: Pair, most: int) -> Cut:
        algorithm, protocol = pair
        if algorithm in COLLNET:
            return interleaved(call.count(size), most)
        nvls = algorithm in NVLS
        return cut(
            call.count(size),
            call.element,
            traffic_per_byte=2 if call.op == "all_reduce" else call.parts,
            ll=protocol is Protocol.LL,
            most=most,
            total=self.widths.nvls_channels if nvls else self.widths.channels,
            tables=self.tables,
        )

    def _slow_nvls(self) -> bool:
        """Is NVLS with SHARP between nodes slow enough that NCCL makes its chunks small?"""
        graph = self.comm.graphs.get("nvls")
        if self.comm.n_nodes == 1 or graph is None or not graph.channels:
            return False
        cost = self.tuning.cost("all_reduce", Algorithm.NVLS, Protocol.Simple)
        return cost.bandwidth < _SLOW_NVLS_GB_PER_S


def _share(call: _Call, size: int, pair: Pair, partition: Cut) -> int:
    """Return the bytes of the operation per channel; all channels of CollNet carry equal shares."""
    if pair[0] in COLLNET:
        return call.whole_bytes(size) // max(1, partition.channels)
    return partition.typical * call.element * call.parts


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
