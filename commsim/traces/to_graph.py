"""
A recording as a workload graph: pieces of CPU work, GPU work, collectives, and what they wait for.

The graph holds no absolute time and no recorded wait; `lane_offset` alone says when a rank began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from commsim.errors import ScenarioError, TraceError
from commsim.graph import Device, Graph, GraphBuilder, Phase, Tags
from commsim.traces.causes import LEFT, LONG, Key, RankWork, piece_at, ties
from commsim.traces.collectives import CollectiveCall
from commsim.traces.deskew import Transfer
from commsim.traces.kineto import EventKind
from commsim.traces.matching import Collective
from commsim.traces.streams import launch_time
from commsim.units import format_time

__all__ = ["Built", "build_graph"]

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_MAX_NAME = 200
_MAX_APART = 3_600 * 10**12


@dataclass(slots=True)
class Built:
    """A graph, and when its ops ran: `start` and `end` per op on the common clock."""

    graph: Graph
    start: list[int]
    end: list[int]
    cause: list[int]
    transfers: dict[int, Transfer]
    notes: list[str]


@dataclass(slots=True)
class _Draft:
    build: GraphBuilder = field(default_factory=GraphBuilder)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)
    transfers: dict[int, Transfer] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    groups: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    held: int = 0
    held_ops: int = 0
    left_over: int = 0


def build_graph(
    ranks: Sequence[RankWork], collectives: Sequence[Collective], transfers: Sequence[Transfer]
) -> Built:
    """Build the graph of all ranks.

    Raises:
        TraceError: a collective of unknown kind, a point-to-point kernel, or clocks that
            nothing brings together.
    """
    part: dict[tuple[int, int], tuple[Collective, Transfer]] = {
        (rank, call.kernel): (collective, transfer)
        for collective, transfer in zip(collectives, transfers, strict=True)
        for rank, call in collective.calls.items()
    }
    draft = _Draft()
    begin = min(_begin(work) for work in ranks)
    if max(_begin(work) for work in ranks) - begin > _MAX_APART:
        raise TraceError(
            "the ranks' recordings lie more than an hour apart, and no collective joins them:"
            " are these files of one run?"
        )
    try:
        for work in ranks:
            _add_rank(draft, work, part, begin)
        graph = draft.build.build({"source": "kineto"})
    except ScenarioError as error:
        raise TraceError(f"the recording does not make a graph: {error}") from None
    _note(draft)
    return Built(graph, draft.start, draft.end, draft.cause, draft.transfers, draft.notes)


def _begin(work: RankWork) -> int:
    """Return when a rank's recording begins, on the common clock."""
    return min(pieces[0].start for pieces in work.pieces.values()) + work.shift


def _add_rank(
    draft: _Draft,
    work: RankWork,
    part: Mapping[tuple[int, int], tuple[Collective, Transfer]],
    begin: int,
) -> None:
    lane = draft.build.lane(work.activity.rank, offset=_begin(work) - begin)
    work = RankWork(work.activity, work.pieces, work.waits, work.shift - begin)
    ids: dict[Key, int] = {}
    streams = _stream_names(work)
    for start, _, key in sorted(_items(work), key=lambda item: item[:2]):
        if isinstance(key[0], str):
            op = _add_gpu(draft, work, lane, key[1], part, streams)
            draft.end.append(work.activity.gpu[key[1]].event.end + work.shift)
        else:
            piece = work.pieces[key[0]][key[1]]  # type: ignore[index]
            op = draft.build.compute(
                lane, piece.end - piece.start, name=piece.name[:_MAX_NAME],
                stream=streams[piece.thread], tags=Tags(piece.phase), device=Device.CPU,
            )  # fmt: skip
            draft.end.append(piece.end + work.shift)
        ids[key] = op
        draft.start.append(start + work.shift)
        draft.cause.append(-1)
    _tie_pieces(draft, work, ids)
    _tie_gpu(draft, work, ids)
    _mark_window(draft, work, lane, ids)


