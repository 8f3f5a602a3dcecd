"""
How long an action takes: its ops in sequence, and the communication that overlaps them.

All groups of an axis run the same op at the same time and share the links of their NICs; a group
runs one op at a time; overlapping communication slows compute by the rules of `engine.sharing`.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby

import msgspec

from commsim.cluster import Cluster
from commsim.libraries import Library, Plan, Request, plan_of
from commsim.models import ComputeModel
from commsim.study.advise.shards import Share, UnitTime
from commsim.study.advise.traffic import AxisGroups, StepTraffic
from commsim.units import PS_PER_SECOND
from commsim.workload.training import COMPUTE, EXCHANGE, TrainingPlan, WorkItem

__all__ = ["ActionTimes"]

_MEMORY_BOUND = 0.5  # share of an op's time, as in `engine.sharing`
_MOST_TAKEN = 0.9  # of a GPU, likewise


class ActionTimes:
    """Times (ps) of the actions of a plan on otherwise idle links.

    `slows`: communication slows the compute that it overlaps; `contended`: groups share links.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        cluster: Cluster,
        library: Library,
        model: ComputeModel,
        traffic: StepTraffic,
        *,
        slows: bool,
        contended: bool,
    ) -> None:
        self.plan = plan
        self.groups = AxisGroups(plan)
        self._cluster = cluster
        self._library = library
        self._model = model
        self._traffic = traffic
        self._slows = slows
        self._contended = contended
        self._known: dict[tuple[str, str, int], int] = {}
        self._idle: dict[tuple[object, ...], int] = {}
        self._shares: dict[tuple[str, str, int], Share] = {}

    def added(self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> dict[int, int]:
        ends, found = Ends(), {}
        for unit, items in groupby(work_list, key=lambda item: item.unit):
            before = ends.all
            self._follow(tuple(items), ends)
            found[unit] = ends.all - before
        return found

    def serial(self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> int:
        """Return the time of an action in ps, until its overlapping communication has ended too."""
        ends = Ends()
        for unit, items in groupby(work_list, key=lambda item: item.unit):
            own, times = tuple(items), repeats[unit]
            self._follow(own, ends)
            if times > 1:  # each further layer adds what the second does
                first = ends.last
                self._follow(own, ends)
                ends.later((times - 2) * (ends.last - first))
        return ends.all

    def of_units(
        self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]
    ) -> list[tuple[int, UnitTime]]:
        """Return the units of an action in the order in which they run, each with its time."""
        ends, found = Ends(), []
        for unit, items in groupby(work_list, key=lambda item: item.unit):
            own, before = tuple(items), ends.all
            self._follow(own, ends)
            busy = [
                sum(item.duration for item in own if self._by_memory(item) == kind)
                for kind in (False, True)
            ]
            time = UnitTime(max(ends.all - before, sum(busy)), *busy)
            found += [(unit, time)] * repeats[unit]
        return found

    def busy(
        self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...], *, memory: bool
    ) -> int:
        """Return the compute (ps) of an action that is, or is not, limited by memory bandwidth."""
        return sum(
            item.duration * repeats[item.unit]
            for item in work_list
            if self._by_memory(item) == memory
        )

    def _by_memory(self, item: WorkItem) -> bool:
        bandwidth = self._model.gpu.memory_bandwidth / PS_PER_SECOND
        return item.traffic > _MEMORY_BOUND * item.duration * bandwidth

    def _follow(self, items: tuple[WorkItem, ...], ends: Ends) -> None:
        """Run items one after another."""
        for item in items:
            start = ends.last
            if item.kind == EXCHANGE:
                ends.ring = max(start, ends.ring) + self._alone(item)
                ends.beside = max(ends.beside, ends.ring)
                ends.hold(self._held_by(item))
            elif item.beside:
                ends.stream = max(start, ends.stream) + self._alone(item)
                ends.beside = max(ends.beside, ends.stream)
                ends.hold(self._held_by(item))
            else:
                if item.joins:
                    start, ends.earlier = max(start, ends.earlier), 0
                if item.axis == "tp":  # a group runs one op at a time
                    start = max(start, ends.stream)
                took = item.duration if item.kind == COMPUTE else self._alone(item)
                if ends.beside > start and item.kind == COMPUTE:
                    share = ends.memory if self._by_memory(item) else ends.sms
                    share = min(share, _MOST_TAKEN)
                    took += round(min(ends.beside - start, took / (1 - share)) * share)
                ends.last, ends.sms, ends.memory = start + took, 0.0, 0.0
                ends.earlier, ends.beside = max(ends.earlier, ends.beside), 0

    def _alone(self, item: WorkItem) -> int:
        """Return the time of a communication item on an idle cluster, in ps."""
        key = (item.kind, item.axis, item.size)
        if key not in self._known:
            self._known[key] = (
                self._exchanged(item)
                if item.kind == EXCHANGE
                else self.idle(
                    _plain(item.kind),
                    item.size,
                    self.groups.ranks(item.axis),
                    axis=item.axis,
                )
            )
        return self._known[key]

    def _held_by(self, item: WorkItem) -> Share:
        """Return the shares of a GPU that overlapping communication takes from compute."""
        key = (item.kind, item.axis, item.size)
        if key not in self._shares:
            ranks = self.groups.ranks(item.axis)
            exchange = item.kind == EXCHANGE
            self._shares[key] = (
                self.share("send_recv", item.size, ranks[:2])
                if exchange
                else self.share(_plain(item.kind), item.size, ranks)
            )
        return self._shares[key]

    def _exchanged(self, item: WorkItem) -> int:
        """Return how long the links need for one step of all rings, in ps; latencies overlap."""
        key = (self.plan.layout, "ring", None)
        if not self._contended:
            return self._traffic.together(
                "send_recv", item.size, lambda: self.groups.rows("ring")[:1], key=(*key, "alone")
            )
        rows = partial(self.groups.rows, "ring")
        return self._traffic.together("send_recv", item.size, rows, key=key)

    def share(self, kind: str, size: int, ranks: tuple[int, ...]) -> Share:
        """Return the shares of a GPU that an op takes, by the rules of `engine.sharing`."""
        if not self._slows:
            return Share(0.0, 0.0)
        dtype = self.plan.dtype if kind != "send_recv" else ""
        plan = plan_of(self._library, Request(kind, size, ranks, dtype=dtype), self._cluster)
        gpu = self._model.gpu
        if not plan.sms or not plan.idle or not gpu.sm_count:
            return Share(0.0, 0.0)
        moved = plan.touched / plan.idle * PS_PER_SECOND
        return Share(plan.sms / gpu.sm_count, moved / gpu.memory_bandwidth)

    def idle(
        self,
        kind: str,
        size: int,
        ranks: tuple[int, ...],
        *,
        axis: str = "",
        hop: tuple[int, int] | None = None,
    ) -> int:
        """Return the time (ps) of an op while the other groups run the same op.

        The other groups are those of an axis, or the other pipelines at the same hop.
        """
        key = (kind, size, ranks, axis, hop)
        if key not in self._idle:
            self._idle[key] = self._on_idle_links(kind, size, ranks, axis, hop)
        return self._idle[key]

    def _on_idle_links(
        self,
        kind: str,
        size: int,
        ranks: tuple[int, ...],
        axis: str,
        hop: tuple[int, int] | None,
    ) -> int:
        dtype = self.plan.dtype if kind != "send_recv" else ""
        plan = plan_of(self._library, Request(kind, size, ranks, dtype=dtype), self._cluster)
        # The launch of a message is hidden if its receiver is already waiting.
        alone = plan.idle if kind != "send_recv" else _moving(plan)
        if len(ranks) < 2 or axis == "ep" or not (axis or hop) or not self._contended:
            return alone
        key = (self.plan.layout, axis, hop)
        rows = partial(self.groups.hops, *hop) if hop else partial(self.groups.rows, axis)
        return max(alone, self._traffic.together(kind, size, rows, key=key))


