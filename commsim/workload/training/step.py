"""
A training step as ops, for the ranks that a fold lets stand for themselves and others.

The actions of the pipeline schedule are issued in an order in which each could run. Messages
between stages have a stream per neighbour and direction: a send leaves the compute stream free;
receives from a neighbour are posted in the order in which it sends, when the action before the
previous one has ended, early enough to hide behind that one; compute waits for them.

Forward and backward that run as one (DualPipe) take turns on the compute stream item by item,
so that the communication of one runs alongside the compute of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from commsim.cluster import Cluster
from commsim.follow import Follow, unfollowed
from commsim.graph import Fold, Graph, GraphBuilder, Tags, refold
from commsim.models import ComputeModel, compute_model
from commsim.workload.schedules import PHASE, ScheduleStep, Work
from commsim.workload.training.axes import Axes, hop_name
from commsim.workload.training.bucketed import Bucketed
from commsim.workload.training.course import Course, StepEnds, course_of, shorter_schedule, warm_up
from commsim.workload.training.lanes import Chain, Lane
from commsim.workload.training.memory import with_memory
from commsim.workload.training.operations import check_operations
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.replicas import ActionContext, ReplicaStrategy, add_optimizer
from commsim.workload.training.sharded import Sharded
from commsim.workload.training.stage_compiler import StageOps
from commsim.workload.training.work_items import WorkItem, joined

__all__ = ["StepBuilder", "build_steps"]

MERGED_ABOVE = 60_000
"""Ops per step from which the layers of a stage are one op where nothing tells them apart."""

SHORTENED_ABOVE = 20_000
"""Work items per step from which the steps before the measured one may be shorter."""


def build_steps(
    plan: TrainingPlan,
    cluster: Cluster,
    axes: Axes,
    fold: Fold,
    *,
    shorten: bool = False,
    unfolds: bool = False,
    follow: Follow = unfollowed,
) -> Graph:
    """Return the graph of all steps, with lanes for the representatives of `fold`.

    `unfolds`: every rank gets a lane in the end, with what its representative does, which is laid
    down once and copied by columns. With `shorten`, large steps before the last one, which is
    measured, have so few microbatches as fill the pipeline twice: the last one begins with what
    their ends leave, which is the same. `follow` gets to know which share of the actions is issued.
    """
    builder = StepBuilder(plan, cluster, axes, fold, unfolds=unfolds)
    shorter = shorter_schedule(plan) if shorten and builder.items > SHORTENED_ABOVE else None
    check_operations(
        plan,
        builder.items // plan.microbatches,
        lanes=builder.lane_count,
        earlier=plan.microbatches if shorter is None else warm_up(plan),
        unfolds=unfolds,
    )
    last = course_of(plan.schedule)
    earlier = last if shorter is None else course_of(shorter)
    courses = [earlier] * (plan.section.steps - 1) + [last]
    actions = sum(builder.actions(course) for course in courses)
    follow(lambda: builder.performed / actions)
    for step, course in enumerate(courses):
        builder.step(step, course)
    meta: dict[str, object] = {"schedule": plan.schedule.name, "steps": plan.section.steps}
    if shorter is not None:
        meta["earlier_microbatches"] = warm_up(plan)
    graph = builder.build.build(meta)
    return refold(graph, np.arange(len(fold.stands))) if unfolds else graph


class StepBuilder:
    """Issues the ops of all lanes, step by step."""

    def __init__(
        self, plan: TrainingPlan, cluster: Cluster, axes: Axes, fold: Fold, *, unfolds: bool
    ) -> None:
        self.plan = plan
        self.axes = axes
        self.build = GraphBuilder(fold)
        self.models: dict[int, ComputeModel] = {}
        self.lanes: list[list[Lane]] = [[] for _ in range(plan.schedule.devices)]
        ranks = fold.multiplicities()
        self._times = ranks.tolist() if unfolds else [1] * len(ranks)  # lanes in the end, by rank
        self._written: dict[tuple[int, int, bool], tuple[StageOps, StageOps]] = {}
        for rank in fold.representatives:
            lane = self._lane(rank, cluster)
            self.lanes[lane.device].append(lane)
        self.strategy = _strategy(plan, self.build, cluster, axes, self._model_of)
        self.lane_count = sum(self._times[lane.rank] for lanes in self.lanes for lane in lanes)
        layers = plan.model.shape.layers // plan.schedule.devices
        self.merges = self.lane_count * 2 * plan.microbatches * layers > MERGED_ABOVE
        self.course = Course({}, StepEnds({}, {}, {}), [])
        self.received: dict[tuple[int, int, int], int] = {}
        self.performed = 0

    def _model_of(self, rank: int) -> ComputeModel:
        """Return the compute model of a rank's GPU."""
        return self.models[int(self.axes.gpu[rank])]

    def _lane(self, rank: int, cluster: Cluster) -> Lane:
        device, kind = int(self.axes.places["pp"][rank]), int(self.axes.gpu[rank])
        if kind not in self.models:
            section = self.plan.section
            self.models[kind] = compute_model(
                cluster.gpu(rank),
                precision=section.precision,
                section=section.compute,
                where=self.plan.where,
                gpus=int((self.axes.gpu == kind).sum()),
            )
        skew, place = self._skew(rank)
        load = skew[place] * len(skew) if skew else 1.0
        written = {
            stage.number: self._stage_ops(stage.number, kind, load)
            for stage in self.plan.held(device)
        }
        return Lane(
            self.build.lane(rank),
            rank,
            device,
            {stage: whole for stage, (whole, _) in written.items()},
            {stage: merged for stage, (_, merged) in written.items()},
            skew,
            place,
        )

    def _skew(self, rank: int) -> tuple[tuple[float, ...], int]:
        """Return the share of tokens of each expert rank, and this rank's place among them."""
        parallel = self.plan.section.parallel
        if parallel.expert_skew == 1 or parallel.ep == 1:
            return (), -1
        busiest = parallel.expert_skew / parallel.ep
        rest = (1 - busiest) / (parallel.ep - 1)
        return (busiest, *([rest] * (parallel.ep - 1))), self.axes.expert_place(rank)

    def _stage_ops(self, stage: int, kind: int, load: float) -> tuple[StageOps, StageOps]:
        """Return the work items of a stage, by unit and with units merged."""
        key = (self.plan.stages[stage].part, kind, load > 1)
        if key not in self._written:
            model = self.models[kind]
            whole = self.plan.compiler(model, load=load).compile(self.plan.stages[stage].units)
            whole = with_memory(whole, self.plan, model, self.plan.stages[stage].units)
            self._written[key] = (_map(whole, across=False), _map(whole, across=True))
        return self._written[key]

    @property
    def items(self) -> int:
        """The work items of a step, of all lanes together."""
        return self.plan.microbatches * sum(
            (len(whole.forward) + len(whole.backward)) * self._times[lane.rank]
            for lanes in self.lanes
            for lane in lanes
            for whole in (lane.merged if self.merges else lane.stage_ops).values()
        )

    def actions(self, course: Course) -> int:
        """Return how many actions of a lane a step has, of all lanes."""
        return sum(len(self.lanes[actions[0].device]) for actions in course.together)

    def step(self, step: int, course: Course) -> None:
        """Issue one training step of all lanes."""
        self.course = course
        for actions in course.together:
            for lane in self.lanes[actions[0].device]:
                self._perform(lane, actions, step)
                self.performed += 1
                if actions[-1].position == course.limits.final[lane.device]:
                    self._finish(lane, step)

    def _perform(self, lane: Lane, actions: tuple[ScheduleStep, ...], step: int) -> None:
        """Issue an action, or two that run as one."""
        received = [op for at in actions for op in self._receive(lane, at, step)]
        chains = [
            Chain(
                self.build,
                lane,
                self._tags(at, step),
                after=[*received, *lane.tail],
                precision=self.plan.dtype,
            )
            for at in actions
        ]
        running = [
            self._items(lane, at, step, chain) for at, chain in zip(actions, chains, strict=True)
        ]
        while running:
            running = [items for items in running if next(items, None) is not None]
        lane.tail = []
        for at, chain in zip(actions, chains, strict=True):
            ends = chain.ends()
            lane.tail += ends[:1] if not chain.on_compute else []
            lane.tail += ends[1:]
            self._send(lane, at, step, ends)
        lane.ends.append(chains[-1].last)

    def _items(self, lane: Lane, at: ScheduleStep, step: int, chain: Chain) -> Iterator[WorkItem]:
        """Issue the items of an action one by one, and tell the strategy of its units."""
        work, stage, _ = at.action
        place = ActionContext(
            at,
            step,
            work == Work.F,
            first=at.position == self.course.limits.first[stage],
            last=at.position == self.course.limits.last[stage],
        )
        yield from self._gather_boundary(lane, at, chain)
        apart = self.strategy.separates_units(place)
        stage_ops = lane.stage_ops if apart or not self.merges else lane.merged
        work_list = getattr(stage_ops[stage], _LIST_OF[work])
        units = range(len(self.plan.stages[stage].units))
        order = list(units if work == Work.F else reversed(units))
        done: list[int] = []
        for group in [[unit] for unit in order] if apart else [order]:
            if work != Work.W:
                for unit in group:
                    chain.wait(self.strategy.before_unit(lane, place, unit, done))
            for item in work_list:
                if not apart or item.unit == group[0]:
                    chain.add(item)
                    yield item
            if chain.last >= 0:
                done.append(chain.last)
                for unit in group if work != Work.I else ():
                    self.strategy.after_unit(lane, place, unit, chain.last)

    def _gather_boundary(self, lane: Lane, at: ScheduleStep, chain: Chain) -> Iterator[WorkItem]:
        """Gather a boundary of which each rank received its part (scatter-gather)."""
        parallel = self.plan.section.parallel
        if parallel.scatter_gather and parallel.tp > 1 and at.producer is not None:
            whole = self.plan.boundary * parallel.tp
            item = WorkItem(-1, "all_gather boundary", -1, "all_gather", axis="tp", size=whole)
            chain.add(item)
            yield item

    def _receive(self, lane: Lane, at: ScheduleStep, step: int) -> list[int]:
        """Post the messages that a neighbour sends up to the one this action needs."""
        for source, position, work in self.course.posts.get((at.device, at.position), ()):
            hop = hop_name(source, at.device)
            self.received[lane.lane, source, position] = self.build.recv(
                lane.lane,
                hop,
                self.plan.boundary,
                group=self.build.orbit("pp", lane.rank),
                stream=f"{hop} recv",
                after=lane.ends[-2:-1],
                tags=self._tags(at, step)._replace(phase=PHASE[work]),
            )
        if at.producer is None:
            return []
        return [self.received.pop((lane.lane, *at.producer))]

    def _send(self, lane: Lane, at: ScheduleStep, step: int, after: list[int]) -> None:
        if at.feeds < 0:
            return
        hop = hop_name(at.device, at.feeds)
        self.build.send(
            lane.lane,
            hop,
            self.plan.boundary,
            group=self.build.orbit("pp", lane.rank),
            stream=f"{hop} send",
            after=after,
            tags=self._tags(at, step),
        )

    def _finish(self, lane: Lane, step: int) -> None:
        """Issue what is left of the reductions, the optimizer, and what follows it."""
        stage = self.plan.held(lane.device)[0].number if self.plan.schedule.stages > 1 else -1
        waits = self.strategy.finish_reductions(lane, step)
        if self.plan.tied_bytes and self._at_an_end(lane.device):
            waits.append(
                self.build.collective(
                    lane.lane,
                    self.build.orbit("embedding", lane.rank),
                    "all_reduce",
                    self.plan.tied_bytes,
                    stream="embedding",
                    name="all_reduce embedding",
                    dtype=self.plan.dtype,
                    after=waits[-1:] or lane.ends[-1:],
                    tags=Tags(step=step, stage=stage),
                )
            )
        optimizer = add_optimizer(
            self.build,
            lane,
            self.strategy.optimizer_entries(lane.device),
            self._model_of(lane.rank),
            step=step,
            stage=stage,
            after=[*waits, *lane.tail],
        )
        lane.tail = []
        lane.ends.append(optimizer)
        self.strategy.after_optimizer(lane, step, optimizer)

    def _at_an_end(self, device: int) -> bool:
        home, pipe = self.plan.schedule.home, self.plan.schedule.pipes[0]
        return device in (home[pipe[0]], home[pipe[-1]])

    def _tags(self, at: ScheduleStep, step: int) -> Tags:
        work, stage, microbatch = at.action
        staged = self.plan.schedule.stages > 1
        return Tags(PHASE[work], step, microbatch, stage if staged else -1)


