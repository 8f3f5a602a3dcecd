"""
What is known of a layout before it is simulated: its memory, and a lower bound of its step time.

Memory is exact: what a rank holds all the time, plus the activations that its schedule holds at
once. The floor is the time that a run needs even if all links are idle, the larger of two:

- the first device's compute and its exposed collectives and messages in the order of the schedule,
  parameters gathered by the end of its first forward, gradients (of experts too) reduced after
  their backward,
  all collectives of sharded parameters in sequence (and the SMs that they take from compute),
  and the all-reduce of a tied token table between the first and the last stage, once both have
  reduced their gradients;
- the bytes that all nodes send, over all of their NICs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.libraries import Library
from commsim.models import ComputeModel, MemoryUse
from commsim.study.advise.action_times import ActionTimes
from commsim.study.advise.shards import Pace, Shards, Share, UnitTime
from commsim.study.advise.traffic import StepTraffic
from commsim.units import PS_PER_SECOND
from commsim.workload import Schedule, Work, execution_order
from commsim.workload.training import (
    Actions,
    StageOps,
    TrainingPlan,
    Unit,
    resident_memory,
)

__all__ = ["Floor"]

_PROBE = 2**26


class Floor:
    """Memory and floor of layouts that differ only in how replicas shard their state."""

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
        known: dict[Hashable, StageOps] | None = None,
    ) -> None:
        self.plan = plan
        self._model = model
        self._traffic = traffic
        self._action_times = ActionTimes(
            plan, cluster, library, model, traffic, slows=slows, contended=contended
        )
        self._groups = self._action_times.groups
        self._actions = Actions(plan, model, known)
        self._layer_bytes_s: float | None = None
        self._moments: dict[tuple[int, ...], StepMoments] = {}
        self._unsharded_paces: dict[Work, list[Pace]] | None = None
        self._unit_times: dict[Work, list[list[tuple[int, UnitTime]]]] | None = None
        self._compute_times: dict[int, tuple[int, int]] = {}

    def memory(self, plan: TrainingPlan, peaks: Sequence[int]) -> tuple[MemoryUse, int]:
        """Return the memory use of the fullest device, and its number; `peaks`: see `peaks()`."""
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
        """Return a lower bound of the step time, in seconds."""
        device = plan.schedule.home[plan.schedule.pipes[0][0]]
        entries = sum(stage.parameters for stage in plan.held(device))
        optimizer = self._model.optimizer(-(-entries // plan.sharers)).seconds
        alone = (self._replicas(plan, device) + self._tied()) / PS_PER_SECOND + optimizer
        alone -= self._step_boundary(plan)
        if self._layer_bytes_s is None:
            self._layer_bytes_s = self._traffic.inside(self.plan, self._actions, self._groups)
        return max(alone, self._layer_bytes_s + self._traffic.sharing(plan, self._groups))

    def _step_boundary(self, plan: TrainingPlan) -> float:
        """Return the seconds by which the optimizer of the step before may end late on any device.

        The receives of this step's first messages are posted by then and slow it; nothing is posted
        at the end of the last step.
        """
        if plan.schedule.devices < 2:
            return 0.0
        pair = self._groups.ranks("pp")[:2]
        taken = 2 * self._action_times.share("send_recv", plan.boundary, pair).memory
        entries = max(
            sum(stage.parameters for stage in plan.held(device))
            for device in range(plan.schedule.devices)
        )
        optimizer = self._model.optimizer(-(-entries // plan.sharers)).seconds
        return optimizer * taken / (1 - taken) if taken < 1 else optimizer

    def units(self) -> dict[Work, list[tuple[Unit, int]]]:
        """Return the time (ps) that each unit of the first stage adds to its action.

        A run of equal units is listed as two: the first, and any further one. Collectives are timed
        on idle links.
        """
        units = self._actions.units(0)
        taken = self._actions.of_each(self._action_times.added)
        return {
            work: [(units[number], took) for number, took in rows[0].items()]
            for work, rows in taken.items()
        }

    def _replicas(self, plan: TrainingPlan, device: int) -> int:
        """Return when the first device has its gradients, in ps."""
        if plan.sharers == 1:
            return self._first_device({}).end
        data = plan.section.data_parallel
        if data.kind not in ("ddp", "zero"):
            return self._sharded(plan, device)
        families = [
            found
            for expert in (False, True)
            if (found := self._family(plan, device, expert=expert)) is not None
        ]
        moments = self._first_device(_ready(families))
        gathered = sum(family.gathered for family in families)  # on one stream
        end = moments.end
        every = data.stage == 2 and not data.no_sync
        most = max(family.reduced for family in families) * (plan.microbatches if every else 1)
        overlapping = self._overlapping_end(device, end, most + gathered)
        own = moments.backwards[device]
        ends = [family.ends(own if every else _last(own)) for family in families]
        if plan.tied_bytes:  # the other end of the pipeline reduces its table with this one's
            other = plan.schedule.home[plan.schedule.pipes[0][-1]]
            there = moments.backwards[other]
            ends += [
                family.ends(there if every else _last(there))
                for expert in (False, True)
                if (family := self._family(plan, other, expert=expert)) is not None
            ]
        return max(overlapping, *ends)

    def _family(self, plan: TrainingPlan, device: int, *, expert: bool) -> ReplicaTraffic | None:
        """Return what replicas share of dense parameters, or of experts; None if nothing."""
        axis, data = "edp" if expert else "dp", plan.section.data_parallel
        entries = {
            stage.number: sum(unit.entries(expert=expert) for unit in stage.units)
            for stage in sorted(plan.held(device), key=lambda stage: stage.part)
        }
        whole, ranks = sum(entries.values()), self._groups.ranks(axis)
        if not whole or len(ranks) == 1:
            return None

        def takes(kind: str, width: int) -> int:
            return self._action_times.idle(kind, whole * width, ranks, axis=axis)

        reduced = takes(
            "all_reduce" if data.kind == "ddp" else "reduce_scatter", plan.gradient_width
        )
        gathered = takes("all_gather", plan.width) if data.kind == "zero" else 0
        return ReplicaTraffic(entries, whole, reduced, gathered)

    def _sharded(self, plan: TrainingPlan, device: int) -> int:
        """Return when the first device has its gradients if parameters are sharded, in ps."""
        shard = plan.section.data_parallel.shard
        ranks = self._groups.ranks("dp")
        inside = self._groups.shard(shard) if isinstance(shard, int) else ranks
        copies = self._groups.between(shard) if isinstance(shard, int) else ()
        owners = inside[:: plan.section.parallel.ep]

        def within(kind: str, size: int, *, expert: bool) -> int:
            if expert:
                return self._action_times.idle(kind, size, owners)
            return self._action_times.idle(kind, size, inside, axis="dp" if inside is ranks else "")

        def between(size: int) -> int:
            return self._action_times.idle("all_reduce", size, copies) if copies else 0

        shards = Shards(
            plan, self._model, shards=len(inside), held=self._held(), within=within, between=between
        )
        ends = self._sharded_paces(shards, at_the_ends=True)
        end = self._pipeline(self._sharded_paces(shards), {}, at_the_ends=ends).end
        whole = sum(
            unit.entries(expert=False) for stage in plan.held(device) for unit in stage.units
        )
        gathered = within("all_gather", whole * plan.width, expert=False)
        reduced = within("reduce_scatter", whole * plan.gradient_width, expert=False)
        return max(end, plan.parameter_gathers * gathered + plan.gradient_reductions * reduced)

    def _sharded_paces(
        self, shards: Shards, *, at_the_ends: bool = False
    ) -> dict[Work, list[Pace]]:
        """Return the pace of each kind of action, by stage (see `Shards.pace`)."""
        if self._unit_times is None:
            self._unit_times = self._actions.of_each(self._action_times.of_units)
        found: dict[Work, list[Pace]] = {}
        known: dict[tuple[Work, int], Pace] = {}
        for work, rows in self._unit_times.items():
            found[work] = []
            for stage, times in enumerate(rows):
                key = (work, id(times))
                if key not in known:
                    units = self._actions.units(stage)
                    known[key] = shards.pace(
                        work,
                        [(units[number], time) for number, time in times],
                        at_the_ends=at_the_ends,
                    )
                found[work].append(known[key])
        return found

    def _overlapping_end(self, device: int, end: int, communicates: int) -> int:
        """Return when a device ends (ps) if it also communicates for `communicates` ps.

        Communication that does not fit in the idle time before `end` overlaps compute and takes SMs
        and memory bandwidth from it: first from the compute that it slows least, which keeps the
        result a lower bound. If it stretches the step by x, only the rest of it has overlapped.
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
        """Return a device's compute (ps): limited by arithmetic, and limited by memory."""
        if device not in self._compute_times:
            arithmetic, memory = (
                self._actions.of_each(partial(self._action_times.busy, memory=kind))
                for kind in (False, True)
            )
            actions = self.plan.schedule.actions[device]
            self._compute_times[device] = (
                sum(arithmetic[work][stage] for work, stage, _ in actions),
                sum(memory[work][stage] for work, stage, _ in actions),
            )
        return self._compute_times[device]

    def _held(self) -> Share:
        """Return the shares of a GPU that collectives of replicas take at least.

        Holders of the same experts are fewer, on fewer channels, than those of dense parameters.
        """
        axes = ("dp", "edp") if self.plan.model.shape.experts else ("dp",)
        groups = [ranks for axis in axes if len(ranks := self._groups.ranks(axis)) > 1]
        found = [self._action_times.share("all_gather", _PROBE, ranks) for ranks in groups]
        return Share(min(one.sms for one in found), min(one.memory for one in found))

    def _tied(self) -> int:
        """Return the time (ps) of reducing a token table that both ends of a pipeline hold."""
        if not self.plan.tied_bytes:
            return 0
        pipes, home = self.plan.schedule.pipes[0], self.plan.schedule.home
        ends = home[pipes[0]], home[pipes[-1]]
        ranks = tuple(self._groups.ranks("pp")[end] for end in ends)
        return self._action_times.idle("all_reduce", self.plan.tied_bytes, ranks, hop=ends)

    def _first_device(self, gathered: Mapping[int, int]) -> StepMoments:
        """Return the first device's step; `gathered`: when each stage has its parameters."""
        key = tuple(gathered.values())
        if key not in self._moments:
            if self._unsharded_paces is None:
                serial = self._actions.of_each(self._action_times.serial)
                self._unsharded_paces = {
                    work: [Pace(took, late=took) for took in row] for work, row in serial.items()
                }
            self._moments[key] = self._pipeline(self._unsharded_paces, gathered)
        return self._moments[key]

    def _pipeline(
        self,
        paces: Mapping[Work, Sequence[Pace]],
        gathered: Mapping[int, int],
        *,
        at_the_ends: Mapping[Work, Sequence[Pace]] | None = None,
    ) -> StepMoments:
        """Return when the first device ends; `at_the_ends` are the paces of a stage's first
        forward and last gradient, if others."""
        plan, outer = self.plan, at_the_ends or paces
        limits = _limits(plan.schedule) if at_the_ends else {}
        first = plan.schedule.home[plan.schedule.pipes[0][0]]
        pipes = self._groups.ranks("pp")
        free = [0] * plan.schedule.devices
        busy = [0] * plan.schedule.devices  # with collectives of replicas
        between = 0  # the first device's, between HSDP's copies
        ends: dict[tuple[int, int], int] = {}
        hops: dict[tuple[int, int], int] = {}
        sent: dict[tuple[int, int], int] = {}  # when a message may leave after the one before
        backwards: list[list[tuple[int, int]]] = [[] for _ in free]
        for at in execution_order(plan.schedule):
            work, stage, _ = at.action
            edge = at.position in limits.get(stage, ())
            pace = (outer if edge else paces)[work][stage]
            start = issued = max(free[at.device], busy[at.device] if pace.lead else 0)
            if at.producer is not None:
                hop = (at.producer[0], at.device)
                if hop not in hops:
                    ranks = (pipes[hop[0]], pipes[hop[1]])
                    hops[hop] = self._action_times.idle("send_recv", plan.boundary, ranks, hop=hop)
                leaves = max(ends[at.producer], sent.get(hop, 0))
                sent[hop] = leaves + hops[hop]
                start = max(start, leaves + hops[hop])
            end = pace.end(issued, start)
            if at.device == first:
                every, after = pace.between
                between = max(between + every, end + after)
                if work == Work.F:
                    end = max(end, gathered.get(stage, 0))
            if work not in (Work.F, Work.I):
                backwards[at.device].append((start, stage))
            ends[at.device, at.position] = free[at.device] = end
            busy[at.device] = max(busy[at.device], end + pace.tail if pace.tail else 0)
        return StepMoments(max(free[first], busy[first], between), backwards)


