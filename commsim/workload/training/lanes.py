"""
Lanes under construction, and how items become ops on them.

Per rank: one compute stream; one per axis of collectives inside layers (tp, cp, ep); a send and
a receive stream per neighbour in the pipeline; those of data parallelism ("dp", "gather", ...).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from commsim.graph import GraphBuilder, Tags
from commsim.workload.training.stage_compiler import StageOps
from commsim.workload.training.work_items import COMPUTE, EXCHANGE, WorkItem

__all__ = ["Chain", "Lane"]

SKEWED = ("to_skewed", "from_skewed")
RING = "cp ring"


class Lane(msgspec.Struct):
    """A rank that is built: where it is, and what it did last."""

    lane: int
    rank: int
    device: int
    stage_ops: dict[int, StageOps]
    merged: dict[int, StageOps]
    skew: tuple[float, ...] = ()
    """The share of the tokens that each member of its expert group gets; empty: equal shares."""
    expert_place: int = -1
    ends: list[int] = msgspec.field(default_factory=list)
    """The last op of each action, and the optimizers."""
    tail: list[int] = msgspec.field(default_factory=list)
    """What of the last action ran beside the compute stream: the next one waits for it."""


class Chain:
    """The items of one action as ops, each after the one before.

    `last` is the op that the next one follows, `on_compute` whether it is on the compute stream,
    which keeps its own order; `after` is what else the next one waits for.
    """

    def __init__(
        self, build: GraphBuilder, lane: Lane, tags: Tags, *, after: Iterable[int], precision: str
    ) -> None:
        self._build, self._lane, self._tags = build, lane, tags
        self._tags_of: dict[int, Tags] = {}  # by layer
        self._precision = precision
        self._after = list(after)
        self.on_compute = False
        self._beside: list[int] = []  # overlapping the item that is next
        self._earlier: list[int] = []  # overlapping the items before it
        self._received = -1
        self.last = -1

    def wait(self, ops: Iterable[int]) -> None:
        """Let the next op wait for `ops` too."""
        self._after.extend(ops)

    def add(self, item: WorkItem) -> None:
        """Issue the op (or two, of an exchange) of an item."""
        if item.beside:
            self._beside.append(self._issue(item, self._waits(item)))
            return
        if item.joins:
            self._after += self._earlier
            self._earlier = []
        waits = self._waits(item)
        self._after = []
        self.last = self._issue(item, waits)
        self.on_compute = item.kind == COMPUTE
        self._earlier += self._beside
        self._beside = []

    def close(self) -> None:
        """Wait for all that still runs alongside, with whatever comes next."""
        self._after += self._earlier + self._beside
        self._earlier, self._beside = [], []

    def ends(self) -> list[int]:
        """Return what has to have ended before the chain has."""
        self.close()
        return [*([self.last] if self.last >= 0 else []), *self._after]

    def _waits(self, item: WorkItem) -> list[int]:
        computes = item.kind == COMPUTE
        if self.last < 0:  # what follows the action before: compute does so by its stream
            return [*([] if computes else self._lane.ends[-1:]), *self._after]
        return [*([] if computes and self.on_compute else [self.last]), *self._after]

    def _issue(self, item: WorkItem, after: list[int]) -> int:
        tags = self._tags_of.get(item.layer)
        if tags is None:
            tags = self._tags_of[item.layer] = self._tags._replace(layer=item.layer)
        if item.kind == COMPUTE:
            return self._build.compute(
                self._lane.lane,
                item.duration,
                name=item.name,
                after=after,
                tags=tags,
                flops=item.flops,
                traffic=item.traffic,
                alloc=item.alloc,
                free=item.free,
            )
        if item.kind == EXCHANGE:
            return self._exchange(item, after, tags)
        group = self._build.orbit(item.axis, self._lane.rank)
        splits = self._splits(item)
        return self._build.collective(
            self._lane.lane,
            group,
            "all_to_all_v" if splits else item.kind,
            sum(splits) if splits else item.size,
            stream=item.axis,
            name=item.name,
            dtype=self._precision,
            splits=splits or None,
            after=after,
            tags=tags,
        )

    def _exchange(self, item: WorkItem, after: list[int], tags: Tags) -> int:
        """Pass a block on round the ring; what is sent is what came in the step before."""
        group = self._build.orbit(item.axis, self._lane.rank)
        received = [self._received] if self._received >= 0 else []
        self._build.send(
            self._lane.lane,
            RING,
            item.size,
            group=group,
            stream="cp send",
            name=item.name,
            after=[*after, *received],
            tags=tags,
        )
        self._received = self._build.recv(
            self._lane.lane,
            RING,
            item.size,
            group=group,
            stream="cp recv",
            name=item.name,
            after=after,
            tags=tags,
        )
        return self._received

    def _splits(self, item: WorkItem) -> tuple[int, ...]:
        """Return the bytes to each member of the expert group, if they differ."""
        if item.kind not in SKEWED:
            return ()
        shares = self._lane.skew
        if item.kind == "to_skewed":
            return tuple(round(item.size * share) for share in shares)
        own = shares[self._lane.expert_place]
        return (round(item.size * own),) * len(shares)