_LIST_OF = {Work.F: "forward", Work.B: "backward", Work.I: "input_backward", Work.W: "weight"}


def _map(stage_ops: StageOps, *, across: bool) -> StageOps:
    return StageOps(
        *(
            joined(work_list, across_units=across)
            for work_list in (
                stage_ops.forward,
                stage_ops.backward,
                stage_ops.input_backward,
                stage_ops.weight,
            )
        )
    )


def _strategy(
    plan: TrainingPlan,
    build: GraphBuilder,
    cluster: Cluster,
    axes: Axes,
    model_of: Callable[[int], ComputeModel],
) -> ReplicaStrategy:
    """Return how the replicas of a plan keep their parameters equal."""
    data, ep = plan.section.data_parallel, plan.section.parallel.ep
    experts = plan.expert_sharers
    sizes = {False: plan.sharers, True: experts}
    names = {False: "dp"}
    if plan.model.shape.experts is not None and experts > 1:
        names[True] = "edp" if ep > 1 else "dp"
    if plan.sharers == experts == 1 and not data.offload:
        return ReplicaStrategy(plan, build)
    if data.offload and plan.model.shape.experts is not None:
        names.setdefault(True, "edp")  # of one rank: nothing to reduce, but copies to the host
    if data.kind in ("fsdp", "hsdp") or data.stage == 3:
        if data.kind != "hsdp":
            return Sharded(plan, build, axes=names, sizes=sizes, model_of=model_of)
        size = int(data.shard or 1)
        between = "replicate" if size < plan.replicas else ""
        return Sharded(
            plan,
            build,
            axes={False: "shard", True: "shard"},
            sizes={False: size, True: size},
            model_of=model_of,
            between=between,
        )
    return Bucketed(plan, build, cluster, axes=names, sizes=sizes)
