"""
The scene of a Gantt chart: rows, and boxes on rows, before it is drawn.

    rank 0   ████ 0 ████ 1 ████        one compute row per lane, rank 0 on top
             ░░░░▒▒▒▒▒▒                 and, if lanes communicate, thinner rows below it
    rank 1   ...

`gantt` (plotly) and `gantt_svg` draw the same scene. Times are picoseconds.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.charts.theme import FAMILIES, family_of, shorten
from commsim.graph import Device, Graph, OpKind, Phase
from commsim.metrics import OneAxis
from commsim.timeline import Timeline
from commsim.units import format_time

__all__ = [
    "MAX_BOXES",
    "MAX_LANES",
    "Boxes",
    "Scene",
    "SceneRow",
    "below_compute",
    "drawn_spans",
    "families",
    "scene",
    "strengths",
]


MAX_BOXES = 5_000  # what a browser draws as plotly boxes without a pause
MAX_LANES = 64  # more rows than this are not legible on a page
_PIXELS = 1_290  # of the time axis, on the pages that are usual
_LIGHTEST = 0.6  # strength of the last virtual stage's colour
_LOOKS_LONGER = 0.02  # of a row: more than this may not be painted beyond what was busy
_SUB_ROWS = 3
_LONGEST_NAME = 14  # letters of a thin row's name
_COMPUTE_HEIGHT, _SUB_HEIGHT, _SUB_GAP, _LANE_GAP = 1.0, 0.42, 0.06, 0.16


class SceneRow(msgspec.Struct, frozen=True):
    """One strip of the picture; `top` and `height` in rows of compute, downwards from 0."""

    lane: int
    label: str
    top: float
    height: float
    compute: bool


class Boxes(msgspec.Struct, frozen=True, eq=False):
    """Boxes as columns: position in `Scene.rows` and in FAMILIES, waiting or not, start and end.

    `span` is the span of the timeline, or -1 for a box that stands for `count` short ones.
    """

    row: Ints
    family: Ints
    waits: Bools
    start: Ints
    end: Ints
    span: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.row)

    def columns(self) -> tuple[Any, ...]:
        """Return the arrays in the order of the fields."""
        return tuple(getattr(self, column) for column in self.__struct_fields__)

    def lists(self) -> tuple[list[Any], ...]:
        """Return the columns as lists, to walk over box by box."""
        return tuple(column.tolist() for column in self.columns())

    def take(self, chosen: Ints | Bools) -> Boxes:
        """Return the chosen boxes, in that order."""
        return Boxes(*(column[chosen] for column in self.columns()))


class Scene(msgspec.Struct, frozen=True, eq=False):
    """Everything a Gantt draws. `by_stage`: rows are pipeline stages, one lane each; one that holds
    several virtual stages is named by its first.

    `notes` say what is not drawn one to one.
    """

    rows: tuple[SceneRow, ...]
    boxes: Boxes
    begin: int
    end: int
    by_stage: bool
    notes: tuple[str, ...]

    @property
    def depth(self) -> float:
        """The height of all rows together."""
        return self.rows[-1].top + self.rows[-1].height if self.rows else _COMPUTE_HEIGHT


def scene(timeline: Timeline, *, max_boxes: int = MAX_BOXES) -> Scene:
    """Lay out the Gantt of `timeline`, at most about `max_boxes` boxes on MAX_LANES lanes.

    Where some lane computes on a GPU, work of CPU threads is left out.
    """
    graph = timeline.graph
    lanes, notes = _chosen_lanes(graph)
    spans = drawn_spans(timeline, lanes)
    begin = int(timeline.arrive[spans].min()) if spans.size else 0
    end = int(timeline.end[spans].max()) if spans.size else 1
    below = below_compute(timeline, spans)
    sub_row, sub_rows = _sub_rows(timeline, spans[below])
    names = _stream_names(timeline, spans[below], sub_row, sub_rows)
    rows, by_stage = _rows(graph, lanes, names)
    position = np.full(len(graph.lane_rank), -1, np.int64)
    position[lanes] = np.arange(len(lanes)) * (1 + sub_rows)
    row = position[timeline.lane[spans]]
    row[below] += 1 + sub_row
    boxes = _boxes(timeline, spans, row)
    boxes, tick = _thin(boxes, begin, end, max_boxes)
    if tick:
        notes = (*notes, f"spans under {format_time(tick)} drawn together")
    return Scene(rows, boxes, begin, max(end, begin + 1), by_stage, notes)


def _chosen_lanes(graph: Graph) -> tuple[Ints, tuple[str, ...]]:
    """Return the lanes to draw, by rank; evenly spread ones if there are too many."""
    lanes = np.argsort(graph.lane_rank, kind="stable").astype(np.int64)
    if len(lanes) <= MAX_LANES:
        return lanes, ()
    picked = np.linspace(0, len(lanes) - 1, MAX_LANES).round().astype(np.int64)
    return lanes[picked], (f"{MAX_LANES} of {len(lanes):,} ranks shown",)


def drawn_spans(timeline: Timeline, lanes: Ints) -> Ints:
    graph, op = timeline.graph, timeline.op
    wanted = np.zeros(len(graph.lane_rank), np.bool_)
    wanted[lanes] = True
    computes = graph.kind[op] == OpKind.COMPUTE
    on_cpu = computes & (graph.device[op] == Device.CPU)
    keep = wanted[graph.lane[op]]
    if np.any(computes & ~on_cpu):
        keep &= ~on_cpu
    return np.flatnonzero(keep)


def strengths(timeline: Timeline, boxes: Boxes) -> Floats:
    """Return how strong each box's colour is: less for each further virtual stage of a device."""
    graph = timeline.graph
    stage = graph.stage[timeline.op[np.maximum(boxes.span, 0)]]
    devices = len(np.unique(graph.lane[graph.stage >= 0])) or 1
    virtual = -(-(int(graph.stage.max(initial=0)) + 1) // devices)
    shown = (boxes.span >= 0) & (stage >= 0) & (virtual > 1)
    return np.where(shown, 1 - (1 - _LIGHTEST) * (stage // devices) / max(virtual - 1, 1), 1.0)


def below_compute(timeline: Timeline, spans: Ints) -> Bools:
    """Return which spans belong under the compute row.

    Communication does, and copies that have a stream of their own: a copy between two kernels
    of one stream is part of that stream's work.
    """
    graph, op = timeline.graph, timeline.op[spans]
    computing = np.zeros(len(graph.streams), np.bool_)
    computing[graph.stream[op[graph.kind[op] == OpKind.COMPUTE]]] = True
    apart = (graph.kind[op] == OpKind.COPY) & ~computing[graph.stream[op]]
    return np.asarray(timeline.communicates[spans] | apart)


def _sub_rows(timeline: Timeline, spans: Ints) -> tuple[Ints, int]:
    """Give each stream the first row below on which it overlaps nothing; the last takes the rest.

    Returns the row of each span and the number of rows.
    """
    streams = timeline.graph.stream[timeline.op[spans]]
    chosen = np.zeros(len(spans), np.int64)
    rows: list[Ints] = []
    for stream in np.unique(streams).tolist():
        mine = np.flatnonzero(streams == stream)
        fits = (k for k, row in enumerate(rows) if not _collide(timeline, spans[row], spans[mine]))
        at = next(fits, min(len(rows), _SUB_ROWS - 1))
        if at == len(rows):
            rows.append(mine)
        else:
            rows[at] = np.concatenate((rows[at], mine))
        chosen[mine] = at
    return chosen, len(rows)


def _collide(timeline: Timeline, first: Ints, second: Ints) -> bool:
    """Whether spans of two sets overlap on some lane (beyond what each set does by itself)."""
    both = _overlaps(timeline, np.concatenate((first, second)))
    return both > _overlaps(timeline, first) + _overlaps(timeline, second)


def _overlaps(timeline: Timeline, spans: Ints) -> int:
    """Count the spans that begin before an earlier one on their lane has ended."""
    lane, arrive, end = timeline.lane[spans], timeline.arrive[spans], timeline.end[spans]
    order = np.lexsort((end, arrive, lane))
    lane, arrive, end = lane[order], arrive[order], end[order]
    far = int(end.max()) + 1 if end.size else 1
    latest = np.maximum.accumulate(end + lane * far) - lane * far
    return int(np.sum((arrive[1:] < latest[:-1]) & (lane[1:] == lane[:-1])))


def _stream_names(timeline: Timeline, spans: Ints, sub_row: Ints, rows: int) -> list[str]:
    """Name the rows below compute by the streams that they show."""
    streams = timeline.graph.stream[timeline.op[spans]]
    names = timeline.graph.streams
    listed = [
        [names[s] for s in np.unique(streams[sub_row == row]).tolist()] for row in range(rows)
    ]
    return [shorten(", ".join(one), _LONGEST_NAME) for one in listed]


def _rows(graph: Graph, lanes: Ints, sub_rows: list[str]) -> tuple[tuple[SceneRow, ...], bool]:
    stages = _stages(graph, lanes)
    rows: list[SceneRow] = []
    top = 0.0
    for index, lane in enumerate(lanes.tolist()):
        rows.append(SceneRow(lane, _label(graph, lane, stages, index), top, _COMPUTE_HEIGHT, True))
        top += _COMPUTE_HEIGHT
        for name in sub_rows:
            rows.append(SceneRow(lane, name, top + _SUB_GAP, _SUB_HEIGHT, False))
            top += _SUB_GAP + _SUB_HEIGHT
        top += _LANE_GAP
    return tuple(rows), stages is not None


def _stages(graph: Graph, lanes: Ints) -> list[int] | None:
    """Return the first stage of each lane if no two lanes share one and all hold as many."""
    tagged = graph.stage >= 0
    held = np.unique(np.stack((graph.lane[tagged], graph.stage[tagged]), axis=1), axis=0)
    lane, first, count = np.unique(held[:, 0], return_index=True, return_counts=True)
    alone = len(np.unique(held[:, 1])) == len(held)
    if len(lanes) < 2 or not alone or len(set(count.tolist())) != 1 or len(lane) != len(lanes):
        return None
    return [int(held[at, 1]) for at in first[np.searchsorted(lane, lanes)].tolist()]


def _label(graph: Graph, lane: int, stages: list[int] | None, index: int) -> str:
    if stages is not None:
        return str(stages[index])
    count = int(graph.multiplicity[lane])
    return f"rank {graph.lane_rank[lane]}" + (f" ×{count}" if count > 1 else "")


def _boxes(timeline: Timeline, spans: Ints, row: Ints) -> Boxes:
    """Return what moves or works, then what waits; nothing if a box would have no width."""
    family = families(timeline.graph)[timeline.op[spans]]
    arrive, start, end = timeline.arrive[spans], timeline.start[spans], timeline.end[spans]
    works = np.flatnonzero(end > start)
    waits = np.flatnonzero(timeline.communicates[spans] & (start > arrive))
    which = np.concatenate((works, waits))
    return Boxes(
        row=row[which],
        family=family[which],
        waits=np.repeat([False, True], [len(works), len(waits)]),
        start=np.concatenate((start[works], arrive[waits])),
        end=np.concatenate((end[works], start[waits])),
        span=spans[which],
        count=np.ones(len(which), np.int64),
    )


def families(graph: Graph) -> Ints:
    """Return the family of every op."""
    table = np.array(
        [[family_of(kind, phase, "") for phase in Phase] for kind in OpKind], dtype=np.int64
    )
    families = table[graph.kind, graph.phase]
    if len(graph.collectives):
        of_row = np.array(
            [family_of(OpKind.COLLECTIVE, Phase.NONE, kind) for kind in graph.collectives.kind],
            dtype=np.int64,
        )
        ops = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
        families[ops] = of_row[graph.item[ops]]
    return families


def _thin(boxes: Boxes, begin: int, end: int, limit: int) -> tuple[Boxes, int]:
    """Draw short neighbours together if each by itself would look longer than it is.

    A box is at least a pixel wide on a screen. In a row of many shorter ones that would paint more
    than was busy; so there they become fewer boxes that are as long as they are together. The
    same is done, with longer and longer spans, until at most `limit` boxes are left.
    Returns the boxes and the length in ps below which spans were drawn together (0: none).
    """
    tick = max(1, (end - begin) // _PIXELS)
    thin, some = _together(boxes, tick, _crowded(boxes, tick, _LOOKS_LONGER * (end - begin)))
    every = np.ones(int(boxes.row.max(initial=0)) + 1, dtype=np.bool_)
    used = tick if some else 0
    while len(thin) > limit and used <= end - begin:
        thin, _ = _together(boxes, tick, every)
        used, tick = tick, 2 * tick
    return thin, used


def _crowded(boxes: Boxes, tick: int, excess: float) -> Bools:
    """Return the rows whose boxes, each at least `tick`, are longer than they are by `excess`."""
    more = np.maximum(tick - (boxes.end - boxes.start), 0)
    rows = int(boxes.row.max(initial=0)) + 1
    crowded: Bools = np.bincount(boxes.row, weights=more, minlength=rows) > excess
    return crowded


def _together(boxes: Boxes, tick: int, rows: Bools) -> tuple[Boxes, bool]:
    """Put boxes shorter than `tick` in the flagged rows into boxes of about `tick`.

    One gathers neighbours until they are that long together, none across a longer box, which it
    would lie on. It is as long as they are, so that busy time stays, and has the looks of whatever
    takes most of it.
    """
    length = boxes.end - boxes.start
    short = (length < tick) & rows[boxes.row]
    if not short.any():
        return boxes, False
    few, long = boxes.take(short), boxes.take(~short)
    few = few.take(np.lexsort((few.start, few.row)))
    length = few.end - few.start
    through = np.cumsum(length)
    row_start = np.searchsorted(few.row, few.row)
    before = np.where(row_start > 0, through[np.maximum(row_start - 1, 0)], 0)
    cell = (through - length - before) // tick
    cell += _longer_before(few, long)
    _, first, group = np.unique(
        few.row * (int(cell.max(initial=0)) + 1) + cell, return_index=True, return_inverse=True
    )
    groups = len(first)
    looks = few.family + len(FAMILIES) * few.waits
    busy = np.zeros((groups, 2 * len(FAMILIES)), np.int64)
    np.add.at(busy, (group, looks), length)
    look = np.argmax(busy, axis=1)
    count = np.bincount(group, minlength=groups)
    merged = Boxes(
        row=few.row[first],
        family=look % len(FAMILIES),
        waits=look >= len(FAMILIES),
        start=few.start[first],
        end=few.start[first] + busy.sum(axis=1),
        span=np.where(count == 1, few.span[first], -1),
        count=count.astype(np.int64),
    )
    pairs = zip(long.columns(), merged.columns(), strict=True)
    return Boxes(*(np.concatenate(pair) for pair in pairs)), True


def _longer_before(few: Boxes, long: Boxes) -> Ints:
    """Return how many of `long` begin in a box's row before it does."""
    axis = OneAxis.of([few.row, long.row], [few.start, long.start])
    begins = np.sort(axis.at(long.row, long.start))
    before = np.searchsorted(begins, axis.at(few.row, few.start))
    found: Ints = before - np.searchsorted(begins, few.row * axis.span)
    return found
