"""
The viewer's data: tables of words, and columns of integers over spans.

    begin   start of the box (arrival, if it waits) minus that of the box before on its row
    wait, length   of the box; its end is begin + wait + length
    what    row of the table of meanings        size   row of the table of sizes
    microbatch, instance   plus one, 0 for none
    launch  place plus one of the span of the host that launched it, 0 for none; minus that of the
            span before (modulo 2**32); only if there are rows of hosts

Times are in ticks: a power of ten picoseconds, fine enough for one part in 4e9 of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.charts.gantt import families
from commsim.charts.report.columns import blob, column
from commsim.charts.report.joined import join_short
from commsim.charts.report.lanes import lane_places
from commsim.charts.report.rows import PlacedSpans, launchers, on_host, place_spans
from commsim.charts.theme import HOST, plain, shorten
from commsim.graph import Graph, OpKind
from commsim.metrics import arrivals, critical_path, measured_window, op_label
from commsim.ops import bus_factor
from commsim.timeline import Timeline

__all__ = ["ShownRun", "pack", "pack_small", "span_count"]


_FAR = 2**62
_DENSE = 8  # numbers per entry up to which a table of them is faster than sorting
_NAME = 160  # letters of a name that the viewer keeps


class ShownRun(msgspec.Struct, frozen=True):
    """A timeline to show, under a label ("measured"); `node_of` is the node of each rank.

    `lanes`: show these alone (None: all). Spans below `stretch` picoseconds are joined to their
    neighbours (0: none), and the critical path is left out then.
    """

    label: str
    timeline: Timeline
    node_of: Ints | None = None
    lanes: Ints | None = None
    stretch: int = 0


class _PackedTables(msgspec.Struct):
    """What grows from run to run: words, meanings, sizes, rows, and how many instances."""

    words: dict[str, int] = msgspec.field(default_factory=dict)
    meanings: dict[tuple[Any, ...], int] = msgspec.field(default_factory=dict)
    sizes: dict[int, int] = msgspec.field(default_factory=dict)
    lanes: list[dict[str, Any]] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)
    paths: list[list[int]] = msgspec.field(default_factory=list)
    instances: int = 0

    def word(self, text: str) -> int:
        return self.words.setdefault(shorten(plain(text), _NAME), len(self.words))


def span_count(runs: Sequence[ShownRun]) -> int:
    """Return how many boxes the viewer would show of `runs`."""
    return sum(len(_placed(run).spans) for run in runs)


def _placed(run: ShownRun) -> PlacedSpans:
    """Return `place_spans` of the lanes that are shown."""
    placed = place_spans(run.timeline)
    if run.lanes is None:
        return placed
    shown = np.isin(run.timeline.lane[placed.spans], run.lanes)
    return replace(placed, spans=placed.spans[shown], row=placed.row[shown])


def pack(runs: Sequence[ShownRun]) -> tuple[dict[str, Any], Iterator[str]]:
    """Return the tables of the viewer as plain data, and the elements of its columns.

    All runs are on one time axis, each from its own first span.
    """
    facts, parts = _packed(runs)
    return facts, _elements(parts)


def _packed(runs: Sequence[ShownRun]) -> tuple[dict[str, Any], list[dict[str, Ints]]]:
    tables = _PackedTables()
    placed = [_placed(run) for run in runs]
    limits = [_limits(run.timeline, one.spans) for run, one in zip(runs, placed, strict=True)]
    launched = any(one.hosts for one in placed)
    reach = max((end - begin for begin, end in limits), default=1)
    tick = _tick(reach)
    parts = [
        _columns(run, index, tables, placed.pop(0), begin, tick, launched=launched)
        for index, (run, (begin, _)) in enumerate(zip(runs, limits, strict=True))
    ]
    facts = {
        "tick": tick,
        "reach": max(1, -(-reach // tick)),
        "spans": sum(tables.counts),
        "runs": [plain(run.label) for run in runs],
        "steps": [
            _step(run.timeline, begin, tick) for run, (begin, _) in zip(runs, limits, strict=True)
        ],
        "lanes": tables.lanes,
        "counts": tables.counts,
        "words": list(tables.words),
        "meanings": list(tables.meanings),
        "sizes": list(tables.sizes),
        "instances": tables.instances,
        "paths": tables.paths,
    }
    return facts, parts


def pack_small(runs: Sequence[ShownRun]) -> bytes:
    """Return the same as one deflated piece, as `columns.blob` lays it out."""
    facts, parts = _packed(runs)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return blob(facts, columns)


def _elements(parts: list[dict[str, Ints]]) -> Iterator[str]:
    for name in list(parts[0]) if parts else ():
        whole = np.concatenate([part.pop(name) for part in parts])
        if name == "launch":  # differences pack well; they wrap round
            whole = np.diff(whole, prepend=np.zeros(1, whole.dtype))
        yield from column(name, whole)


def _limits(timeline: Timeline, spans: Ints) -> tuple[int, int]:
    if not len(spans):
        return 0, 1
    begin = int(arrivals(timeline)[spans].min())
    return begin, max(begin + 1, int(timeline.end[spans].max()))


def _tick(reach: int) -> int:
    tick = 1
    while reach // tick >= 2**32:
        tick *= 10
    return tick


def _step(timeline: Timeline, begin: int, tick: int) -> list[float] | None:
    """Return the measured training step in ticks, None if all of the run counts."""
    window = measured_window(timeline)
    if window.step < 0:
        return None
    return [(window.first - begin) / tick, (window.last - begin) / tick]


def _columns(
    run: ShownRun,
    index: int,
    tables: _PackedTables,
    placed: PlacedSpans,
    zero: int,
    tick: int,
    *,
    launched: bool,
) -> dict[str, Ints]:
    """Return the columns of one run and the spans of its critical path, and note its lanes."""
    timeline, graph = run.timeline, run.timeline.graph
    spans, row, per_lane = placed.spans, placed.row, placed.per_lane
    first = sum(tables.counts)
    begin = (arrivals(timeline)[spans] - zero) // tick
    start = (np.maximum(timeline.start[spans] - zero, 0)) // tick
    end = (timeline.end[spans] - zero) // tick
    columns = dict(
        zip(("begin", "wait", "length"), (begin, start - begin, end - start), strict=True)
    )
    del begin, start, end
    op = timeline.op[spans]
    columns["what"], columns["size"] = _meanings(timeline, op, tables)
    columns["microbatch"] = np.where(graph.kind[op] == OpKind.COMPUTE, graph.microbatch[op], -1) + 1
    columns["instance"] = _instances(timeline, op, tables)
    if run.stretch:
        columns, row = join_short(columns, row, max(1, run.stretch // tick))
    elif launched:
        columns["launch"] = _launches(timeline, spans, first)
    counts = np.bincount(row, minlength=per_lane * len(graph.lane_rank))
    columns["begin"] = _gaps(columns["begin"], row)
    for name, values in columns.items():
        columns[name] = values.astype(np.uint32)  # ticks fit, and halve the memory
    if not run.stretch:
        tables.paths.append((first + _on_path(timeline, spans)).tolist())
    _note_lanes(run, index, tables, placed, counts)
    return columns


def _launches(timeline: Timeline, spans: Ints, first: int) -> Ints:
    """Return the place plus one of what launched each span, 0 for none."""
    place = np.full(len(timeline.graph), -1, np.int64)
    place[timeline.op[spans]] = np.arange(len(spans))
    by = launchers(timeline)[timeline.op[spans]]
    found = np.where(by >= 0, place[by], -1)
    launch = np.where(found >= 0, first + found + 1, 0)
    return launch


def _gaps(begin: Ints, row: Ints) -> Ints:
    gaps = begin.copy()
    same = row[1:] == row[:-1]
    gaps[1:][same] -= begin[:-1][same]
    return gaps


def _on_path(timeline: Timeline, spans: Ints) -> Ints:
    """Return the places in `spans` of what the critical path goes through, in order of time."""
    place = np.full(len(timeline), -1, np.int64)
    place[spans] = np.arange(len(spans))
    chain = critical_path(timeline)
    moving = np.array([kind != "delay" for kind in chain.kind], dtype=np.bool_)
    found = place[chain.span[moving]]
    return found[found >= 0]


def _meanings(timeline: Timeline, op: Ints, tables: _PackedTables) -> tuple[Ints, Ints]:
    """Return the rows of each op in the tables of meanings and of sizes."""
    sizes, size = np.unique(timeline.graph.size[op], return_inverse=True)
    table = [tables.sizes.setdefault(one, len(tables.sizes)) for one in sizes.tolist()]
    example, row = _distinct(_parts(timeline, op))
    columns = zip(*(part.tolist() for part in _parts(timeline, op[example])), strict=True)
    kinds, texts = _kinds(timeline), _choices(timeline)
    rows = [_meaning(timeline.graph, tables, kinds, texts, *values) for values in columns]
    place = [tables.meanings.setdefault(one, len(tables.meanings)) for one in rows]
    return np.array(place, np.int64)[row], np.array(table, np.int64)[size]


def _parts(timeline: Timeline, op: Ints) -> Iterator[Ints]:
    """Yield what makes up the meaning of each op, column by column; -2 is the least value."""
    graph = timeline.graph
    yield graph.name[op]
    yield _families(timeline)[op]
    yield graph.stage[op]
    yield from _collective(timeline, op)


def _families(timeline: Timeline) -> Ints:
    """Return the family of every op; what threads of a host do is one by itself."""
    graph = timeline.graph
    found = families(graph)
    found[timeline.op[on_host(timeline, np.arange(len(timeline)))]] = HOST
    return found


def _distinct(parts: Iterator[Ints]) -> tuple[Ints, Ints]:
    """Return (first, row): where each distinct combination is first, and the row of each entry.

    Columns are folded into one number as they come, so that few of them exist at a time.
    """
    key, size = np.zeros(1, np.int64), 1
    for part in parts:
        width = int(part.max(initial=0)) + 3
        if size > _FAR // width:
            _, key = np.unique(key, return_inverse=True)
            size = int(key.max()) + 1
        key, size = key * width + (part + 2), size * width
    if size > _DENSE * len(key):
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        return first, row
    used = np.zeros(size, np.bool_)
    used[key] = True
    row = np.cumsum(used)[key] - 1
    first = np.empty(int(row.max(initial=-1)) + 1, np.int64)
    first[row[::-1]] = np.arange(len(key))[::-1]  # of all that are written, the last one stays
    return first, row


def _kinds(timeline: Timeline) -> list[str]:
    return list(dict.fromkeys(timeline.graph.collectives.kind))


def _choices(timeline: Timeline) -> list[str]:
    return list(dict.fromkeys(timeline.choices.values()))


def _collective(timeline: Timeline, op: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the kind of each op's collective (-1 none, -2 send, -3 recv), group, and choice."""
    graph = timeline.graph
    kinds, texts = _kinds(timeline), _choices(timeline)
    kind, item = graph.kind[op], graph.item[op]
    which, group, extra = (np.full(len(op), -1, np.int64) for _ in range(3))
    on = kind == OpKind.COLLECTIVE
    rows = len(graph.collectives)
    choice = np.full(rows, -1, np.int64)
    number = {text: at for at, text in enumerate(texts)}
    for row, text in timeline.choices.items():
        choice[row] = number[text]
    if rows:
        of_row = np.array([kinds.index(one) for one in graph.collectives.kind], dtype=np.int64)
        which[on], group[on], extra[on] = (
            of_row[item[on]],
            graph.collectives.group[item[on]],
            choice[item[on]],
        )
    message = (kind == OpKind.SEND) | (kind == OpKind.RECV)
    group[message] = graph.messages.group[item[message]]
    which[message] = len(kinds) + (kind[message] == OpKind.RECV)
    return which, group, extra


