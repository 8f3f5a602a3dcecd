"""
Build a workload graph op by op, in issue order.

    build = GraphBuilder()
    world = build.group("world", range(2))
    for rank in range(2):
        lane = build.lane(rank)
        work = build.compute(lane, 2 * MS, name="F0")
        build.collective(lane, world, "all_reduce", 2**20, stream="dp", after=[work])
    graph = build.build()

The k-th collective that a rank issues on a group is matched with the k-th of the others; the
k-th send from a to b with b's k-th receive from a. What does not match is an error here; what
is never issued is a deadlock when the graph runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from commsim.errors import ScenarioError
from commsim.graph.check import validate
from commsim.graph.collective_matcher import CollectiveMatcher, MemberCall
from commsim.graph.fold import Fold
from commsim.graph.message_matcher import MessageMatcher
from commsim.graph.op_rows import Dependency, OpRows, Tags
from commsim.graph.orbits import Orbits
from commsim.graph.table import CopyDirection, Device, Graph, Group, OpKind

__all__ = ["GraphBuilder"]


_MOST_RANKS = 2**63


class GraphBuilder:
    """Collects ops; `build` turns them into a validated Graph. Tags never change when one runs.

    With a `fold`, lanes are added for its representatives only, and groups and pairs by the
    name of their axis: each then stands for all of its orbit.
    """

    def __init__(self, fold: Fold | None = None) -> None:
        self._orbits = None if fold is None else Orbits(fold)
        self._ops = OpRows()
        self._lanes: list[tuple[int, int, int]] = []
        self._windows: dict[int, tuple[int, int]] = {}
        self._groups: list[Group] = []
        self._collectives = CollectiveMatcher(
            self._groups, [] if fold is None else fold.stands.tolist()
        )
        self._messages = MessageMatcher()
        self._batches = 0

    def lane(self, rank: int, *, multiplicity: int = 1, offset: int = 0) -> int:
        """Add a rank to simulate; return its lane. `offset` in ps delays its first ops.

        With a fold, the multiplicity is that of the rank's class.

        Raises:
            ScenarioError: a rank that no cluster has.
        """
        if rank >= _MOST_RANKS:
            raise ScenarioError(f"there is a rank above {_MOST_RANKS:,}: {rank}. Name lower ones.")
        if self._orbits is not None:
            multiplicity = self._orbits.multiplicity(rank)
        self._lanes.append((rank, multiplicity, offset))
        return len(self._lanes) - 1

    def group(self, name: str, ranks: Iterable[int], *, library: str = "", axis: str = "") -> int:
        """Add a group of global ranks, in group order; return its id."""
        self._groups.append(Group(name, tuple(ranks), library, axis))
        return len(self._groups) - 1

    def orbit(self, axis: str, rank: int, *, library: str = "") -> int:
        """Return the group of `axis` that a representative's class takes part in.

        Raises:
            ScenarioError: the rank is in no group of that axis.
        """
        orbits = self._folded("orbit")
        known = orbits.group_of(axis, rank)
        if known >= 0:
            return known
        orbit, rows = orbits.members(axis, rank)
        group = orbits.name_group(axis, orbit, rank, len(self._groups))
        if group == len(self._groups):
            self.group(f"{axis}{orbit}", rows[0].tolist(), library=library, axis=axis)
        return group

    def batch(self) -> int:
        """Return a new id for ops that are issued as one (grouped sends and receives)."""
        self._batches += 1
        return self._batches - 1

    def compute(
        self,
        lane: int,
        duration: int,
        *,
        name: str,
        stream: str = "compute",
        after: Iterable[Dependency] = (),
        tags: Tags = Tags(),  # noqa: B008  (an immutable tuple)
        device: Device = Device.CUDA,
        flops: float = -1.0,
        traffic: float = -1.0,
        alloc: int = 0,
        free: int = 0,
    ) -> int:
        """Add work that keeps its stream busy for `duration` ps; return the op id."""
        if duration < 0 and flops < 0:
            raise ScenarioError(f"{name}: a duration must not be negative ({duration} ps).")
        return self._ops.add(
            OpKind.COMPUTE,
            lane,
            stream,
            name,
            after,
            tags,
            device,
            duration=duration,
            flops=flops,
            traffic=traffic,
            alloc=alloc,
            free=free,
        )

    def computes(self, names: Iterable[str], *, stream: str = "compute", **columns: Any) -> None:
        """Add work as columns of a graph, before any other op; `names` are all different.

        Needed are `lane`, `duration`, `name` (which of `names`), `dep_ptr`, `dep_op` and
        `dep_delay`; others are as for `compute`. A tenth of the time of ops one by one.
        """
        self._ops.add_computes(names, stream, columns)

    def copy(
        self,
        lane: int,
        duration: int,
        *,
        name: str,
        size: int = -1,
        stream: str = "copy",
        after: Iterable[Dependency] = (),
        tags: Tags = Tags(),  # noqa: B008
    ) -> int:
        """Add a memory copy of known duration in ps; return the op id."""
        return self._ops.add(
            OpKind.COPY,
            lane,
            stream,
            name,
            after,
            tags,
            Device.CUDA,
            duration=duration,
            size=size,
        )

    def host_copy(
        self,
        lane: int,
        size: int,
        *,
        way: CopyDirection,
        name: str = "",
        stream: str = "copy",
        after: Iterable[Dependency] = (),
        tags: Tags = Tags(),  # noqa: B008
    ) -> int:
        """Add a copy of `size` bytes between a GPU and its host's memory; return the op id.

        It is a flow on the links between the two (PCIe, C2C), so its time is the engine's to
        find: NIC traffic and other copies on those links slow it down.
        """
        if size < 0 or way == CopyDirection.NONE:
            raise ScenarioError(f"{name or 'copy'}: give a size of 0 bytes or more, and its way.")
        label = "copy to host" if way == CopyDirection.TO_HOST else "copy from host"
        return self._ops.add(
            OpKind.COPY,
            lane,
            stream,
            name or label,
            after,
            tags,
            Device.CUDA,
            size=size,
            item=int(way),
        )

    def collective(
        self,
        lane: int,
        group: int,
        kind: str,
        size: int,
        *,
        stream: str,
        name: str = "",
        root: int = -1,
        dtype: str = "",
        redop: str = "",
        splits: Sequence[int] | None = None,
        after: Iterable[Dependency] = (),
        tags: Tags = Tags(),  # noqa: B008
        device: Device = Device.CUDA,
        recorded: int = -1,
    ) -> int:
        """Add this lane's part in a collective; return the op id.

        `size` is S of nccl-tests in bytes; for all_to_all_v it is what this rank sends, and
        `splits` says how much to each member. `root` is a global rank. `recorded` is a
        measured transfer time in ps.

        Raises:
            ScenarioError: unknown kind, a rank outside the group, or a call that differs from
                what another rank has at this position of the group.
        """
        rank, ranks = self._lanes[lane][0], self._groups[group].ranks
        member = rank if self._orbits is None else self._orbits.member(rank, ranks)
        call = MemberCall(kind, group, size, root, dtype, redop, rank)
        row = self._collectives.add(call, member, splits=splits, recorded=recorded)
        return self._ops.add(
            OpKind.COLLECTIVE,
            lane,
            stream,
            name or kind,
            after,
            tags,
            device,
            size=size,
            item=row,
        )

    def send(self, lane: int, peer: int | str, size: int, *, group: int, **how: Any) -> int:
        """Add a send of `size` bytes to global rank `peer`; return the op id. See `recv`."""
        return self._point_to_point(OpKind.SEND, lane, peer, size, group, **how)

    def recv(self, lane: int, peer: int | str, size: int, *, group: int, **how: Any) -> int:
        """Add a receive of `size` bytes from global rank `peer`; return the op id.

        With a fold, `peer` is the name of an axis of pairs: the lane sends as the source of a
        pair and receives as its target.

        `how`: stream (required), name, tag, batch, after, tags, recorded, as for collectives.
        """
        return self._point_to_point(OpKind.RECV, lane, peer, size, group, **how)

    def depend(self, op: int, on: int, *, delay: int = 0) -> None:
        """Let `op` wait until `delay` ps after `on` has ended."""
        self._ops.depend(op, on, delay)

    def window(self, lane: int, first: int, last: int) -> None:
        """Mark the profiled step of a lane: from the start of one op to the end of another."""
        self._windows[lane] = (first, last)

    def build(self, meta: Mapping[str, Any] = MappingProxyType({})) -> Graph:
        """Return the validated graph. `meta` is small, JSON-like, and travels with it."""
        columns = self._ops.columns()
        messages = self._messages.match(columns["item"])
        lanes = np.array(self._lanes, dtype=np.int64).reshape(-1, 3)
        window = [self._windows.get(lane, (-1, -1)) for lane in range(len(self._lanes))]
        graph = Graph(
            **columns,
            lane_rank=lanes[:, 0].copy(),
            multiplicity=lanes[:, 1].copy(),
            lane_offset=lanes[:, 2].copy(),
            window=np.array(window, dtype=np.int64).reshape(-1, 2),
            names=tuple(self._ops.names),
            streams=tuple(self._ops.streams),
            groups=tuple(self._groups),
            collectives=self._collectives.table(),
            messages=messages,
            meta=MappingProxyType(dict(meta)),
            folding=None
            if self._orbits is None
            else self._orbits.folding(self._groups, lanes[:, 0], messages),
        )
        validate(graph)
        return graph

    def _folded(self, what: str) -> Orbits:
        if self._orbits is None:
            raise ValueError(f"GraphBuilder: {what} by the name of an axis needs a fold")
        return self._orbits

    def _point_to_point(
        self,
        kind: OpKind,
        lane: int,
        peer: int | str,
        size: int,
        group: int,
        *,
        stream: str,
        name: str = "",
        tag: int = 0,
        batch: int = -1,
        after: Iterable[Dependency] = (),
        tags: Tags = Tags(),  # noqa: B008
        device: Device = Device.CUDA,
        recorded: int = -1,
    ) -> int:
        source, target = self._ends(kind, lane, peer, group)
        other = target if kind == OpKind.SEND else source
        verb = "send to" if kind == OpKind.SEND else "recv from"
        op = self._ops.add(
            kind,
            lane,
            stream,
            name or f"{verb} {other}",
            after,
            tags,
            device,
            size=size,
            batch=batch,
        )
        ordered_tag = tag if self._groups[group].library == "gloo" else 0
        key = (group, source, target, ordered_tag)
        self._messages.post(kind, op, key, size=size, recorded=recorded)
        return op

    def _ends(self, kind: OpKind, lane: int, peer: int | str, group: int) -> tuple[int, int]:
        """Return the source and target ranks of a message that `lane` takes part in."""
        rank = self._lanes[lane][0]
        if isinstance(peer, str):
            return self._folded("peer").pair(peer, rank, group, sends=kind == OpKind.SEND)
        for member in (rank, peer):
            if not self._collectives.is_member(member, group):
                raise ScenarioError(
                    f"rank {rank}: {kind.name.lower()}: rank {member} is not in group"
                    f" {self._groups[group].name!r} {list(self._groups[group].ranks)}."
                )
        if rank == peer:
            raise ScenarioError(f"rank {rank}: {kind.name.lower()} to itself.")
        return (rank, peer) if kind == OpKind.SEND else (peer, rank)
