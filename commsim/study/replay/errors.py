"""
How far a replay is from what was measured: per rank, in steps and in waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from commsim.arrays import Ints
from commsim.metrics import measured_window
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND, format_time

__all__ = ["errors", "rank_table", "relative", "steps", "worst"]

_LEAST = 1_000_000  # ps: a share of less than 1 us says nothing


def steps(timeline: Timeline) -> Ints:
    """Return each lane's own profiled step in ps."""
    window = measured_window(timeline)
    return window.end - window.begin


def errors(measured: Timeline, replayed: Timeline) -> dict[str, Any]:
    """Return signed relative errors, (replayed - measured) / measured.

    Per rank: its step, and its wait in all communication of it together (null if it waited less
    than 1 us). `waits` describes the waits of every rank in every collective and message that
    ended in its step: the median of their absolute errors, relative and in seconds.
    """
    before, after = steps(measured), steps(replayed)
    window, at = measured_window(measured), measured.lane
    inside = (window.begin[at] <= measured.end) & (measured.end <= window.end[at])
    comm = np.flatnonzero(measured.communicates & inside)
    was = (measured.start - measured.arrive)[comm]
    now = (replayed.start - replayed.arrive)[comm]
    lane = measured.lane[comm]
    ranks = []
    for number, rank in enumerate(measured.graph.lane_rank.tolist()):
        mine = lane == number
        ranks.append(
            {
                "rank": rank,
                "step_time": relative(int(after[number]), int(before[number])),
                "wait": relative(int(now[mine].sum()), int(was[mine].sum())),
            }
        )
    return {
        "step_time": relative(int(after.max()), int(before.max())),
        "ranks": ranks,
        "waits": _wait_errors(was, now),
    }


def _wait_errors(was: Ints, now: Ints) -> dict[str, Any] | None:
    if not was.size:
        return None
    off = np.abs(now - was)
    waited = was > _LEAST
    return {
        "count": int(was.size),
        "median_abs_s": float(np.median(off)) / PS_PER_SECOND,
        "max_abs_s": float(off.max()) / PS_PER_SECOND,
        "median_abs": float(np.median(off[waited] / was[waited])) if waited.any() else None,
    }


def relative(now: int, was: int) -> float | None:
    """Return (now - was) / was; None if `was` is too little to say."""
    return (now - was) / was if was > _LEAST else None


def worst(found: dict[str, Any]) -> float:
    """Return the largest error of a rank's step, as a fraction."""
    return max((abs(rank["step_time"] or 0.0) for rank in found["ranks"]), default=0.0)


def rank_table(
    measured: Timeline, recorded: Timeline, other: Timeline | None, *, what: str
) -> list[tuple[str, ...]]:
    """Return a row per rank: its measured step, its replay, and `what` else was replayed."""
    head: tuple[str, ...] = ("rank", "measured step", "replayed", "error")
    if other is not None:
        head = (*head, what, "error" if what == "modelled" else "change")
    rows = [head]
    before, again = steps(measured).tolist(), steps(recorded).tolist()
    changed = steps(other).tolist() if other is not None else before
    for lane, rank in enumerate(measured.graph.lane_rank.tolist()):
        row = (str(rank), format_time(before[lane]), *_pair(again[lane], before[lane]))
        rows.append((*row, *_pair(changed[lane], before[lane])) if other is not None else row)
    return rows


def _pair(after: int, before: int) -> tuple[str, str]:
    error = relative(after, before)
    return format_time(after), "–" if error is None else f"{error:+.2%}"
