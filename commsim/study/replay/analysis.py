"""
What a measured run waited for: who was late, by how much, in which collective; and its busbw.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from commsim.cluster import Cluster
from commsim.errors import CommsimError
from commsim.libraries import Library, Request, library_of, plan_of
from commsim.metrics import Metrics
from commsim.ops import COLLECTIVES, ROOTED, bus_factor
from commsim.traces import CollectiveRow, MessageRow, Trace
from commsim.units import PS_PER_SECOND, format_size, format_time

__all__ = ["busbw", "busbw_table", "collective_table", "late", "late_table", "overlaps"]

_ROWS = 40


def late(trace: Trace, measured: Metrics) -> list[dict[str, Any]]:
    """Return per rank what it waited, what it made others wait, and where it was latest."""
    rows = trace.collectives.of_step().rows
    messages = [row for row in trace.messages if row.in_step]
    found = []
    for times in measured.ranks:
        mine = [row for row in rows if row.last_arriver == times.rank and len(row.waits) > 1]
        behind = [row for row in messages if row.late == times.rank and max(row.waits.values())]
        latest = max(mine, key=_late_by, default=None)
        found.append(
            {
                "rank": times.rank,
                "wait_s": times.waiting_s,
                "overlap": _overlap(times.comm_s, times.exposed_transfer_s),
                "last_arrivals": len(mine) + len(behind),
                "made_others_wait_s": (_waited(mine) + _waited(behind)) / PS_PER_SECOND,
                "inferred": sum(row.inferred for row in mine),
                "latest": None
                if latest is None
                else {
                    "op": latest.op,
                    "group": latest.group,
                    "bytes": latest.size,
                    "index": rows.index(latest),
                    "late_s": _late_by(latest) / PS_PER_SECOND,
                },
            }
        )
    return found


def _overlap(comm: float, exposed: float) -> float | None:
    return 1 - exposed / comm if comm > 0 else None


def overlaps(measured: Metrics) -> float | None:
    """Return the share of communication that compute hid, over all ranks."""
    comm = sum(rank.comm_s for rank in measured.ranks)
    return _overlap(comm, sum(rank.exposed_transfer_s for rank in measured.ranks))


def _waited(rows: Sequence[CollectiveRow] | Sequence[MessageRow]) -> int:
    """Return what all members waited, in ps."""
    return sum(sum(row.waits.values()) for row in rows)


def _late_by(row: CollectiveRow) -> int:
    """Return by how much the last member delayed the others."""
    others = [wait for rank, wait in row.waits.items() if rank != row.last_arriver]
    return min(others, default=0)


def busbw(trace: Trace, cluster: Cluster | None, library: Library | None) -> list[dict[str, Any]]:
    """Return, per op, group and size, the measured bus bandwidth and what the library predicts.

    The prediction is that of an idle cluster; None without one, or if it cannot plan the op.
    """
    together: dict[tuple[str, str, tuple[int, ...], int, str], list[int]] = {}
    for row in trace.collectives.of_step():
        if row.size > 0 and row.op in COLLECTIVES and row.op != "barrier" and not row.alone:
            key = (row.op, row.group, row.ranks, row.size, row.dtype)
            together.setdefault(key, []).append(row.transfer)
    found = []
    for (op, group, ranks, size, dtype), times in together.items():
        typical = int(median(times))
        expected = _predicted(op, ranks, size, dtype, cluster, library)
        found.append(
            {
                "op": op,
                "group": group,
                "ranks": len(ranks),
                "bytes": size,
                "count": len(times),
                "transfer_s": typical / PS_PER_SECOND,
                "busbw_gbs": _busbw(op, ranks, size, typical),
                "expected_s": None if expected is None else expected / PS_PER_SECOND,
                "expected_busbw_gbs": None
                if expected is None
                else _busbw(op, ranks, size, expected),
            }
        )
    return sorted(found, key=lambda row: -row["transfer_s"] * row["count"])


def _busbw(op: str, ranks: Sequence[int], size: int, time: int) -> float | None:
    return bus_factor(op, len(ranks)) * size / time * 1e3 if time > 0 else None  # bytes/ps = TB/s


def _predicted(
    op: str,
    ranks: tuple[int, ...],
    size: int,
    dtype: str,
    cluster: Cluster | None,
    library: Library | None,
) -> int | None:
    """Return the ps that the library takes on the idle cluster, None if it cannot say."""
    if cluster is None or library is None or max(ranks) >= cluster.world_size:
        return None
    rooted = op in ROOTED
    kind = "all_to_all" if op == "all_to_all_v" else op
    request = Request(kind, size, ranks, root=0 if rooted else -1, dtype=dtype)
    try:
        return plan_of(library_of(library, library.name), request, cluster).idle
    except CommsimError:
        return None


def late_table(found: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return `late` as rows of text; "~" marks figures that rest on inferred groups."""
    rows: list[tuple[str, ...]] = [
        ("rank", "waited", "overlap", "last to arrive", "made others wait", "latest in", "by")
    ]
    for row in found:
        latest = row["latest"]
        overlap = "–" if row["overlap"] is None else f"{row['overlap']:.0%}"
        unsure = "~" if row["inferred"] else ""
        rows.append(
            (
                str(row["rank"]),
                _time(row["wait_s"]),
                overlap,
                f"{row['last_arrivals']} times",
                unsure + _time(row["made_others_wait_s"]),
                f"#{latest['index']} {latest['op']}" if latest else "–",
                _time(latest["late_s"]) if latest else "–",
            )
        )
    return rows