def _moving(plan: Plan) -> int:
    """Return the time of an op on an idle cluster without its launch, in ps."""
    return max(sum(phase.idle + phase.tail for phase in part.phases) for part in plan.parts)


def _plain(kind: str) -> str:
    """Return an item's collective; a skewed all-to-all takes at least as long as an even one."""
    return kind if "skewed" not in kind else "all_to_all"


class Ends(msgspec.Struct):
    """When each part of an action has ended, in ps; 0: no such part.

    `last`: the ops in sequence. `ring`: the last exchange. `stream`: the last overlapping
    collective. `beside`: what overlaps the next item. `earlier`: what overlapped the items before.
    `sms`, `memory`: the shares of the GPU that `beside` takes.
    """

    last: int = 0
    ring: int = 0
    stream: int = 0
    beside: int = 0
    earlier: int = 0
    sms: float = 0.0
    memory: float = 0.0

    def hold(self, share: Share) -> None:
        """Raise the shares of the GPU that overlapping communication takes to at least `share`."""
        self.sms, self.memory = max(self.sms, share.sms), max(self.memory, share.memory)

    @property
    def all(self) -> int:
        """When the action has ended."""
        return max(self.last, self.earlier, self.beside)

    def later(self, by: int) -> None:
        """Shift every end that is set by `by` ps."""
        self.last += by
        self.ring += by * (self.ring > 0)
        self.stream += by * (self.stream > 0)
        self.beside += by * (self.beside > 0)
        self.earlier += by * (self.earlier > 0)
