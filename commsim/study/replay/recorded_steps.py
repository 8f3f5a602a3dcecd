"""
The steps that a recording holds: how long each took on every rank, their mean, and outliers.

Every other figure of a replay is of one of them: the last of each rank.
"""

from __future__ import annotations

from statistics import mean, median
from typing import Any

from commsim.traces import Trace
from commsim.units import PS_PER_SECOND, format_time

__all__ = ["recorded_steps", "step_table"]

_OUTLIER = 0.2  # a step whose mean is this far from the median of all is named
_ROWS = 40


def recorded_steps(trace: Trace) -> list[dict[str, Any]]:
    """Return per step: its name, its mean and longest time over the ranks, and if it stands out."""
    times: dict[str, dict[int, int]] = {}
    for rank, steps in trace.steps.items():
        for name, time in steps:
            times.setdefault(name, {})[rank] = time
    means = {name: mean(of_ranks.values()) for name, of_ranks in times.items()}
    usual = median(means.values()) if means else 0
    found = []
    for name, of_ranks in times.items():
        slowest = max(of_ranks, key=lambda rank: (of_ranks[rank], -rank))
        found.append(
            {
                "step": name,
                "mean_s": means[name] / PS_PER_SECOND,
                "longest_s": of_ranks[slowest] / PS_PER_SECOND,
                "longest_rank": slowest,
                "outlier": len(times) > 2 and abs(means[name] - usual) > _OUTLIER * usual,
            }
        )
    return found


def step_table(found: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return `recorded_steps` as rows of text with their mean; nothing for a single step."""
    if len(found) < 2:
        return []
    rows: list[tuple[str, ...]] = [("step", "mean over ranks", "longest", "on rank", "")]
    for row in found[-_ROWS:]:
        rows.append(
            (
                row["step"],
                _time(row["mean_s"]),
                _time(row["longest_s"]),
                str(row["longest_rank"]),
                "outlier" if row["outlier"] else "",
            )
        )
    if len(found) > _ROWS:
        rows.append((f"and {len(found) - _ROWS} before", "", "", "", ""))
    rows.append(("mean", _time(mean(row["mean_s"] for row in found)), "", "", ""))
    return rows


def _time(seconds: float) -> str:
    return format_time(seconds * PS_PER_SECOND)
