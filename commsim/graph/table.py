"""
The workload graph: what must happen, and in which order; the first of commsim's two waists.

Every source of work, synthetic or recorded, becomes one `Graph`: columns over ops (numpy
arrays of one length), small tables for groups, collectives and messages, and dependencies as
CSR. It holds no absolute time, with one exception: `lane_offset`, what a recorded lane had
behind it when its recording began.

Ops of one (lane, stream) run in the order of their ids; so do the ops of a group on a rank.
A dependency carries a delay, so that a pure latency needs no op. Times are integer
picoseconds, sizes are bytes, -1 means unknown or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from commsim.arrays import Floats, Ints
from commsim.units import format_size

__all__ = [
    "Collectives",
    "CopyDirection",
    "Device",
    "Folding",
    "Graph",
    "Group",
    "Messages",
    "OpKind",
    "Phase",
    "joined_lanes",
    "member_lanes",
    "op_columns",
]


class OpKind(IntEnum):
    """What an op does to its stream."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECV = 3
    COPY = 4


class Phase(IntEnum):
    """Which part of a training step an op belongs to.

    BACKWARD is the input gradient, and holds the weight gradient too unless the schedule
    runs that apart as WEIGHT.
    """

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    WEIGHT = 3
    OPTIMIZER = 4


class Device(IntEnum):
    """Where an op runs."""

    CUDA = 0
    CPU = 1


class CopyDirection(IntEnum):
    """Which way a copy goes whose time the links decide: its `item`. NONE has a duration."""

    NONE = -1
    TO_HOST = 0
    FROM_HOST = 1


class Group(msgspec.Struct, frozen=True):
    """An ordered list of ranks that communicate, with the library they do it by.

    `axis` is the parallel axis it serves ("dp", "tp", "pp", ... or "").
    """

    name: str
    ranks: tuple[int, ...]
    library: str = ""
    axis: str = ""


class Collectives(msgspec.Struct, frozen=True):
    """The collectives of a graph, one row each, columns of one length.

    `size` is S of nccl-tests in bytes: the largest buffer that one rank holds (all_gather:
    what it ends with; reduce_scatter, all_to_all: what it starts with). `recorded` is a
    measured transfer time in picoseconds, and `eager` is 1 if each member was
    recorded to wait for the root alone, 2 if for those with whom Gloo's program has it exchange
    (a broadcast: those before it in the tree and right behind it), 0 if for all. `root` is a
    global rank. `dtype` and `redop` (sum, avg, ...) are "" if not stated. `splits[i]` is
    an n x n tuple of bytes from member to member (all_to_all_v), or None.
    """

    kind: tuple[str, ...]
    group: Ints
    size: Ints
    root: Ints
    recorded: Ints
    eager: Ints
    dtype: tuple[str, ...]
    redop: tuple[str, ...]
    splits: tuple[tuple[tuple[int, ...], ...] | None, ...]

    def __len__(self) -> int:
        return len(self.kind)


class Messages(msgspec.Struct, frozen=True):
    """Point-to-point messages, one row each: ranks, bytes, and the two ops (-1: never posted).

    `eager` is 1 if the send was recorded to end before its receive was posted: a buffer took
    the data.
    """

    group: Ints
    source: Ints
    target: Ints
    size: Ints
    tag: Ints
    send_op: Ints
    recv_op: Ints
    recorded: Ints
    eager: Ints

    def __len__(self) -> int:
        return len(self.source)


class Folding(msgspec.Struct, frozen=True, eq=False):
    """What the lanes, groups and messages of a folded graph stand for.

    `lane_of[r]` is the lane that stands for rank r. `groups[g]` has the ranks of all groups that
    group g stands for, shape (groups, members), its own first; `pairs[p]` all (source, target),
    shape (pairs, 2), and `pair[m]` is the entry of `pairs` that message m stands for.
    """

    lane_of: Ints
    groups: tuple[Ints, ...]
    pairs: tuple[Ints, ...]
    pair: Ints