def _items(work: RankWork) -> list[tuple[int, tuple[int, int], Key]]:
    """Return (start, order, key) of all ops; pieces come before GPU work at one instant."""
    items: list[tuple[int, tuple[int, int], Key]] = []
    for number, (thread, pieces) in enumerate(work.pieces.items()):
        for index, piece in enumerate(pieces):
            items.append((piece.start, (number - len(work.pieces), index), (thread, index)))
    for index, op in enumerate(work.activity.gpu):
        items.append((op.event.start, (0, index), ("gpu", index)))
    return items


def _stream_names(work: RankWork) -> dict[object, str]:
    """Name the streams: cpu, autograd, cpu 2 ..., stream 7, nccl 84."""
    names: dict[object, str] = {work.activity.main: "cpu"}
    for number, thread in enumerate(work.pieces, start=1):
        plain = f"cpu {number}"
        backward = thread in work.activity.backward and "autograd" not in names.values()
        names.setdefault(thread, "autograd" if backward else plain)
    kinds: dict[int, set[bool]] = {}
    for op in work.activity.gpu:
        kinds.setdefault(op.event.stream, set()).add(op.is_collective)
    for stream, collective in kinds.items():
        names[stream] = f"nccl {stream}" if collective == {True} else f"stream {stream}"
    return names


def _add_gpu(
    draft: _Draft,
    work: RankWork,
    lane: int,
    index: int,
    part: Mapping[tuple[int, int], tuple[Collective, Transfer]],
    streams: Mapping[object, str],
) -> int:
    op = work.activity.gpu[index]
    event, stream = op.event, streams[op.event.stream]
    tags = Tags(_phase(work, index))
    if op.is_collective:
        collective, transfer = part[work.activity.rank, index]
        return _add_collective(draft, work, lane, collective, transfer, stream, tags)
    name = event.name[:_MAX_NAME]
    if event.kind == EventKind.KERNEL:
        return draft.build.compute(
            lane, event.end - event.start, name=name, stream=stream, tags=tags
        )
    return draft.build.copy(lane, event.end - event.start, name=name, stream=stream, tags=tags)


def _phase(work: RankWork, index: int) -> Phase:
    """Return the phase of the piece that launched GPU work."""
    launch = work.activity.gpu[index].launch
    if launch is None:
        return Phase.NONE
    at = piece_at(work.pieces[launch.thread], launch_time(work.activity, index))
    return work.pieces[launch.thread][at].phase


def _add_collective(
    draft: _Draft,
    work: RankWork,
    lane: int,
    collective: Collective,
    transfer: Transfer,
    stream: str,
    tags: Tags,
) -> int:
    call = collective.calls[work.activity.rank]
    members = tuple(r for r in collective.group_ranks if r in collective.calls)
    _check_kind(work, collective, call)
    kind, splits = _uneven(draft, collective, call, members)
    op = draft.build.collective(
        lane, _group(draft, collective, members), kind,
        call.size if splits is not None else collective.size,
        stream=stream, root=_root(draft, collective, members), dtype=call.dtype,
        splits=splits, tags=tags, recorded=transfer.duration,
    )  # fmt: skip
    draft.transfers[op] = transfer
    return op


def _check_kind(work: RankWork, collective: Collective, call: CollectiveCall) -> None:
    if collective.op in ("", "send", "recv"):
        kernel = work.activity.gpu[call.kernel].event.name[:60]
        what = "a point-to-point kernel" if collective.op else "a kernel of unknown op"
        raise TraceError(
            f"rank {call.rank}: {kernel} is {what}; traces with such kernels are not replayed yet."
        )


