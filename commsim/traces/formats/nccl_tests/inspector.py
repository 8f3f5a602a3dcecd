"""
What the inspector of NCCL and RCCL writes while a job runs: a line of JSON per op and rank.

A time is that of one rank's kernel, which waits for the others first. Of each op the shortest of
the ranks in the file counts, that of the rank that came last, and of each size the median op.
Fields, and what is counted n times (an all-gather's and a reduce-scatter's bytes are a rank's):
github NVIDIA/nccl, plugins/profiler/inspector (README, inspectorComputeCollBw).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import msgspec

from commsim.errors import TraceError
from commsim.ops import op_of
from commsim.traces.formats.files import BAD_JSON
from commsim.traces.formats.nccl_tests.table import (
    PROGRAMS,
    BenchedRow,
    BenchedTiming,
    NcclTests,
    is_time,
)
from commsim.traces.formats.values import FAR

__all__ = ["is_inspector_log", "read_inspector_log"]

_OF_A_RANK = ("all_gather", "reduce_scatter")
_TYPE, _ELEMENT = "float", 4
_HEAD = 2**16
_MOST_RANKS = 2**24


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int
    nnodes: int = 1


class _Perf(msgspec.Struct):
    op: str = msgspec.field(name="coll")
    number: int = msgspec.field(name="coll_sn")
    size: int = msgspec.field(name="coll_msg_size_bytes")
    time_us: float = msgspec.field(name="coll_exec_time_us")


class _Record(msgspec.Struct):
    header: _Header
    coll_perf: _Perf | None = None


class _Found(msgspec.Struct):
    """What stands in a file: the times of each op, by (op, ranks, nodes, size) and which it was."""

    times: dict[tuple[str, int, int, int], dict[tuple[str, int], float]]
    ranks: set[tuple[str, int]]
    broken: int = 0
    others: int = 0


_RECORD = msgspec.json.Decoder(_Record)


def is_inspector_log(data: bytes | bytearray) -> bool:
    """Whether a file's content is what the inspector writes."""
    head = data[:_HEAD]
    return head.lstrip()[:1] == b"{" and (b'"coll_perf"' in head or b'"p2p_perf"' in head)


def read_inspector_log(data: bytes | bytearray, source: str) -> tuple[NcclTests, ...]:
    """Return a table for each op on as many ranks and nodes, that of most ops first.

    Raises:
        TraceError: no line of it tells of a collective.
    """
    found = _Found(defaultdict(dict), set())
    for line in data.splitlines():
        if line.strip():
            _take(line, found)
    tables: dict[tuple[str, int, int], list[BenchedRow]] = defaultdict(list)
    counts: dict[tuple[str, int, int], int] = defaultdict(int)
    for (op, ranks, nodes, size), of_size in sorted(found.times.items()):
        tables[op, ranks, nodes].append(_row(size, median(of_size.values())))
        counts[op, ranks, nodes] += len(of_size)
    if not tables:
        raise TraceError(
            f"{source}: no line of the inspector tells of a collective among two ranks or more."
        )
    notes = tuple(_notes(found))
    return tuple(
        NcclTests(op, tuple(tables[op, ranks, nodes]), (), None, source, ranks, nodes, notes=notes)
        for op, ranks, nodes in sorted(tables, key=lambda key: (-counts[key], key))
    )


def _take(line: bytes | bytearray, found: _Found) -> None:
    try:
        record = _RECORD.decode(line)
    except BAD_JSON:
        found.broken += 1
        return
    head, perf = record.header, record.coll_perf
    op = op_of(perf.op) if perf else ""
    sound = (
        perf
        and 0 < perf.size * head.n_ranks < FAR
        and perf.time_us > 0
        and is_time(perf.time_us)
        and 2 <= head.n_ranks <= _MOST_RANKS
    )
    if not perf or op not in PROGRAMS.values() or not sound or head.nnodes < 1:
        found.others += 1
        return
    size = perf.size * head.n_ranks if op in _OF_A_RANK else perf.size
    times = found.times[op, head.n_ranks, head.nnodes, size]
    which = head.id, perf.number
    times[which] = min(perf.time_us, times.get(which, perf.time_us))
    found.ranks.add((head.id, head.rank))


def _row(size: int, time_us: float) -> BenchedRow:
    algbw = size / time_us / 1e3
    timing = BenchedTiming(time_us, algbw, algbw, None)
    return BenchedRow(size, size // _ELEMENT, _TYPE, None, None, timing, None)


def _notes(found: _Found) -> Iterator[str]:
    yield (
        "times of a job's own collectives, by the inspector: medians per size, on the last of the"
        f" ranks to come; it says no types, {_TYPE} is taken."
    )
    if len(found.ranks) == len({name for name, _ in found.ranks}):
        yield (
            "the file is of one rank, whose times hold what it waited for the others: put the"
            " files of all ranks into one (cat *.log)."
        )
    if found.others:
        yield f"{found.others} records of messages, or without bytes or time, are left out."
    if found.broken:
        yield f"{found.broken} lines cannot be read and are left out."