class Graph(msgspec.Struct, frozen=True, eq=False):
    """Ops as columns. `GraphBuilder` builds and validates one; `save_graph`, `load_graph`.

    Columns over ops: `kind` (OpKind), `lane`, `stream` (index into `streams`), `duration`
    (picoseconds; -1 if the library decides; of a recorded collective or message, how long its
    rank stayed beyond the transfer), `flops` and `traffic` (FLOPs and bytes of
    memory traffic of a compute op), `size` (bytes this rank moves), `item` (row in
    `collectives` or `messages`; of a copy its Way), `name` (index into `names`), `device`,
    `alloc` (bytes taken at the start), `free` (bytes returned at the end), `phase`, `step`,
    `microbatch`, `stage`, `layer`, `batch` (ops issued as one share an id).

    Dependencies of op i are `dep_op[dep_ptr[i]:dep_ptr[i + 1]]`; i is ready `dep_delay`
    picoseconds after each of them ended.

    Columns over lanes: `lane_rank`, `multiplicity` (ranks that the lane stands for),
    `lane_offset` (picoseconds before its first op may start), `window` (first and last op of
    the profiled step; -1 without one), shape (lanes, 2). `folding` says what a folded graph
    stands for; None if every lane is one rank.
    """

    kind: npt.NDArray[np.uint8]
    lane: Ints
    stream: Ints
    duration: Ints
    flops: Floats
    traffic: Floats
    size: Ints
    item: Ints
    name: Ints
    device: npt.NDArray[np.uint8]
    alloc: Ints
    free: Ints
    phase: npt.NDArray[np.uint8]
    step: Ints
    microbatch: Ints
    stage: Ints
    layer: Ints
    batch: Ints
    dep_ptr: Ints
    dep_op: Ints
    dep_delay: Ints
    lane_rank: Ints
    multiplicity: Ints
    lane_offset: Ints
    window: Ints
    names: tuple[str, ...]
    streams: tuple[str, ...]
    groups: tuple[Group, ...]
    collectives: Collectives
    messages: Messages
    meta: Mapping[str, Any] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    folding: Folding | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def __repr__(self) -> str:
        return (
            f"Graph({len(self.lane_rank)} lanes, {len(self)} ops, "
            f"{len(self.collectives)} collectives, {len(self.messages)} messages)"
        )

    def op_name(self, op: int) -> str:
        """Return the name of op `op`."""
        return self.names[int(self.name[op])]

    def group_of(self, op: int) -> int:
        """Return the group that op `op` communicates in, -1 for compute and copies."""
        if self.kind[op] == OpKind.COLLECTIVE:
            return int(self.collectives.group[self.item[op]])
        if self.kind[op] in (OpKind.SEND, OpKind.RECV):
            return int(self.messages.group[self.item[op]])
        return -1

    def describe(self, op: int) -> str:
        """Say what op `op` is, for messages to people: "rank 3: all_reduce 4 MiB on dp"."""
        rank = self.lane_rank[self.lane[op]]
        text = f"rank {rank}: {self.op_name(op)}"
        if self.kind[op] == OpKind.COLLECTIVE:
            row = int(self.item[op])
            group = self.groups[self.collectives.group[row]].name
            size = format_size(self.collectives.size[row])
            return f"rank {rank}: {self.collectives.kind[row]} of {size} on group {group!r}"
        if self.kind[op] == OpKind.SEND:
            row = int(self.item[op])
            return f"rank {rank}: send to rank {self.messages.target[row]}"
        if self.kind[op] == OpKind.RECV:
            row = int(self.item[op])
            return f"rank {rank}: recv from rank {self.messages.source[row]}"
        return text

    def members(self) -> tuple[Ints, Ints]:
        """Return (ptr, ops): collective c has the member ops `ops[ptr[c]:ptr[c + 1]]`, by op id."""
        ops = np.flatnonzero(self.kind == OpKind.COLLECTIVE)
        order = np.argsort(self.item[ops], kind="stable")
        counts = np.bincount(self.item[ops], minlength=len(self.collectives))
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), ops[order]


def rank_lanes(graph: Graph) -> dict[int, int]:
    """Return {rank: lane}; a rank that does nothing has none, in a folded graph each has one."""
    if graph.folding is not None:
        return dict(enumerate(graph.folding.lane_of.tolist()))
    return {rank: lane for lane, rank in enumerate(graph.lane_rank.tolist())}


def member_lanes(graph: Graph) -> list[dict[int, int]]:
    """Return per group {lane: member index}; ranks without a lane are left out.

    In a folded graph a lane stands for several members: the first of them is named.
    """
    lane_of = rank_lanes(graph)
    found: list[dict[int, int]] = []
    for group in graph.groups:
        lanes: dict[int, int] = {}
        for member, rank in enumerate(group.ranks):
            if rank in lane_of:
                lanes.setdefault(lane_of[rank], member)
        found.append(lanes)
    return found


def joined_lanes(graph: Graph) -> Ints:
    """Return a number per lane, equal for lanes that a chain of groups and dependencies joins."""
    part = np.arange(len(graph.lane_rank))
    used = {*graph.collectives.group.tolist(), *graph.messages.group.tolist()}
    groups = [np.array([*lanes]) for at, lanes in enumerate(member_lanes(graph)) if at in used]
    ends = np.repeat(graph.lane, np.diff(graph.dep_ptr)), graph.lane[graph.dep_op]
    across = ends[0] != ends[1]
    ends = ends[0][across], ends[1][across]
    while True:
        before = part.copy()
        for lanes in groups:
            part[lanes] = part[lanes].min(initial=len(part))
        for one, other in (ends, ends[::-1]):
            np.minimum.at(part, one, part[other])
        part = part[part]
        if (part == before).all():
            return part


def op_columns() -> tuple[str, ...]:
    """Return the names of the columns that have one entry per op."""
    names = Graph.__struct_fields__
    return tuple(names[: names.index("dep_ptr")])
