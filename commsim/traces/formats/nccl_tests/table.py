"""
A table of nccl-tests: what ran on which devices, and how long each size took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.ops import NCCL_TESTS_TYPES, element_bytes

__all__ = [
    "PROGRAMS",
    "TYPES",
    "BenchedDevice",
    "BenchedRow",
    "BenchedTiming",
    "Count",
    "NcclTests",
    "described",
    "is_time",
    "merged",
    "program_op",
]

TYPES = NCCL_TESTS_TYPES | {name: element_bytes(name) for name in ("fp8_e4m3", "fp8_e5m2")}
"""Bytes of an element by nccl-tests' name of its type, and by rccl-tests' where it differs."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Bytes or elements as a JSON file may state them."""

PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "gather": "gather",
    "alltoallv": None,
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "hypercube": None,
}
"""The op that each of nccl-tests' programs runs; None where commsim has no such bench."""


class BenchedTiming(msgspec.Struct, frozen=True):
    """One half of a row: time in us, bandwidths in 1e9 bytes/s, wrong values (None: unchecked)."""

    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: float | None


class BenchedRow(msgspec.Struct, frozen=True):
    """A size: `size` in bytes as nccl-tests counts it, `count` in elements."""

    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: BenchedTiming | None
    in_place: BenchedTiming | None

    @property
    def time_us(self) -> float:
        """The out-of-place time, or the in-place one if there is no other."""
        timing = self.out_of_place or self.in_place
        assert timing is not None
        return timing.time_us


class BenchedDevice(msgspec.Struct, frozen=True):
    """A GPU that took part; `group` is its communicator if the test was split."""

    rank: int
    group: int
    pid: int
    host: str
    index: int
    name: str


class NcclTests(msgspec.Struct, frozen=True):
    """What one test printed. `ranks` is 0 if it does not say; `launch` None likewise.

    `launch`: "gpu" if each GPU has its process, "process" if one drives a node's GPUs.
    """

    op: str
    rows: tuple[BenchedRow, ...]
    devices: tuple[BenchedDevice, ...]
    nccl: str | None
    source: str
    ranks: int = 0
    nodes: int = 0
    launch: str | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        where = f" on {self.ranks} GPUs" if self.ranks else ""
        return f"NcclTests({self.op}{where}, {len(self.rows)} sizes)"

    @property
    def gpu(self) -> str | None:
        """The GPU's name; None if it is not stated, or if they differ."""
        names = list(dict.fromkeys(device.name for device in self.devices if device.name))
        return names[0] if len(names) == 1 else None

    @property
    def dtype(self) -> str:
        """The type of most rows."""
        return Counter(row.type for row in self.rows).most_common(1)[0][0]


def is_time(us: float) -> bool:
    """Whether a test can have taken so many us: none (it was not run), or 1 ps to 30 years."""
    return us == 0 or 1e-6 <= us <= 1e15


def program_op(program: str, source: str) -> str:
    """Return the op that a program of nccl-tests runs. Raises TraceError if it has no bench."""
    op = PROGRAMS[program]
    if op is None:
        raise TraceError(f"{source}: is of {program}_perf, which commsim bench does not have.")
    return op


def described(table: NcclTests) -> NcclTests:
    """Return a table with its ranks, nodes and launch computed, and notes on what is odd."""
    notes = list(table.notes)
    first = [device for device in table.devices if device.group == table.devices[0].group]
    if len(first) < len(table.devices):
        notes.append("the test was split into groups; one group's ranks are counted.")
    ranks = len({device.rank for device in first})
    if first and ranks < len(first):
        notes.append(
            f"rank {first[0].rank} stands there {len(first)} times: nccl-tests was built without"
            " MPI, so each process ran alone."
        )
        ranks = len(first) // max(Counter(device.rank for device in first).values())
    seen = _ranks_by_figures(table)
    if seen and ranks and seen != ranks:
        notes.append(f"{ranks} ranks are listed, and the figures are those of {seen}.")
    hosts = Counter(device.host for device in first)
    per_node = ranks // len(hosts) if hosts else 0
    processes = len({(device.host, device.pid) for device in first})
    launch = None
    if ranks and per_node > 1:
        launch = "process" if processes == len(hosts) else "gpu"
    return replace(
        table,
        ranks=ranks or seen,
        nodes=len(hosts),
        launch=launch,
        notes=tuple(notes),
    )


def merged(tables: Iterable[NcclTests]) -> tuple[NcclTests, ...]:
    """Return one table per op: rows of one type and redop, those of repeated runs together.

    What was run on other ranks, or with other types, is left out; a note says so.
    """
    kept: dict[str, NcclTests] = {}
    for table in tables:
        first = kept.get(table.op)
        if first is None:
            kept[table.op] = _of_one_type(table)
            continue
        again = _of_one_type(table, first.dtype, first.rows[0].redop)
        if (again.ranks, again.nodes) == (first.ranks, first.nodes) and again.rows:
            kept[table.op] = replace(first, rows=first.rows + again.rows)
        else:
            note = f"a second {table.op}, {table.ranks} ranks, {table.dtype}, is left out."
            kept[table.op] = replace(first, notes=(*first.notes, note))
    return tuple(kept.values())


def _of_one_type(table: NcclTests, dtype: str | None = None, redop: str | None = None) -> NcclTests:
    """Return a table with the rows of one type and redop: those given, or the first of most."""
    dtype = dtype or table.dtype
    mine = [row for row in table.rows if row.type == dtype]
    redop = redop or (mine[0].redop if mine else None)
    rows = tuple(row for row in mine if row.redop == redop)
    notes = table.notes
    if len(rows) < len(table.rows):
        notes = (
            *notes,
            f"{len(table.rows) - len(rows)} rows of other types or redops are left out.",
        )
    return replace(table, rows=rows, notes=notes)


def _ranks_by_figures(table: NcclTests) -> int:
    """Tell the ranks from the table itself, 0 if it does not show.

    Ops that deal out blocks print the block's elements; an all-reduce's busbw is 2(n-1)/n of its
    algbw, which three digits give away up to some 30 ranks.
    """
    row = max(table.rows, key=lambda row: row.size)
    timing = row.out_of_place or row.in_place
    block = row.count * TYPES[row.type]
    if block and row.size > block and row.size % block == 0:
        return row.size // block
    if table.op == "all_reduce" and timing is not None and timing.algbw_gbs >= 10:
        ratio = timing.busbw_gbs / timing.algbw_gbs
        noise = 0.005 * (1 + ratio) / timing.algbw_gbs  # two decimals are printed
        ranks = round(2 / (2 - ratio)) if ratio < 2 else 0
        if 2 <= ranks <= 64 and abs(2 * (ranks - 1) / ranks - ratio) <= noise:
            return ranks if 2 / ranks**2 > 2 * noise else 0
    return 0