def _uneven(
    draft: _Draft, collective: Collective, call: CollectiveCall, members: tuple[int, ...]
) -> tuple[str, tuple[int, ...] | None]:
    """Return (kind, splits); an all_to_all_v whose splits are unknown is taken as even."""
    if collective.op != "all_to_all_v":
        return collective.op, None
    if any(len(c.splits) != len(collective.group_ranks) for c in collective.calls.values()):
        draft.notes.append(
            f"group {collective.group!r}: the splits of an all_to_all_v are not in the trace;"
            " they are taken as even."
        )
        return "all_to_all", None
    places = [collective.group_ranks.index(rank) for rank in members]
    return "all_to_all_v", tuple(call.splits[place] for place in places)


def _group(draft: _Draft, collective: Collective, members: tuple[int, ...]) -> int:
    """Return the group of the members that were recorded, adding it where it is new."""
    key = (collective.group, members)
    if key not in draft.groups:
        draft.groups[key] = draft.build.group(collective.group, members, library="nccl")
        if len(members) < len(collective.group_ranks):
            draft.notes.append(
                f"group {collective.group!r} has {len(collective.group_ranks)} ranks, of which"
                f" {list(members)} are recorded: it is replayed without the others,"
                " and what was waited for them counts as transfer."
            )
    return draft.groups[key]


def _root(draft: _Draft, collective: Collective, members: tuple[int, ...]) -> int:
    if collective.op not in _ROOTED:
        return -1
    place = collective.first.root
    if 0 <= place < len(collective.group_ranks) and collective.group_ranks[place] in members:
        return collective.group_ranks[place]
    draft.notes.append(
        f"the root of a {collective.op} is not recorded; rank {members[0]} is taken."
    )
    return members[0]


def _tie_pieces(draft: _Draft, work: RankWork, ids: Mapping[Key, int]) -> None:
    """Let pieces wait for the GPU work and the pieces of other threads that held them."""
    for thread, pieces in work.pieces.items():
        for index, piece in enumerate(pieces):
            op = ids[thread, index]
            sources = [(work.activity.gpu[g].event.end, ids["gpu", g]) for g in piece.gpu]
            for other, time in piece.after:
                at = piece_at(work.pieces[other], time)
                sources.append((work.pieces[other][at].end, ids[other, at]))
            for _, source in sources:
                draft.build.depend(op, source)
            before = (pieces[index - 1].end, ids[thread, index - 1]) if index else (-1, -1)
            draft.cause[op] = max([before, *sources])[1]


def _tie_gpu(draft: _Draft, work: RankWork, ids: Mapping[Key, int]) -> None:
    """Let GPU work wait for its launch, its stream and other streams, each with its latency."""
    for index, tie in enumerate(ties(work)):
        op = ids["gpu", index]
        for key, delay in tie.delays:
            draft.build.depend(op, ids[key], delay=delay)
        draft.cause[op] = ids[tie.binding.key]
        draft.left_over += tie.binding.kind == LEFT
        if tie.latency > LONG and tie.binding.kind != LEFT:
            draft.held += tie.latency
            draft.held_ops += 1


def _mark_window(draft: _Draft, work: RankWork, lane: int, ids: Mapping[Key, int]) -> None:
    """Mark the profiled step: the main thread's pieces from its start to its end."""
    main = work.activity.main
    pieces, step = work.pieces[main], work.activity.step
    start, end = (step.start, step.end) if step else (pieces[0].start, pieces[-1].end)
    inside = [i for i, p in enumerate(pieces) if p.start >= start and p.end <= end]
    if inside:
        draft.build.window(lane, ids[main, inside[0]], ids[main, inside[-1]])


def _note(draft: _Draft) -> None:
    draft.notes = list(dict.fromkeys(draft.notes))
    if draft.held_ops:
        draft.notes.append(
            f"{draft.held_ops} GPU ops started later than anything recorded explains"
            f" ({format_time(draft.held)} in all); that time stays with their last cause."
        )
    if draft.left_over:
        draft.notes.append(
            f"on {draft.left_over} streams work was left from before the recording began;"
            " it starts as long after the beginning as it did."
        )
