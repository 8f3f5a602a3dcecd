"""
A graph from the calls of each rank, for formats that state their order alone.

Where a format gives dependencies they are kept. Where it does not:
- a call waits for what its rank issued before it and that blocks;
- sends and receives do not block each other, only what comes after them all;
- an async call blocks what follows its wait.

Groups keep all their ranks: those that are not recorded are taken to be never late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from commsim.errors import ScenarioError, TraceError
from commsim.graph import Device, Graph, GraphBuilder
from commsim.ops import COLLECTIVES, ROOTED
from commsim.traces.formats import Issued, RankRecord

__all__ = ["assemble"]

_MAX_NAME = 200
_MAX_RANKS = 1_000_000
_MAX_SIZE = 2**53

GroupKey = tuple[str, tuple[int, ...]]


class _GraphDraft(msgspec.Struct):
    build: GraphBuilder
    lanes: Mapping[int, int]
    world: tuple[int, ...]
    library: str
    labelled: Mapping[str, tuple[int, ...]]
    groups: dict[GroupKey, int] = msgspec.field(default_factory=dict)
    names: dict[str, GroupKey] = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)
    unsized: int = 0
    absent: int = 0


def assemble(records: Sequence[RankRecord], *, format: str) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph of what the ranks issued, and notes on what was assumed.

    Raises:
        TraceError: the ranks' calls do not match (both are shown), or a rank is impossible.
    """
    by_rank = {record.rank: record for record in sorted(records, key=lambda r: r.rank)}
    build = GraphBuilder()
    lanes = {rank: build.lane(rank) for rank in by_rank}
    libraries = dict.fromkeys(record.library for record in by_rank.values())
    labelled = {n: r for record in by_rank.values() for n, r in (record.groups or {}).items()}
    by_rank, cut = _aligned(by_rank)
    spoken = _spoken(by_rank.values(), labelled)
    world = _world(by_rank, labelled)
    draft = _GraphDraft(build, lanes, world, next(iter(libraries), ""), {**labelled, **spoken})
    if spoken:
        draft.notes.append(
            "the files do not list the ranks of their groups: those that speak of a group are taken"
            " to form it."
        )
    if cut:
        draft.notes.append(
            f"{cut} calls are recorded on some ranks of their group only (a ring buffer forgets its"
            " oldest): they are left out."
        )
    for record in by_rank.values():
        draft.notes += record.notes
    try:
        for rank, record in by_rank.items():
            _add_rank(draft, rank, record)
        graph = build.build({"source": format})
    except ScenarioError as error:
        raise TraceError(f"the recorded calls do not make a graph: {error}") from None
    if not len(graph):
        names = ", ".join(dict.fromkeys(record.name for record in records))
        raise TraceError(f"{names}: no call of any rank is recorded; there is nothing to replay.")
    _note(draft)
    return graph, tuple(dict.fromkeys(draft.notes))


