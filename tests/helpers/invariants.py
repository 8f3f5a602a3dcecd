"""
What must hold of any run: `broken(result)` says what does not, in a word and a sentence each.

The rules are physics and arithmetic alone: no figure of a model stands here.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import commsim as cs
from commsim.engine import Planner
from commsim.graph import OpKind
from commsim.libraries import Start
from commsim.metrics import PARTS, bound, critical_path, measured_window
from commsim.study.run.guard import in_network
from commsim.timeline import Timeline
from helpers.bytes_moved import lost_bytes
from helpers.link_use import ps_over

__all__ = ["Broken", "broken", "exports_differ", "numbers"]

Broken = tuple[str, str]
"""The rule, and how it is broken."""

_ROUNDED = 3  # ps by which both ends of a service are rounded
_RELATIVE = 1e-9
_NEVER = np.iinfo(np.int64).max


def broken(result: cs.Result) -> list[Broken]:
    """Return every rule that a run breaks."""
    timeline = result.timeline
    return [
        *_spans(timeline),
        *_arrivals(timeline),
        *_meetings(result),
        *_links(timeline),
        *_progress(timeline),
        *(("bytes", lost) for lost in lost_bytes(result)),
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


def _arrivals(timeline: Timeline) -> Iterator[Broken]:
    """An op arrives when its stream is free and all it depends on has ended: not before, nor later.

    What a rank issues as one batch arrives together, and what comes behind waits for all of it.
    """
    graph, many = timeline.graph, len(timeline.graph)
    end, arrive = np.zeros(many, np.int64), np.zeros(many, np.int64)
    end[timeline.op], arrive[timeline.op] = timeline.end, timeline.arrive
    order = np.lexsort((np.arange(many), graph.stream, graph.lane))
    lane, stream, batch = graph.lane[order], graph.stream[order], graph.batch[order]
    begins = (np.diff(lane) != 0) | (np.diff(stream) != 0)
    block = np.cumsum(np.append(0, begins | (np.diff(batch) != 0) | (batch[1:] < 0)))
    block_of = np.zeros(many, np.int64)
    block_of[order] = block
    free = np.zeros(many + 1, np.int64)  # per block: when what it waits for has ended
    np.maximum.at(free, block_of, graph.lane_offset[graph.lane])
    follows = np.flatnonzero(~begins)
    last = np.zeros(many + 1, np.int64)
    np.maximum.at(last, block_of, end)
    behind = block[follows + 1] > block[follows]
    np.maximum.at(free, block[follows + 1][behind], last[block[follows][behind]])
    target = np.repeat(np.arange(many), np.diff(graph.dep_ptr))
    np.maximum.at(free, block_of[target], end[graph.dep_op] + graph.dep_delay)
    wrong = np.flatnonzero(arrive != free[block_of])
    if len(wrong):
        op = int(wrong[0])
        due = int(free[block_of[op]])
        yield "arrival", f"{graph.describe(op)}: arrives at {arrive[op]} ps, not at {due}"


def _meetings(result: cs.Result) -> Iterator[Broken]:
    """A collective begins when its plan says so, and takes its bound at least, from when all that
    it waits for are there; its bytes move between the arrivals and ends of it."""
    timeline, graph = result.timeline, result.timeline.graph
    if not len(graph.collectives) or result.library is None:
        return
    planner, of = Planner(graph, result.cluster, result.library), graph.item[timeline.op]
    first, last = np.full(len(graph.collectives), _NEVER), np.full(len(graph.collectives), -1)
    begin, end = first.copy(), last.copy()
    mine = timeline.kind == OpKind.COLLECTIVE
    np.minimum.at(first, of[mine], timeline.arrive[mine])
    np.maximum.at(last, of[mine], timeline.arrive[mine])
    np.minimum.at(begin, of[mine], timeline.start[mine])
    np.maximum.at(end, of[mine], timeline.end[mine])
    for row in range(len(graph.collectives)):
        plan, needed = planner.collective(row), _bound(planner, row, result.cluster)
        waits = plan.start == Start.ALL and not plan.copies_in
        took = int(end[row] - (last if waits else first)[row])
        if took < needed * (1 - _RELATIVE) - _ROUNDED:
            yield "bound", f"{graph.collectives.kind[row]}: {took} ps of {needed:.0f} at least"
        if plan.copies_in:
            begin[row] = first[row]  # copies to the host are made while others are waited for
        elif plan.start == Start.ALL and begin[row] < last[row]:
            yield "meeting", f"{graph.collectives.kind[row]} begins before its last member arrives"
    links = timeline.links
    moves = np.flatnonzero(graph.kind[links.op] == OpKind.COLLECTIVE)
    rows = graph.item[links.op[moves]]
    outside = (links.start[moves] < begin[rows]) | (links.end[moves] > end[rows] + _ROUNDED)
    if outside.any():
        kind = graph.collectives.kind[int(rows[outside][0])]
        yield "meeting", f"bytes of {kind} move before or after it"


def _bound(planner: Planner, row: int, cluster: cs.Cluster | None) -> float:
    """Return the ps that a collective takes whatever its algorithm; 0 if none is known."""
    request, plan = planner.collective_request(row), planner.collective(row)
    if cluster is None or len(request.ranks) < 2 or request.recorded >= 0:
        return 0.0
    found = _bound_of(
        cluster,
        request.kind,
        request.size,
        request.ranks,
        in_network=in_network(plan.algorithm),
        root=max(request.root, 0),
        splits=request.splits,
        on_host=request.on_host or bool(plan.copies_in),
        every_set=False,
    )
    return found.seconds * 1e12


_bound_of = lru_cache(64)(bound)


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