def _meaning(
    graph: Graph,
    tables: _PackedTables,
    kinds: list[str],
    texts: list[str],
    name: int,
    family: int,
    stage: int,
    which: int,
    group: int,
    extra: int,
) -> tuple[Any, ...]:
    """Return [name, family, stage, op, group, bus factor, choice]: words by number, -1 for none.

    The op is a word for collectives, -2 for a send and -3 for a recv.
    """
    op, factor = -1, 0.0
    if 0 <= which < len(kinds):
        op = tables.word(op_label(kinds[which]))
        factor = bus_factor(kinds[which], len(graph.groups[group].ranks))
    elif which >= len(kinds):
        op = -2 - (which - len(kinds))
    named = tables.word(graph.groups[group].name) if group >= 0 else -1
    chosen = tables.word(texts[extra]) if extra >= 0 else -1
    return tables.word(graph.names[name]), family, stage, op, named, round(factor, 9), chosen


def _instances(timeline: Timeline, op: Ints, tables: _PackedTables) -> Ints:
    """Return a number from 1 per collective or message, 0 for what is neither."""
    graph = timeline.graph
    kind = graph.kind[op]
    number = np.zeros(len(op), np.int64)
    on = kind == OpKind.COLLECTIVE
    message = (kind == OpKind.SEND) | (kind == OpKind.RECV)
    first = 1 + tables.instances
    number[on] = first + graph.item[op[on]]
    number[message] = first + len(graph.collectives) + graph.item[op[message]]
    tables.instances += len(graph.collectives) + len(graph.messages)
    return number


def _note_lanes(
    run: ShownRun, index: int, tables: _PackedTables, placed: PlacedSpans, counts: Ints
) -> None:
    """Append the lanes by rank; each says which rows are its own, the last of them of its host."""
    graph = run.timeline.graph
    places = lane_places(graph, run.node_of)
    first = len(tables.counts)
    names = [tables.word(name) for name in placed.names]
    for lane in np.argsort(graph.lane_rank, kind="stable").tolist():
        if run.lanes is not None and lane not in run.lanes:
            continue
        tables.lanes.append(
            {
                "run": index,
                "rank": int(graph.lane_rank[lane]),
                "times": int(graph.multiplicity[lane]),
                "node": int(places.node[lane]),
                "stage": int(places.stage[lane]),
                "replica": int(places.replica[lane]),
                "rows": [first + lane * placed.per_lane + k for k in range(placed.per_lane)],
                "hosts": placed.hosts,
                "names": names,
            }
        )
    tables.counts += counts.tolist()
