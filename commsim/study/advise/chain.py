"""
The chain of an action: its ops one behind the other, and what runs beside them until they join.

Groups of an axis do the same at the same time and share the links of their NICs; a group does one
op after the other; compute is slowed by what communicates beside it, as `engine.sharing` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from commsim.cluster import Cluster
from commsim.libraries import Library, Plan, Request
from commsim.models import ComputeModel
from commsim.study.advise.shards import Share, UnitTime
from commsim.study.advise.traffic import AxisGroups, StepTraffic
from commsim.units import PS_PER_SECOND
from commsim.workload.training import COMPUTE, EXCHANGE, TrainingPlan, WorkItem

__all__ = ["ActionChains"]

_MEMORY_BOUND = 0.5  # share of an op's time, as in `engine.sharing`
_MOST_TAKEN = 0.9  # of a GPU, likewise


class ActionChains:
    """Times the actions of a plan on links that nothing else uses, in ps.

    `slows`: communication slows compute beside it; `contended`: groups of an axis share links.
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
        self._shares: dict[tuple[str, str, int], Share] = {}

    def added(self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> dict[int, int]:
        ends, found = Ends(), {}
        for unit, items in groupby(work_list, key=lambda item: item.unit):
            before = ends.all
            self._follow(tuple(items), ends)
            found[unit] = ends.all - before
        return found

    def serial(self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> int:
        """Return what the chain of an action takes, with what runs beside it until they join."""
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
        """Return the units of an action as they run, each with its time."""
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
        """Return the compute of an action that is limited by memory, or that is not."""
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
                if item.axis == "tp":  # a group does one after the other
                    start = max(start, ends.stream)
                took = item.duration if item.kind == COMPUTE else self._alone(item)
                if ends.beside > start and item.kind == COMPUTE:
                    share = ends.memory if self._by_memory(item) else ends.sms
                    share = min(share, _MOST_TAKEN)
                    took += round(min(ends.beside - start, took / (1 - share)) * share)
                ends.last, ends.sms, ends.memory = start + took, 0.0, 0.0
                ends.earlier, ends.beside = max(ends.earlier, ends.beside), 0

    def _alone(self, item: WorkItem) -> int:
        """Return what communication takes where nothing hinders it, in ps."""
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
        """Return what communication beside compute takes of a GPU."""
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
        """Return what the links take for a step of all rings, in ps: latencies of steps overlap."""
        key = (self.plan.layout, "ring", None)
        rows = self.groups.rows("ring")
        if not self._contended:
            return self._traffic.together("send_recv", item.size, rows[:1], key=(*key, "alone"))
        return self._traffic.together("send_recv", item.size, rows, key=key)

    def share(self, kind: str, size: int, ranks: tuple[int, ...]) -> Share:
        """Return what an op takes of a GPU, as `engine.sharing` has it."""
        if not self._slows:
            return Share(0.0, 0.0)
        dtype = self.plan.dtype if kind != "send_recv" else ""
        plan = self._library.plan(Request(kind, size, ranks, dtype=dtype), self._cluster)
        gpu = self._model.gpu
        if not plan.sms or not plan.idle:
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
        """Return what an op takes beside its likes of the other groups, in ps.

        Those are the groups of an axis, or the pipelines at a hop.
        """
        dtype = self.plan.dtype if kind != "send_recv" else ""
        plan = self._library.plan(Request(kind, size, ranks, dtype=dtype), self._cluster)
        # The launch of a message hides where its receiver waits already.
        alone = plan.idle if kind != "send_recv" else _moving(plan)
        if len(ranks) < 2 or axis == "ep" or not (axis or hop) or not self._contended:
            return alone
        key = (self.plan.layout, axis, hop)
        rows = self.groups.hops(*hop) if hop else self.groups.rows(axis)
        return max(alone, self._traffic.together(kind, size, rows, key=key))


def _moving(plan: Plan) -> int:
    """Return what an op takes on an idle cluster without its launch, in ps."""
    return max(sum(phase.idle + phase.tail for phase in part.phases) for part in plan.parts)


def _plain(kind: str) -> str:
    """Return the collective of an item; skewed all-to-alls take what even ones do, or more."""
    return kind if "skewed" not in kind else "all_to_all"


@dataclass(slots=True)
class Ends:
    """When each part of an action has ended, in ps; 0: nothing of it runs.

    `last` the chain, `ring` the last exchange, `stream` the last collective beside the chain,
    `beside` what runs beside the item to come, `earlier` what ran beside those before it; `sms`
    and `memory` are the shares that `beside` takes of the GPU.
    """

    last: int = 0
    ring: int = 0
    stream: int = 0
    beside: int = 0
    earlier: int = 0
    sms: float = 0.0
    memory: float = 0.0

    def hold(self, share: Share) -> None:
        """Let what runs beside the next item take so much of the GPU."""
        self.sms, self.memory = max(self.sms, share.sms), max(self.memory, share.memory)

    @property
    def all(self) -> int:
        """When the action has ended."""
        return max(self.last, self.earlier, self.beside)

    def later(self, by: int) -> None:
        """Let all that runs end later."""
        self.last += by
        self.ring += by * (self.ring > 0)
        self.stream += by * (self.stream > 0)
        self.beside += by * (self.beside > 0)
        self.earlier += by * (self.earlier > 0)
