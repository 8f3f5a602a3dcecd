"""
The messages of a measured run: what went from whom to whom, who was late, and the bubble.

A pipeline is taken to be recorded if messages join the ranks in one line and go both ways on
it: activations forth, gradients back.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from commsim.metrics import breakdown
from commsim.timeline import Timeline
from commsim.traces import MessageRow, Trace
from commsim.units import PS_PER_SECOND, format_size, format_time

__all__ = ["message_table", "pairs", "pipeline", "pipeline_table"]

_ROWS = 40


def pairs(trace: Trace) -> list[dict[str, Any]]:
    """Return the messages of the step per pair and direction, what waited longest first.

    `transfer_s` is the median; `source_wait_s` and `target_wait_s` are sums of what either end
    waited for the other; `source_late` and `target_late` say how often it came later.
    """
    together: dict[tuple[int, int], list[MessageRow]] = {}
    for row in trace.messages:
        if row.in_step:
            together.setdefault((row.source, row.target), []).append(row)
    found = []
    for (source, target), rows in together.items():
        transfer = median(row.transfer for row in rows)
        size = sum(row.size for row in rows)
        whole = sum(row.transfer for row in rows)
        found.append(
            {
                "source": source,
                "target": target,
                "count": len(rows),
                "bytes": size,
                "transfer_s": transfer / PS_PER_SECOND,
                "bandwidth_gbs": size / whole * 1e3 if whole > 0 and size > 0 else None,
                "source_wait_s": sum(row.waits[source] for row in rows) / PS_PER_SECOND,
                "target_wait_s": sum(row.waits[target] for row in rows) / PS_PER_SECOND,
                "source_late": sum(row.late == source for row in rows),
                "target_late": sum(row.late == target for row in rows),
            }
        )
    return sorted(found, key=lambda row: -(row["source_wait_s"] + row["target_wait_s"]))


def message_table(found: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return `pairs` as rows of text."""
    rows: list[tuple[str, ...]] = [
        (
            "from",
            "to",
            "count",
            "bytes",
            "transfer",
            "bandwidth",
            "sender waited",
            "receiver waited",
            "late: sender",
            "receiver",
        ),
    ]
    for row in found[:_ROWS]:
        speed = row["bandwidth_gbs"]
        rows.append(
            (
                str(row["source"]),
                str(row["target"]),
                str(row["count"]),
                format_size(row["bytes"]),
                _time(row["transfer_s"]),
                f"{speed:.3g} GB/s" if speed else "–",
                _time(row["source_wait_s"]),
                _time(row["target_wait_s"]),
                f"{row['source_late']} times",
                f"{row['target_late']} times",
            )
        )
    if len(found) > _ROWS:
        rows.append((f"and {len(found) - _ROWS} more", *("",) * (len(rows[0]) - 1)))
    return rows


def pipeline(trace: Trace, measured: Timeline) -> dict[str, Any] | None:
    """Return the bubble of a recorded pipeline, None if the messages are of no pipeline.

    The bubble fraction is 1 - (mean busy time of the stages)/(longest step); a rank is busy while
    it computes.
    """
    line = _line({(row.source, row.target) for row in trace.messages if row.in_step})
    if not line:
        return None
    parts = breakdown(measured)
    lanes = {rank: lane for lane, rank in enumerate(measured.graph.lane_rank.tolist())}
    span = max(int(parts.window[lanes[rank]]) for rank in line)
    stages = [
        {"rank": rank, "busy_s": int(parts.compute[lanes[rank]]) / PS_PER_SECOND} for rank in line
    ]
    busy = sum(int(parts.compute[lanes[rank]]) for rank in line)
    return {"stages": stages, "bubble_fraction": 1 - busy / (len(line) * span) if span else None}


def pipeline_table(found: dict[str, Any] | None) -> list[tuple[str, ...]]:
    """Return `pipeline` as rows of text, nothing if there is none."""
    if found is None or found["bubble_fraction"] is None:
        return []
    rows = [("stage", "rank", "busy")]
    rows += [
        (str(at), str(stage["rank"]), _time(stage["busy_s"]))
        for at, stage in enumerate(found["stages"])
    ]
    return [*rows, ("bubble", "", f"{found['bubble_fraction']:.1%}")]


def _line(ways: set[tuple[int, int]]) -> list[int]:
    """Return the ranks along the line that the messages go both ways on; [] for another shape."""
    if not ways or any((target, source) not in ways for source, target in ways):
        return []
    beside: dict[int, list[int]] = {}
    for source, target in sorted(ways):
        beside.setdefault(source, []).append(target)
    ends = [rank for rank, others in beside.items() if len(others) == 1]
    if len(ends) != 2 or max(map(len, beside.values())) > 2:
        return []
    line = [min(ends)]
    while following := [rank for rank in beside[line[-1]] if rank not in line]:
        line.append(following[0])
    return line if len(line) == len(beside) else []


def _time(seconds: float) -> str:
    return format_time(seconds * PS_PER_SECOND)
