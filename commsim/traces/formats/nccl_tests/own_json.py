"""
The JSON of `commsim bench`: also the plain form for times that no benchmark printed.

`system` has `gpus`, `nodes` and NCCL's `version`; each of `results` has `op`, `size` (bytes),
`type` and `time_us`. Whatever else the bench writes is not read.
"""

from __future__ import annotations

from itertools import groupby

import msgspec

from commsim.errors import TraceError
from commsim.traces.formats.nccl_tests.table import (
    PROGRAMS,
    BenchedRow,
    BenchedTiming,
    Count,
    NcclTests,
    is_time,
)

__all__ = ["is_bench_json", "read_bench_json"]


class _System(msgspec.Struct):
    gpus: Count
    nodes: Count = 1
    library: str = "nccl"
    version: str = ""


class _Row(msgspec.Struct):
    op: str
    size: Count
    time_us: float
    type: str = "float"
    count: Count = 0


class _BenchFile(msgspec.Struct):
    system: _System
    results: list[_Row]


def is_bench_json(data: bytes | bytearray) -> bool:
    """Whether a file's content is the JSON of `commsim bench`."""
    return data.lstrip()[:1] == b"{" and b'"system"' in data and b'"time_us"' in data


def read_bench_json(data: bytes | bytearray, source: str) -> tuple[NcclTests, ...]:
    """Return a table for each op and type.

    Raises:
        TraceError: not such a file, not of NCCL, an op that has no bench, or no time.
    """
    try:
        read = msgspec.json.decode(bytes(data), type=_BenchFile)
    except msgspec.MsgspecError as error:
        raise TraceError(f"{source}: is not the JSON of commsim bench: {error}.") from None
    system = read.system
    if system.library != "nccl":
        raise TraceError(f"{source}: is of {system.library}. Give times of nccl.")
    if system.gpus < 2 or system.nodes < 1 or system.gpus % system.nodes:
        raise TraceError(
            f"{source}: system: {system.gpus} GPUs on {system.nodes} nodes. Give two or more, as"
            " many on each node."
        )
    unknown = sorted({row.op for row in read.results if row.op not in PROGRAMS.values()})
    if unknown:
        raise TraceError(f"{source}: results: there is no bench of {', '.join(unknown)}.")
    rows = [row for row in read.results if row.size > 0 < row.time_us and is_time(row.time_us)]
    if not rows:
        raise TraceError(f"{source}: results: no row has a size and a time above zero.")
    rows.sort(key=lambda row: (row.op, row.type, row.size))
    return tuple(
        NcclTests(
            op,
            tuple(map(_benched, own)),
            (),
            system.version or None,
            source,
            ranks=system.gpus,
            nodes=system.nodes,
        )
        for (op, _), own in groupby(rows, key=lambda row: (row.op, row.type))
    )


def _benched(row: _Row) -> BenchedRow:
    algbw = row.size / row.time_us / 1e3
    return BenchedRow(
        row.size,
        row.count,
        row.type,
        None,
        None,
        BenchedTiming(row.time_us, algbw, algbw, None),
        None,
    )
