"""
What must hold of any run: `broken(result)` says what does not, in a word and a sentence each.

The rules are physics and arithmetic alone: no figure of a model stands here.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import commsim as cs
from commsim.metrics import PARTS, critical_path, measured_window
from commsim.timeline import Timeline
from helpers.link_use import ps_over

__all__ = ["Broken", "broken", "exports_differ", "numbers"]

Broken = tuple[str, str]
"""The rule, and how it is broken."""

_ROUNDED = 3  # ps by which both ends of a service are rounded
_RELATIVE = 1e-9


def broken(result: cs.Result) -> list[Broken]:
    """Return every rule that a run breaks."""
    timeline = result.timeline
    return [
        *_spans(timeline),
        *_streams(timeline),
        *_causes(timeline),
        *_links(timeline),
        *_progress(timeline),
        *_account(result),
        *_path(result),
        *_numbers(result),
    ]


def _spans(timeline: Timeline) -> Iterator[Broken]:
    arrive, start, end = timeline.arrive, timeline.start, timeline.end
    if len(timeline) and arrive.min() < 0:
        yield "span", "a simulated span has no arrival"
    if not ((arrive <= start) & (start <= end)).all():
        at = int(np.flatnonzero((arrive > start) | (start > end))[0])
        yield "span", f"{timeline.graph.describe(int(timeline.op[at]))}: out of order"
    if sorted(timeline.op.tolist()) != list(range(len(timeline.graph))):
        yield "span", "not every op has run once"
    # Every member's bytes have left or come by the end of its collective: transfers lie inside.
    timed = timeline.graph.duration[timeline.op]
    worked = (timeline.kind == 0) & (timed >= 0)
    if ((end - start)[worked] < timed[worked]).any():
        yield "span", "an op took less than its own work"


def _streams(timeline: Timeline) -> Iterator[Broken]:
    """Ops of one stream of one lane come one after another, in the order of the graph."""
    graph = timeline.graph
    stream = graph.stream[timeline.op]
    order = np.lexsort((timeline.op, stream, timeline.lane))
    same = (np.diff(timeline.lane[order]) == 0) & (np.diff(stream[order]) == 0)
    early = same & (timeline.arrive[order][1:] < timeline.end[order][:-1])
    if early.any():
        op = int(timeline.op[order][1:][early][0])
        yield "stream", f"{graph.describe(op)}: arrives before its stream is free"


def _causes(timeline: Timeline) -> Iterator[Broken]:
    graph = timeline.graph
    target = np.repeat(np.arange(len(graph)), np.diff(graph.dep_ptr))
    end, arrive = np.zeros(len(graph), np.int64), np.zeros(len(graph), np.int64)
    end[timeline.op], arrive[timeline.op] = timeline.end, timeline.arrive
    early = arrive[target] < end[graph.dep_op] + graph.dep_delay
    if early.any():
        yield "dependency", f"{graph.describe(int(target[early][0]))}: before what it depends on"


def _links(timeline: Timeline) -> Iterator[Broken]:
    """No link carries more than it can over any stretch of time."""
    links = timeline.links
    carried = links.link_bytes() if len(links.names) else np.zeros(0)
    for link in np.flatnonzero(carried).tolist():
        if links.bandwidth[link] <= 0:
            yield "capacity", f"{links.names[link]}: bytes over a link without bandwidth"
            continue
        start, end, rate = links.segments(link)
        moving = end > start
        if not moving.any():
            continue
        over = ps_over(start[moving], end[moving], rate[moving], float(links.bandwidth[link]))
        whole = float(end.max() - start.min())
        if over > _ROUNDED + _RELATIVE * whole:
            yield "capacity", f"{links.names[link]}: {over:.0f} ps of {whole:.0f} too much"


def _progress(timeline: Timeline) -> Iterator[Broken]:
    """Each flow moves all of its bytes, once or a whole number of times."""
    links = timeline.links
    if not len(links.flow):
        return
    if (links.end < links.start).any() or (links.rate < 0).any():
        yield "bytes", "a flow goes backwards"
    if not np.isfinite(links.rate).all() or not np.isfinite(links.load_bytes).all():
        yield "bytes", "a rate is not finite"
    progress = (links.end - links.start) * links.rate
    moved = np.bincount(links.flow, weights=progress, minlength=len(links.load_ptr) - 1)
    # A service is rounded to whole picoseconds, a short one by more of itself.
    pieces = np.bincount(links.flow, minlength=len(moved))
    slack = np.bincount(links.flow, weights=links.rate, minlength=len(moved)) + 1e-6
    part = np.abs(moved - np.round(moved))
    wrong = (part > slack) & (pieces > 0)
    if wrong.any():
        yield "bytes", f"a flow moved {moved[wrong][0]:.6f} of itself"


def _account(result: cs.Result) -> Iterator[Broken]:
    timeline, metrics = result.timeline, result.metrics
    window = measured_window(timeline)
    length = {
        int(rank): float(end - begin) * 1e-12
        for rank, begin, end in zip(timeline.graph.lane_rank, window.begin, window.end, strict=True)
    }
    for times in metrics.ranks:
        parts = [getattr(times, f"{part}_s") for part in PARTS]
        if min(parts) < -1e-15:
            yield "account", f"rank {times.rank}: a negative part"
        if not math.isclose(sum(parts), length[times.rank], rel_tol=1e-9, abs_tol=1e-11):
            yield "account", f"rank {times.rank}: {sum(parts)} of {length[times.rank]} s"
        if times.comm_s > length[times.rank] * (1 + 1e-9) + 1e-11:
            yield "account", f"rank {times.rank}: bytes move for longer than its window"
    for one in metrics.collectives:
        if not -1e-15 <= one.wait_s <= one.time_s * (1 + 1e-9) + 1e-12:
            yield "wait", f"{one.op} on {one.group}: waits {one.wait_s} s of {one.time_s}"
        if not -1e-15 <= one.exposed_s <= one.time_s * (1 + 1e-9) + 1e-12:
            yield "wait", f"{one.op} on {one.group}: exposed {one.exposed_s} s of {one.time_s}"
    if metrics.bubble_fraction is not None and not 0 <= metrics.bubble_fraction <= 1:
        yield "bubble", f"{metrics.bubble_fraction}"
    for link in metrics.links:
        if not 0 <= link.utilization <= 1 + 1e-9:
            yield "utilization", f"{link.name}: {link.utilization}"


def _path(result: cs.Result) -> Iterator[Broken]:
    """The critical path is as long as the step, and no collective is below its bound."""
    timeline = result.timeline
    window = measured_window(timeline)
    path = critical_path(timeline, window=window)
    length = int((path.end - path.start).sum())
    if length > window.step_time:
        yield "path", f"{length} ps of a step of {window.step_time}"
    if (path.start[1:] < path.end[:-1]).any():
        yield "path", "its pieces overlap"
    for note in result.notes:
        if "TOO FAST" in note:
            yield "bound", note


def _numbers(result: cs.Result) -> Iterator[Broken]:
    for path, value in numbers(result.to_dict()):
        if not math.isfinite(value):
            yield "number", f"{path}: {value}"
        elif value < 0 and path.endswith("_s"):
            yield "number", f"{path}: {value} s"


def numbers(data: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Return every number of plain data, with where it stands."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from numbers(value, f"{path}.{key}")
    elif isinstance(data, list | tuple):
        for at, value in enumerate(data):
            yield from numbers(value, f"{path}[{at}]")
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path, data


def exports_differ(result: cs.Result, folder: Path) -> list[Broken]:
    """Return where the Perfetto trace, the tables and the JSON of a run tell other numbers."""
    from commsim.export import write_chrome, write_csv

    timeline = result.timeline
    found: list[Broken] = []
    result.save_json(folder / "run.json")
    told = json.loads((folder / "run.json").read_bytes())
    write_chrome(timeline, folder / "trace.json")
    events = json.loads((folder / "trace.json").read_bytes())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    if any(event["dur"] < 0 for event in slices):
        found.append(("export", "a slice of the trace has a negative duration"))
    last = max((event["ts"] + event["dur"] for event in slices), default=0.0)
    if not math.isclose(last, timeline.end_time * 1e-6, rel_tol=1e-9, abs_tol=2e-6):
        found.append(("export", f"the trace ends at {last} us, the run at {timeline.end_time} ps"))
    write_csv(timeline, told, folder / "csv")
    with (folder / "csv" / "spans.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if len(rows) != len(timeline):
        found.append(("export", f"{len(rows)} rows of {len(timeline)} spans"))
    return found
