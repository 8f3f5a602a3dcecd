"""
Replay a recorded run: on paper with the recorded transfers, or on a cluster by a library.

The replay derives every wait anew; how far it is from the measured run is part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.libraries import Library, LibrarySection, Recorded, for_groups, make_library
from commsim.metrics import Metrics, measure
from commsim.metrics.window import measured_window
from commsim.study.result import Result
from commsim.timeline import Timeline
from commsim.traces import Trace, load_trace
from commsim.units import PS_PER_SECOND, format_size, format_time

__all__ = ["Replay", "replay"]

_TRUSTED = 0.05  # a self-check above this makes what-ifs doubtful


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay beside what was measured; `collectives` and `ranks` are tables for people."""

    trace: Trace
    result: Result
    measured: Metrics
    collectives: list[tuple[str, ...]]
    ranks: list[tuple[str, ...]]

    def __repr__(self) -> str:
        return f"Replay({self.trace!r}, {self.result!r})"


def replay(
    paths: str | Path | Sequence[str | Path],
    *,
    cluster: Cluster | None = None,
    comm: str = "recorded",
    library: Library | None = None,
) -> Replay:
    """Load traces (a folder, a file or several) and run them again.

    `comm="recorded"` takes each collective's measured transfer time; `comm="modelled"` asks
    `library` (by default the one that people run there) what it takes on `cluster`.

    Raises:
        TraceError: the traces cannot be read, or lack what replay needs.
        ScenarioError: modelled communication without a cluster.
    """
    if comm not in ("recorded", "modelled"):
        raise ScenarioError(f"--comm {comm}: give recorded or modelled.")
    if comm == "modelled" and cluster is None:
        raise ScenarioError("--comm modelled needs a cluster to send over: add --cluster.")
    trace = load_trace([Path(path) for path in _listed(paths)])
    graph, measured = trace.graph(), trace.timeline()
    if comm == "recorded":
        rules: Library = Recorded()
    else:
        rules = for_groups(library or make_library(LibrarySection(), cluster), graph)
    # What was measured beside communication has been slowed down by it already.
    where = None if comm == "recorded" else cluster
    timeline = simulate(graph, where, library=rules, overlap_slowdown=False)
    before, after = measure(measured), measure(timeline)
    errors = _errors(measured, timeline)
    notes = [*trace.notes, *timeline.notes, f"communication: {comm}."]
    worst = max((abs(rank["step_time"]) for rank in errors["ranks"]), default=0.0)
    if worst > _TRUSTED:
        notes.append(
            f"the replay misses a rank's measured step by {worst:.1%}: do not trust what-ifs."
        )
    name = ", ".join(str(path) for path in _listed(paths))
    result = Result(
        name, timeline, after, tuple(dict.fromkeys(notes)),
        extra={"measured": before.to_dict(), "error": errors},
        cluster=where, library=rules, measured=(measured, before),
    )  # fmt: skip
    return Replay(trace, result, before, _collectives(trace), _ranks(measured, timeline))


def _listed(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _steps(timeline: Timeline) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each lane's own profiled step in ps."""
    window = measured_window(timeline)
    return window.end - window.begin


def _errors(measured: Timeline, replayed: Timeline) -> dict[str, Any]:
    """Return signed relative errors, (replayed - measured) / measured.

    Per rank: its step, and its wait in all collectives together (null where it waited less than
    1 us). `waits` describes the waits of every rank in every collective: the median of their
    absolute errors, relative and in seconds.
    """
    before, after = _steps(measured), _steps(replayed)
    comm = np.flatnonzero(measured.communicates)
    was = (measured.start - measured.arrive)[comm]
    now = (replayed.start - replayed.arrive)[comm]
    lane = measured.lane[comm]
    ranks = []
    for at, rank in enumerate(measured.graph.lane_rank.tolist()):
        mine = lane == at
        ranks.append({
            "rank": rank,
            "step_time": _relative(int(after[at]), int(before[at])),
            "wait": _relative(int(now[mine].sum()), int(was[mine].sum())),
        })  # fmt: skip
    return {
        "step_time": _relative(int(after.max()), int(before.max())),
        "ranks": ranks,
        "waits": _wait_errors(was, now),
    }


def _wait_errors(
    was: np.ndarray[Any, np.dtype[np.int64]], now: np.ndarray[Any, np.dtype[np.int64]]
) -> dict[str, Any] | None:
    if not was.size:
        return None
    off = np.abs(now - was)
    waited = was > 1_000_000  # 1 us: a share of less says nothing
    return {
        "count": int(was.size),
        "median_abs_s": float(np.median(off)) / PS_PER_SECOND,
        "max_abs_s": float(off.max()) / PS_PER_SECOND,
        "median_abs": float(np.median(off[waited] / was[waited])) if waited.any() else None,
    }


def _relative(now: int, was: int) -> float | None:
    return (now - was) / was if was > 1_000_000 else None


def _collectives(trace: Trace) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("op", "bytes", "transfer", "longest wait", "of rank", "last arriver")
    ]
    for row in trace.collectives.rows:
        rank, longest = max(row.waits.items(), key=lambda item: item[1])
        size = format_size(row.size) if row.size >= 0 else "unknown"
        rows.append((
            row.op, size, format_time(row.transfer), format_time(longest), str(rank),
            str(row.last_arriver),
        ))  # fmt: skip
    return rows


def _ranks(measured: Timeline, replayed: Timeline) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("rank", "measured step", "replayed", "error")]
    columns = (measured.graph.lane_rank.tolist(), _steps(measured).tolist(),
               _steps(replayed).tolist())  # fmt: skip
    for rank, before, after in zip(*columns, strict=True):
        error = _relative(after, before)
        shown = "–" if error is None else f"{error:+.2%}"
        rows.append((str(rank), format_time(before), format_time(after), shown))
    return rows