def _world(
    records: Mapping[int, RankRecord], groups: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """Return all ranks of the run: those recorded, and those that their calls name."""
    sizes = [record.world_size for record in records.values()]
    named = [max(ranks, default=0) for record in records.values() for ranks in _ranks(record)]
    named += [max(ranks, default=0) for ranks in groups.values()]
    largest = max([*records, *(size - 1 for size in sizes), *named], default=0)
    if largest >= _MAX_RANKS:
        raise TraceError(f"{next(iter(records.values())).name}: names rank {largest}; not a rank.")
    return tuple(range(largest + 1))


def _spoken(
    records: Iterable[RankRecord], known: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the groups without a description, as the ranks that name them."""
    speaking: dict[str, list[int]] = {}
    for record in records:
        for label in dict.fromkeys(c.group for c in record.calls if c.group and not c.ranks):
            if label not in known:
                speaking.setdefault(label, []).append(record.rank)
    several = len(speaking) > 1 and max(map(len, speaking.values())) > 1
    return {label: tuple(ranks) for label, ranks in speaking.items()} if several else {}


def _aligned(records: Mapping[int, RankRecord]) -> tuple[dict[int, RankRecord], int]:
    """Drop the collectives that only some ranks of a group recorded, by their numbers."""
    numbers: dict[str, dict[int, set[int]]] = {}
    for rank, record in records.items():
        for call in record.calls:
            if call.op in COLLECTIVES:
                numbers.setdefault(call.group, {}).setdefault(rank, set()).add(call.sequence)
    shared = {
        label: set.intersection(*of.values())
        for label, of in numbers.items()
        if all(min(found) >= 0 for found in of.values())
    }
    kept: dict[int, RankRecord] = {}
    lost = 0
    for rank, record in records.items():
        if any(call.after is not None for call in record.calls):
            kept[rank] = record  # its calls name each other by place
            continue
        calls = tuple(
            call
            for call in record.calls
            if call.op not in COLLECTIVES
            or call.sequence in shared.get(call.group, (call.sequence,))
        )
        lost += len(record.calls) - len(calls)
        kept[rank] = replace(record, calls=calls)
    return kept, lost


def _ranks(record: RankRecord) -> Iterable[tuple[int, ...]]:
    yield from dict.fromkeys(call.ranks for call in record.calls)
    yield tuple(call.peer for call in record.calls)


def _add_rank(draft: _GraphDraft, rank: int, record: RankRecord) -> None:
    ids: list[tuple[int, ...]] = []
    held: tuple[int, ...] = ()
    loose: list[int] = []
    for call in record.calls:
        if call.op == "wait":
            waited = [op for index in call.after or () for op in ids[index]]
            held = tuple(dict.fromkeys((*held, *waited)))
            ids.append(tuple(waited))
            continue
        message = call.op in ("send", "recv")
        after = held if message else (*held, *loose)
        if call.after is not None:
            after = tuple(op for index in call.after for op in ids[index])
        op = _add(draft, rank, call, dict.fromkeys(after))
        ids.append(() if op < 0 else (op,))
        if op < 0 or call.after is not None or not call.blocking:
            continue
        if message:
            loose.append(op)
        else:
            held, loose = (op,), []


def _add(draft: _GraphDraft, rank: int, call: Issued, after: Iterable[int]) -> int:
    """Add one call; return its op, -1 for what moves nothing."""
    lane, build = draft.lanes[rank], draft.build
    name = call.name[:_MAX_NAME]
    device = Device.CPU if call.on_cpu else Device.CUDA
    if call.op == "compute":
        return build.compute(
            lane,
            max(0, call.duration),
            name=name or "compute",
            stream=call.stream or "compute",
            after=after,
            device=device,
        )
    if call.op in ("send", "recv"):
        return _add_message(draft, rank, call, after)
    if call.op not in COLLECTIVES:
        draft.notes.append(f"{call.name or 'a call'!r} on rank {rank} is no known op; left out.")
        return -1
    ranks, label = _members(draft, rank, call)
    size = _bounded(call, len(ranks))
    kind = call.op
    splits = call.splits if len(call.splits) == len(ranks) else None
    if kind == "all_to_all_v" and splits is None:
        draft.notes.append("the splits of an all_to_all_v are not recorded: taken as even.")
        kind = "all_to_all"
    draft.unsized += size < 0 and kind != "barrier"
    group = _group(draft, label, ranks)
    return build.collective(
        lane,
        group,
        kind,
        sum(splits) if kind == "all_to_all_v" and splits else max(0, size),
        stream=call.stream or f"comm {label}",
        name=name,
        dtype=call.dtype,
        root=(call.root if call.root in ranks else ranks[0]) if kind in ROOTED else -1,
        splits=splits if kind == "all_to_all_v" else None,
        after=after,
        device=device,
        recorded=call.duration,
    )


def _add_message(draft: _GraphDraft, rank: int, call: Issued, after: Iterable[int]) -> int:
    """Add a send or recv, on a stream of its own peer, way and tag."""
    if call.peer not in draft.lanes or call.peer == rank:
        draft.absent += 1
        return -1
    pair = (min(rank, call.peer), max(rank, call.peer))
    group = _group(draft, f"tag {call.tag}" if call.tag else "messages", pair)
    post = draft.build.send if call.op == "send" else draft.build.recv
    way = "to" if call.op == "send" else "from"
    stream = f"{call.op} {way} {call.peer}" + (f" tag {call.tag}" if call.tag else "")
    size = _bounded(call, 2)
    draft.unsized += size < 0
    return post(
        draft.lanes[rank],
        call.peer,
        max(0, size),
        group=group,
        stream=stream,
        name=call.name[:_MAX_NAME],
        after=after,
        recorded=call.duration,
    )


def _bounded(call: Issued, members: int) -> int:
    """Return S of a call. Raises TraceError for a size beyond any computer's memory."""
    size = call.size(members)
    if size > _MAX_SIZE:
        raise TraceError(f"a {call.op} of {size:,} bytes is recorded; no call is that large.")
    return size


def _members(draft: _GraphDraft, rank: int, call: Issued) -> tuple[tuple[int, ...], str]:
    """Return the group's ranks and its label; a group without a description has all ranks."""
    ranks = call.ranks or draft.labelled.get(call.group) or draft.world
    if rank not in ranks:
        raise TraceError(
            f"rank {rank} calls {call.op} on group"
            f" {call.group!r}, whose ranks are {list(ranks)[:16]}. Do the files belong together,"
            " and are their ranks right?"
        )
    return ranks, call.group or "world"


def _group(draft: _GraphDraft, label: str, ranks: tuple[int, ...]) -> int:
    """Return the group (ranks, name), adding it if it is new."""
    key = (label, ranks)
    if key not in draft.groups:
        twice = label in draft.names
        draft.names.setdefault(label, key)
        name = f"{label} {list(ranks)}" if twice and len(ranks) <= 16 else label
        draft.groups[key] = draft.build.group(name, ranks, library=draft.library)
    return draft.groups[key]


def _note(draft: _GraphDraft) -> None:
    missing = len(draft.world) - len(draft.lanes)
    if missing:
        draft.notes.append(
            f"{len(draft.lanes)} of {len(draft.world)} ranks are recorded; the others are taken"
            " to be never late."
        )
    if draft.absent:
        draft.notes.append(
            f"{draft.absent} sends and receives with ranks that are not recorded are left out."
        )
    if draft.unsized:
        draft.notes.append(f"{draft.unsized} calls have no known size; they are taken as 0 bytes.")