def _limits(schedule: Schedule) -> dict[int, tuple[int, int]]:
    """Return at which positions of its device a stage has its first forward and last gradient."""
    found: dict[int, tuple[int, int]] = {}
    for actions in schedule.actions:
        for position, (work, stage, _) in enumerate(actions):
            first, last = found.get(stage, (-1, -1))
            if work == Work.F:
                first = position if first < 0 else first
            elif work != Work.I:
                last = position
            found[stage] = first, last
    return found


class ReplicaTraffic(NamedTuple):
    """Dense parameters of a device's stages, or experts: entries, ps to reduce and to gather."""

    entries: dict[int, int]
    whole: int
    reduced: int
    gathered: int

    def ends(self, backwards: Sequence[tuple[int, int]]) -> int:
        """Return when all is reduced (ps): a stage's gradients from the start of a backward on, one
        after another."""
        end = 0
        for start, stage in backwards:
            end = max(end, start) + self.reduced * self.entries[stage] // self.whole
        return end


def _last(backwards: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the last backward of each stage."""
    return sorted((start, stage) for stage, start in {s: at for at, s in backwards}.items())


def _ready(families: Sequence[ReplicaTraffic]) -> dict[int, int]:
    """Return when each stage has its parameters (ps), which are gathered one after another."""
    if not any(family.gathered for family in families):
        return {}
    found, end = {}, 0
    for stage in families[0].entries:
        end += sum(one.gathered * one.entries[stage] // one.whole for one in families)
        found[stage] = end
    return found


class StepMoments(NamedTuple):
    """When the first device ends (ps), and when each device begins the gradients of its stages."""

    end: int
    backwards: list[list[tuple[int, int]]]
