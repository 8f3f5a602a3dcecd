"""
A recording as a workload graph: the fragments of all ranks, with what they do together.

The graph holds no absolute time and no recorded wait; `lane_offset` alone says when a rank
began. Groups keep all their ranks: those that are not recorded are taken to be never late.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.errors import ScenarioError, TraceError
from commsim.graph import Collectives, Graph, Group, Messages, OpKind, validate
from commsim.ops import ROOTED
from commsim.traces.rebuild.deskew import Transfer
from commsim.traces.rebuild.joined_ops import JoinedOps, RankFragment, join_fragments
from commsim.traces.rebuild.match_messages import Exchange, move_of
from commsim.traces.rebuild.matching import MatchedCollective
from commsim.units import format_time

__all__ = ["Built", "build_graph"]

_MAX_APART = 3_600 * 10**12
RECORDED = "recorded"
"""The library of groups whose members are not known: their calls keep their recorded time."""


class Built(msgspec.Struct, eq=False):
    """A graph, and when its ops ran: columns per op, `start` and `end` on the common clock.

    `last` is the op that came last to a collective or message, -1 for other ops.
    """

    graph: Graph
    start: Ints
    end: Ints
    cause: Ints
    last: Ints
    notes: list[str]


class _CollectiveTables(msgspec.Struct):
    """The rows of collectives, and the groups that they and messages name."""

    groups: dict[Group, int] = msgspec.field(default_factory=dict)
    kinds: list[str] = msgspec.field(default_factory=list)
    splits: list[tuple[tuple[int, ...], ...] | None] = msgspec.field(default_factory=list)
    dtypes: list[str] = msgspec.field(default_factory=list)
    rows: list[tuple[int, ...]] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    def group(self, name: str, ranks: tuple[int, ...], library: str) -> int:
        return self.groups.setdefault(Group(name, ranks, library), len(self.groups))


def build_graph(
    ranks: Sequence[RankFragment],
    collectives: Sequence[MatchedCollective],
    transfers: Sequence[Transfer],
    exchanges: Sequence[Exchange],
) -> Built:
    """Build the graph of all ranks.

    Raises:
        TraceError: clocks that nothing brings together, or columns that make no graph.
    """
    begins = [part.fragment.begin + part.shift for part in ranks]
    if max(begins) - min(begins) > _MAX_APART:
        raise TraceError(
            "the ranks' recordings lie more than an hour apart, and no collective joins them:"
            " are these files of one run?"
        )
    ops = join_fragments(ranks, min(begins))
    tables = _CollectiveTables()
    _add_collectives(tables, collectives, transfers)
    _join_collectives(ops, collectives, transfers)
    messages = _join_messages(ops, tables, exchanges)
    _keep_lone_messages(ops, tables)
    graph = _graph(ops, begins, ranks, tables, _collectives(tables), messages)
    _note(tables.notes, ranks, collectives, ops)
    return Built(graph, ops.start, ops.end, ops.cause, ops.last, tables.notes)


def _add_collectives(
    tables: _CollectiveTables,
    collectives: Sequence[MatchedCollective],
    transfers: Sequence[Transfer],
) -> None:
    for collective, transfer in zip(collectives, transfers, strict=True):
        matrix = _splits(tables, collective)
        members = tuple(rank for rank in collective.group_ranks if rank not in collective.lost)
        alone = collective.alone or len(members) == 1 < len(collective.group_ranks)
        group = tables.group(
            collective.group, members, RECORDED if alone else collective.first.library
        )
        tables.kinds.append("all_to_all" if _is_even(collective, matrix) else collective.op)
        tables.splits.append(matrix)
        tables.dtypes.append(collective.dtype)
        tables.rows.append(
            (
                group,
                max(-1, collective.size),
                _root(tables, collective),
                transfer.together,
                transfer.eager,
            )
        )


def _collectives(tables: _CollectiveTables) -> Collectives:
    table = np.array(tables.rows, dtype=np.int64).reshape(-1, 5)
    return Collectives(
        kind=tuple(tables.kinds),
        group=table[:, 0].copy(),
        size=table[:, 1].copy(),
        root=table[:, 2].copy(),
        recorded=table[:, 3].copy(),
        eager=table[:, 4].copy(),
        dtype=tuple(tables.dtypes),
        redop=("",) * len(tables.kinds),
        splits=tuple(tables.splits),
    )


def _is_even(collective: MatchedCollective, matrix: object) -> bool:
    return collective.op == "all_to_all_v" and matrix is None


def _splits(
    tables: _CollectiveTables, collective: MatchedCollective
) -> tuple[tuple[int, ...], ...] | None:
    """Return the bytes from member to member; ranks that are not recorded send the mean."""
    if collective.op != "all_to_all_v" or collective.alone:
        return None
    calls, ranks = collective.calls, collective.group_ranks
    if collective.lost:
        tables.notes.append(
            f"group {collective.group!r}: an all_to_all_v lacks a rank's recording; its splits are"
            " taken as even."
        )
        return None
    if any(len(call.splits) != len(ranks) for call in calls.values()):
        tables.notes.append(
            f"group {collective.group!r}: the splits of an all_to_all_v are not in the trace;"
            " they are taken as even."
        )
        return None
    known = np.array([calls[rank].splits for rank in ranks if rank in calls], dtype=np.int64)
    mean = tuple(known.mean(axis=0).astype(np.int64).tolist())
    return tuple(calls[rank].splits if rank in calls else mean for rank in ranks)


def _root(tables: _CollectiveTables, collective: MatchedCollective) -> int:
    if collective.op not in ROOTED or collective.alone:
        return -1
    place = max(call.root for call in collective.calls.values())
    if 0 <= place < len(collective.group_ranks):
        root = collective.group_ranks[place]
        return -1 if root in collective.lost else root
    first = next(rank for rank in collective.group_ranks if rank not in collective.lost)
    tables.notes.append(f"the root of a {collective.op} is not recorded; rank {first} is taken.")
    return first


def _join_collectives(
    ops: JoinedOps, collectives: Sequence[MatchedCollective], transfers: Sequence[Transfer]
) -> None:
    """Give the members of each collective its row, and those that leave late their time more."""
    for row, (collective, transfer) in enumerate(zip(collectives, transfers, strict=True)):
        members = {rank: ops.op_of[rank, i, -1] for rank, i in collective.numbers.items()}
        for rank, op in members.items():
            ops.item[op] = row
            ops.size[op] = max(-1, collective.calls[rank].size)
            ops.last[op] = members[transfer.waited_for(rank)]
            ops.duration[op] = transfer.late(rank) or -1


def _join_messages(
    ops: JoinedOps, tables: _CollectiveTables, exchanges: Sequence[Exchange]
) -> Messages:
    """Give both ends of each message its row, and what its kernel took beyond it."""
    rows: list[tuple[int, ...]] = []
    for exchange in exchanges:
        send, recv = (ops.op_of[key] for key in (exchange.send, exchange.recv))
        spans = [(int(ops.start[op]), int(ops.end[op])) for op in (send, recv)]
        move = move_of(exchange, *spans)
        left = max(move.start, min(move.ends))
        later = recv if ops.start[recv] >= ops.start[send] else send
        for op, end in zip((send, recv), move.ends, strict=True):
            ops.item[op], ops.size[op], ops.end[op] = len(rows), exchange.size, end
            ops.last[op] = op if move.eager else later
            beyond = max(0, end - (int(ops.start[op]) if move.eager else left))
            ops.duration[op] = beyond or -1
        group = tables.group(exchange.group, exchange.ranks, exchange.library)
        rows.append(
            (
                group,
                exchange.send[0],
                exchange.recv[0],
                exchange.size,
                exchange.tag,
                send,
                recv,
                move.ends[0] - spans[0][0] if move.eager else left - move.start,
                int(move.eager),
            )
        )
    table = np.array(rows, dtype=np.int64).reshape(-1, 9)
    return Messages(*(table[:, column].copy() for column in range(9)))


def _keep_lone_messages(ops: JoinedOps, tables: _CollectiveTables) -> None:
    """Let a send or receive without its other end keep its recorded time, waits included.

    One kernel may hold several: its time counts once, and not at all beside a message of the
    same kernel whose other end is known.
    """
    kinds, item = ops.kind, ops.item
    messages = (kinds == OpKind.SEND) | (kinds == OpKind.RECV)
    lone = np.flatnonzero(messages & (item < 0))
    met = np.flatnonzero(messages & (item >= 0))
    counted = set(zip(ops.rank[met].tolist(), ops.call[met].tolist(), strict=True))
    for op in lone.tolist():
        rank, call = int(ops.rank[op]), int(ops.call[op])
        whole = int(ops.end[op] - ops.start[op])
        recorded = 0 if (rank, call) in counted else whole
        counted.add((rank, call))
        group = tables.group("messages", (rank,), RECORDED)
        kinds[op], item[op] = OpKind.COLLECTIVE, len(tables.rows)
        ops.batch[op], ops.last[op] = -1, op
        tables.kinds.append("send_recv")
        tables.splits.append(None)
        tables.dtypes.append("")
        tables.rows.append((group, int(ops.size[op]), -1, recorded, 0))
    if lone.size:
        tables.notes.append(
            f"{lone.size} sends and receives have no other end in the recording: they keep the"
            " time that was recorded, waits included."
        )


def _graph(
    ops: JoinedOps,
    begins: Sequence[int],
    ranks: Sequence[RankFragment],
    tables: _CollectiveTables,
    collectives: Collectives,
    messages: Messages,
) -> Graph:
    count, lanes = len(ops.kind), len(ranks)
    none, nothing = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    starts = np.cumsum([0, *(len(part.fragment) for part in ranks)])
    window = [
        tuple(op + int(at) if op >= 0 else -1 for op in part.fragment.window)
        for part, at in zip(ranks, starts, strict=False)
    ]
    graph = Graph(
        kind=ops.kind.astype(np.uint8),
        lane=ops.lane.astype(np.int64),
        stream=ops.stream,
        duration=ops.duration,
        flops=np.full(count, -1.0),
        traffic=np.full(count, -1.0),
        size=ops.size,
        item=ops.item,
        name=ops.name,
        device=ops.device.astype(np.uint8),
        alloc=nothing,
        free=nothing,
        phase=ops.phase.astype(np.uint8),
        step=none,
        microbatch=none,
        stage=none,
        layer=none,
        batch=ops.batch,
        dep_ptr=np.concatenate(([0], np.cumsum(ops.counts))).astype(np.int64),
        dep_op=ops.dep_op,
        dep_delay=ops.dep_delay,
        lane_rank=np.array([part.rank for part in ranks], np.int64),
        multiplicity=np.ones(lanes, np.int64),
        lane_offset=np.array([begin - min(begins) for begin in begins], np.int64),
        window=np.array(window, np.int64).reshape(-1, 2),
        names=ops.names,
        streams=ops.streams,
        groups=tuple(tables.groups),
        collectives=collectives,
        messages=messages,
        meta=MappingProxyType({"source": "kineto"}),
    )
    try:
        validate(graph)
    except ScenarioError as error:
        raise TraceError(f"the recording does not make a graph: {error}") from None
    return graph


def _note(
    notes: list[str],
    ranks: Sequence[RankFragment],
    collectives: Sequence[MatchedCollective],
    ops: JoinedOps,
) -> None:
    absent = {
        (c.group, c.group_ranks): sorted(c.calls)
        for c in collectives
        if len(c.calls) < len(c.group_ranks) and not c.alone
    }
    for (group, members), recorded in absent.items():
        notes.append(
            f"group {group!r} has {len(members)} ranks, of which {recorded} are recorded: the"
            " others are taken to be never late, and what was waited for them counts as transfer."
        )
    fragments = [part.fragment for part in ranks]
    if held_ops := sum(fragment.held_ops for fragment in fragments):
        held = sum(fragment.held for fragment in fragments)
        notes.append(
            f"{held_ops} ops started later than anything recorded explains"
            f" ({format_time(held)} in all); that time stays with their last cause."
        )
    if queued := sum(fragment.queued_ops for fragment in fragments):
        notes.append(
            f"{queued} ops waited in a queue of the GPU behind work of another stream, and are"
            " released with it: more queues (CUDA_DEVICE_MAX_CONNECTIONS) may free them."
        )
    if left_over := sum(fragment.left_over for fragment in fragments):
        notes.append(
            f"on {left_over} streams work was left from before the recording began;"
            " it starts as long after the beginning as it did."
        )
    notes[:] = list(dict.fromkeys(notes))