def busbw_table(found: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return `busbw` as rows of text, those that took longest in all first."""
    expects = any(row["expected_s"] is not None for row in found)
    head: tuple[str, ...] = ("op", "ranks", "bytes", "count", "transfer", "busbw")
    rows = [(*head, "predicted", "measured/predicted") if expects else head]
    for row in found[:_ROWS]:
        speed = row["busbw_gbs"]
        cells: tuple[str, ...] = (
            row["op"], str(row["ranks"]), format_size(row["bytes"]), str(row["count"]),
            _time(row["transfer_s"]), f"{speed:.3g} GB/s" if speed else "–",
        )  # fmt: skip
        if expects:
            expected = row["expected_s"]
            share = f"{row['transfer_s'] / expected:.2f}x" if expected else "–"
            cells = (*cells, _time(expected) if expected else "–", share)
        rows.append(cells)
    return _and_more(rows, len(found))


def collective_table(trace: Trace) -> list[tuple[str, ...]]:
    """Return the collectives of the step that waited or moved longest, in the order they ran.

    "~" marks waits that rest on an inferred group.
    """
    found = list(enumerate(trace.collectives.of_step().rows))
    longest = sorted(found, key=lambda item: -max(*item[1].waits.values(), item[1].transfer))
    rows: list[tuple[str, ...]] = [
        ("#", "op", "group", "bytes", "transfer", "longest wait", "of rank", "last arriver")
    ]
    for index, row in sorted(longest[:_ROWS], key=lambda item: item[0]):
        rank, longest_wait = max(row.waits.items(), key=lambda item: item[1])
        size = format_size(row.size) if row.size >= 0 else "unknown"
        single, unsure = len(row.waits) < 2, "~" if row.inferred else ""
        rows.append(
            (
                str(index),
                row.op,
                row.group,
                size,
                format_time(row.transfer),
                "unknown" if single else unsure + format_time(longest_wait),
                "–" if single else str(rank),
                "unknown" if single else f"{unsure}{row.last_arriver}",
            )
        )
    return _and_more(rows, len(found))


def _and_more(rows: list[tuple[str, ...]], count: int) -> list[tuple[str, ...]]:
    """End a table that leaves rows out with their number."""
    if count > len(rows) - 1:
        rows.append((f"and {count - len(rows) + 1} more", *("",) * (len(rows[0]) - 1)))
    return rows


def _time(seconds: float) -> str:
    return format_time(seconds * PS_PER_SECOND)
