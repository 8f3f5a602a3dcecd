"""
What can be known of a layout before it is simulated: its memory, and a floor under its step.

Memory is exact: what a rank holds all the time, and the most that its schedule lets live at
once. The floor is what even a run with idle links needs: the compute of the first device and
what its collectives and messages add where nothing hides them, in the order of the schedule;
parameters that others updated, gathered by the end of its first forward; gradients, reduced
behind the backward that they come from; all that sharded parameters send, one op after another,
and the SMs that it takes from compute meanwhile;
a token table's gradient between the ends; or what all nodes send, over all of their NICs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from typing import NamedTuple

from commsim.cluster import Cluster
from commsim.libraries import Library, Plan, Request
from commsim.models import ComputeModel, MemoryUse
from commsim.study.advise.traffic import AxisGroups, StepTraffic
from commsim.units import PS_PER_SECOND
from commsim.workload import Work, execution_order
from commsim.workload.training import (
    COMPUTE,
    EXCHANGE,
    Actions,
    StageOps,
    TrainingPlan,
    Unit,
    WorkItem,
    resident_memory,
)

__all__ = ["Floor"]

_PROBE = 2**26
_MEMORY_BOUND = 0.5  # share of an op's time, as in `engine.sharing`
_MOST_TAKEN = 0.9  # of a GPU, likewise


class Floor:
    """Memory and floor of layouts that differ in how replicas share, and in nothing else."""

    def __init__(
        self,
        plan: TrainingPlan,
        cluster: Cluster,
        library: Library,
        model: ComputeModel,
        traffic: StepTraffic,
        *,
        slows: bool = True,
        contended: bool = True,
        known: dict[Hashable, StageOps] | None = None,
    ) -> None:
        self.plan = plan
        self._cluster = cluster
        self._library = library
        self._model = model
        self._traffic = traffic
        self._slows = slows
        self._contended = contended
        self._groups = AxisGroups(plan)
        self._actions = Actions(plan, model, known)
        self._inside: float | None = None
        self._walks: dict[tuple[int, ...], StepMoments] = {}
        self._chains: dict[Work, list[int]] | None = None
        self._known: dict[tuple[str, str, int], int] = {}
        self._shares: dict[tuple[str, str, int], Share] = {}
        self._computes: dict[int, tuple[int, int]] = {}

    def memory(self, plan: TrainingPlan, peaks: Sequence[int]) -> tuple[MemoryUse, int]:
        """Return the use of the fullest device and which that is; `peaks` as `peaks` gives them."""
        uses = [
            replace(resident_memory(plan, device), activations=peak)
            for device, peak in enumerate(peaks)
        ]
        device = max(range(len(uses)), key=lambda one: uses[one].total)
        return uses[device], device

    def peaks(self) -> tuple[int, ...]:
        """Return the most bytes of activations that each device holds at once."""
        return self._actions.peaks()

    def seconds(self, plan: TrainingPlan) -> float:
        """Return a step time that no run of the layout can be below."""
        device = plan.schedule.home[plan.schedule.pipes[0][0]]
        entries = sum(stage.parameters for stage in plan.held(device))
        optimizer = self._model.optimizer(-(-entries // plan.sharers)).seconds
        alone = (self._replicas(plan, device) + self._tied()) / PS_PER_SECOND + optimizer
        if self._inside is None:
            self._inside = self._traffic.inside(self.plan, self._actions, self._groups)
        return max(alone, self._inside + self._traffic.sharing(plan, self._groups))

    def units(self) -> dict[Work, list[tuple[Unit, int]]]:
        """Return what each unit of the first stage adds to the chain of its action, in ps.

        Of equal units that follow each other there are two, the first and any further one. The
        collectives of a group are taken to be alone on their links.
        """
        units = self._actions.units(0)
        taken = self._actions.of_each(self._added)
        return {
            work: [(units[number], took) for number, took in rows[0].items()]
            for work, rows in taken.items()
        }

    def _added(self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> dict[int, int]:
        ends, found = Ends(), {}
        for unit, items in groupby(work_list, key=lambda item: item.unit):
            before = ends.all
            self._follow(tuple(items), ends)
            found[unit] = ends.all - before
        return found

    def _replicas(self, plan: TrainingPlan, device: int) -> int:
        """Return when the first device has its gradients, in ps."""
        if plan.sharers == 1:
            return self._walk({}).end
        data = plan.section.data_parallel
        dense = {
            stage.number: sum(unit.entries(expert=False) for unit in stage.units)
            for stage in sorted(plan.held(device), key=lambda stage: stage.part)
        }
        whole = sum(dense.values())
        gradients, parameters = whole * plan.gradient_width, whole * plan.width
        if data.kind not in ("ddp", "zero"):
            took = self._sharded(plan, gradients, parameters)
            return max(self._walk({}).end, took, self._slowed(device, took))
        kind = "all_reduce" if data.kind == "ddp" else "reduce_scatter"
        reduced = self._of_replicas(kind, gradients)
        fresh = self._of_replicas("all_gather", parameters) if data.kind == "zero" else 0
        ready = zip(dense, accumulate(dense.values()), strict=True)
        walk = self._walk({stage: fresh * held // whole for stage, held in ready if fresh})
        if data.stage == 2 and not data.no_sync:
            every = plan.microbatches * reduced
            crowded = self._crowded(device, walk.end, every + fresh)
            return max(crowded, walk.first_backward + every)
        end = 0
        for stage in sorted(dense, key=lambda one: walk.last_backward[one]):
            end = max(end, walk.last_backward[stage]) + reduced * dense[stage] // whole
        return max(self._crowded(device, walk.end, reduced + fresh), end)

    def _sharded(self, plan: TrainingPlan, gradients: int, parameters: int) -> int:
        """Return what a step gathers and reduces, in ps: ops of one group take turns."""
        shard = plan.section.data_parallel.shard
        if isinstance(shard, int):
            ranks = self._groups.shard(shard)
            gathered = self._idle("all_gather", parameters, ranks)
            reduced = self._idle("reduce_scatter", gradients, ranks)
        else:
            gathered = self._of_replicas("all_gather", parameters)
            reduced = self._of_replicas("reduce_scatter", gradients)
        return plan.parameter_gathers * gathered + plan.gradient_reductions * reduced

    def _slowed(self, device: int, communicates: int) -> int:
        """Return a device's compute where collectives hold SMs for so long, in ps.

        Only compute that is limited by arithmetic is slowed, and only beside them.
        """
        fast, moves = self._compute(device)
        beside = min(fast, max(communicates - moves, 0))
        return fast + moves + round(beside * self._held().sms)

    def _crowded(self, device: int, end: int, communicates: int) -> int:
        """Return when a device ends that also reduces and gathers for so long, in ps.

        What does not run in the gaps of its `end` takes SMs and memory bandwidth from compute,
        from that first which it slows least: of a step that grows by x for it, all but x.
        """
        fast, moves = self._compute(device)
        held = self._held()
        left, slower = max(communicates - (end - fast - moves), 0), 0.0
        for share, work in sorted(((held.sms, fast), (held.memory, moves))):
            beside = min(left, work)
            left -= beside
            slower += beside * share / (1 + share)
        return end + round(slower)

    def _compute(self, device: int) -> tuple[int, int]:
        """Return a device's compute that arithmetic limits and that memory limits, in ps."""
        if device not in self._computes:
            arithmetic, memory = (
                self._actions.of_each(partial(self._busy, memory=kind)) for kind in (False, True)
            )
            actions = self.plan.schedule.actions[device]
            self._computes[device] = (
                sum(arithmetic[work][stage] for work, stage, _ in actions),
                sum(memory[work][stage] for work, stage, _ in actions),
            )
        return self._computes[device]

    def _held(self) -> Share:
        """Return what collectives of replicas take of a GPU."""
        return self._share("all_gather", _PROBE, self._groups.ranks("dp"))

    def _share(self, kind: str, size: int, ranks: tuple[int, ...]) -> Share:
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

    def _busy(
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

    def _of_replicas(self, kind: str, size: int) -> int:
        return self._idle(kind, size, self._groups.ranks("dp"), axis="dp")

    def _tied(self) -> int:
        """Return what the ends of a pipeline take to reduce the token table that both hold."""
        if not self.plan.tied_bytes:
            return 0
        pipes, home = self.plan.schedule.pipes[0], self.plan.schedule.home
        ends = home[pipes[0]], home[pipes[-1]]
        ranks = tuple(self._groups.ranks("pp")[end] for end in ends)
        return self._idle("all_reduce", self.plan.tied_bytes, ranks, hop=ends)

    def _walk(self, fresh: Mapping[int, int]) -> StepMoments:
        """Return the first device's step; `fresh`: when parameters of its stages are there."""
        key = tuple(fresh.values())
        if key not in self._walks:
            self._walks[key] = self._run(fresh)
        return self._walks[key]

    def _run(self, fresh: Mapping[int, int]) -> StepMoments:
        plan = self.plan
        first = plan.schedule.home[plan.schedule.pipes[0][0]]
        if self._chains is None:
            self._chains = self._actions.of_each(self._serial)
        serial = self._chains
        pipes = self._groups.ranks("pp")
        free = [0] * plan.schedule.devices
        ends: dict[tuple[int, int], int] = {}
        hops: dict[tuple[int, int], int] = {}
        sent: dict[tuple[int, int], int] = {}  # when a message may leave after the one before
        firsts: dict[int, int] = {}
        lasts: dict[int, int] = {}
        for at in execution_order(plan.schedule):
            start = free[at.device]
            if at.producer is not None:
                hop = (at.producer[0], at.device)
                if hop not in hops:
                    ranks = (pipes[hop[0]], pipes[hop[1]])
                    hops[hop] = self._idle("send_recv", plan.boundary, ranks, hop=hop)
                leaves = max(ends[at.producer], sent.get(hop, 0))
                sent[hop] = leaves + hops[hop]
                start = max(start, leaves + hops[hop])
            work, stage, _ = at.action
            end = start + serial[work][stage]
            if at.device == first:
                if work == Work.F:
                    end = max(end, fresh.get(stage, 0))
                elif work != Work.I:
                    firsts.setdefault(stage, start)
                    lasts[stage] = start
            ends[at.device, at.position] = free[at.device] = end
        return StepMoments(free[first], min(firsts.values()), lasts)

    def _serial(self, work_list: tuple[WorkItem, ...], repeats: tuple[int, ...]) -> int:
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
                else self._idle(
                    _plain(item.kind),
                    item.size,
                    self._groups.ranks(item.axis),
                    axis=item.axis,
                )
            )
        return self._known[key]

    def _held_by(self, item: WorkItem) -> Share:
        """Return what communication beside compute takes of a GPU."""
        key = (item.kind, item.axis, item.size)
        if key not in self._shares:
            ranks = self._groups.ranks(item.axis)
            exchange = item.kind == EXCHANGE
            self._shares[key] = (
                self._share("send_recv", item.size, ranks[:2])
                if exchange
                else self._share(_plain(item.kind), item.size, ranks)
            )
        return self._shares[key]

    def _exchanged(self, item: WorkItem) -> int:
        """Return what the links take for a step of all rings, in ps: latencies of steps overlap."""
        key = (self.plan.layout, "ring", None)
        rows = self._groups.rows("ring")
        if not self._contended:
            return self._traffic.together("send_recv", item.size, rows[:1], key=(*key, "alone"))
        return self._traffic.together("send_recv", item.size, rows, key=key)

    def _idle(
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
        rows = self._groups.hops(*hop) if hop else self._groups.rows(axis)
        return max(alone, self._traffic.together(kind, size, rows, key=key))


def _moving(plan: Plan) -> int:
    """Return what an op takes on an idle cluster without its launch, in ps."""
    return max(sum(phase.idle + phase.tail for phase in part.phases) for part in plan.parts)


def _plain(kind: str) -> str:
    """Return the collective of an item; skewed all-to-alls take what even ones do, or more."""
    return kind if "skewed" not in kind else "all_to_all"


class Share(NamedTuple):
    """The shares of a GPU's SMs and of its memory bandwidth that communication takes."""

    sms: float
    memory: float


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


class StepMoments(NamedTuple):
    """When the first device ends, gets its first gradient, and begins each stage's last (ps)."""

    end: int
    first_backward: int
    last_backward: dict[int, int]
