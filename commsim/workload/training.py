"""
A training step as ops: forward and backward per layer, pipeline messages, gradient buckets.

Per rank one compute stream; a stream of all-reduces ("dp"); and four streams of pipeline
messages, a send and a receive in each direction, so that nothing waits behind the other
direction. A send leaves the compute stream free; a receive is posted when the action before
the previous one has ended, early enough to hide behind that one; compute waits for it.

The gradients of a layer are ready when its backward in the last microbatch has ended (earlier
microbatches accumulate, as under no_sync). After the last bucket the optimizer runs; the next
step's forward follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder, Phase, Tags
from commsim.models import BACKWARD_PER_FORWARD, boundary_bytes, parameter_count, training_flops
from commsim.workload.result import TrainingFacts, Workload
from commsim.workload.schedules import PHASE, Step, Work, execution_order
from commsim.workload.training_notes import training_notes
from commsim.workload.training_plan import Stage, TrainingPlan, plan_training
from commsim.workload.training_section import TrainingSection

__all__ = ["ADAM_BYTES", "ADAM_MEMORY_SHARE", "build_training"]

ADAM_BYTES = 28
"""Memory traffic of Adam per parameter: read the gradient (2) and write the parameter (2),
read and write the fp32 parameter and both moments (8 each). In fp32: 4 + 3 x 8, the same."""
ADAM_MEMORY_SHARE = 0.85
"""Share of the memory bandwidth that a fused optimizer reaches; an assumption, 0.85 to 0.9."""

COMPUTE, DP = "compute", "dp"
_LETTER = {Phase.FORWARD: "F", Phase.BACKWARD: "B"}
_DIRECTION = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward"}


@dataclass(slots=True)
class _Rank:
    """A rank under construction: where it is, how fast, and what it did last."""

    lane: int
    replica: int
    stage: Stage
    tflops: float
    memory_bandwidth: float
    ends: list[int] = field(default_factory=list)
    """The last op of each action, and the optimizers."""
    reductions: list[int] = field(default_factory=list)
    """What the optimizer of this step waits for."""


def build_training(
    section: TrainingSection, cluster: Cluster, *, where: str = "training"
) -> Workload:
    """Return the graph of `section.steps` training steps on all GPUs of `cluster`.

    Raises:
        ScenarioError: see `plan_training`; every message carries the field's path.
    """
    plan = plan_training(section, cluster, where=where)
    emit = _Emitter(plan, cluster, overlap=section.data_parallel.overlap, where=where)
    for step in range(section.steps):
        emit.step(step)
    graph = emit.build.build({"schedule": plan.schedule.name, "steps": section.steps})
    return Workload("training", graph, training_notes(section, plan), _facts(plan, cluster))


class _Emitter:
    """Issues the ops of all ranks in an order in which each could run."""

    def __init__(self, plan: TrainingPlan, cluster: Cluster, *, overlap: bool, where: str) -> None:
        self.plan = plan
        self.overlap = overlap
        self.build = GraphBuilder()
        layout = plan.layout
        self.dp, self.pp = layout.degree("dp"), layout.degree("pp")
        self.ranks = {
            rank: _Rank(
                lane=self.build.lane(rank),
                replica=replica,
                stage=plan.stages[stage],
                tflops=_tflops(cluster, rank, plan.precision, where) * plan.efficiency,
                memory_bandwidth=cluster.gpu(rank).memory_bandwidth,
            )
            for rank, replica, stage in sorted(
                (layout.rank({"dp": replica, "pp": stage}), replica, stage)
                for replica in range(self.dp)
                for stage in range(self.pp)
            )
        }
        self._make_groups()
        self.last_backward = [
            max(at for at, action in enumerate(actions) if action.work == Work.B)
            for actions in plan.schedule.actions
        ]
        self.boundary = boundary_bytes(
            plan.model.shape, batch=plan.micro, seq=plan.model.seq_len, width=plan.width
        )

    def _make_groups(self) -> None:
        layout, group = self.plan.layout, self.build.group
        self.dp_groups, self.pp_groups, self.tied_groups = [], [], []
        if self.dp > 1:
            for stage in range(self.pp):
                name = f"dp stage {stage}" if self.pp > 1 else "dp"
                self.dp_groups.append(group(name, layout.along("dp", {"pp": stage}), axis="dp"))
        for replica in range(self.dp if self.pp > 1 else 0):
            name = f" replica {replica}" if self.dp > 1 else ""
            ranks = layout.along("pp", {"dp": replica})
            self.pp_groups.append(group(f"pp{name}", ranks, axis="pp"))
            if self.plan.tied_bytes:
                ends = (ranks[0], ranks[-1])
                self.tied_groups.append(group(f"embedding{name}", ends, axis="pp"))

    def step(self, step: int) -> None:
        """Issue one training step of all ranks."""
        last = [len(actions) - 1 for actions in self.plan.schedule.actions]
        for at in execution_order(self.plan.schedule):
            for replica in range(self.dp):
                rank = self.ranks[self._rank(replica, at.device)]
                self._action(rank, at, step)
                if at.position == last[at.device]:
                    self._optimizer(rank, at, step)

    def _rank(self, replica: int, device: int) -> int:
        return self.plan.layout.rank({"dp": replica, "pp": device})

    def _action(self, rank: _Rank, at: Step, step: int) -> None:
        received = self._receive(rank, at, step)
        if at.action.work == Work.F:
            ended = self._forward(rank, at, step, received)
        else:
            ready = self._backward(rank, at, step, received)
            ended = ready[0]
            if at.position == self.last_backward[at.device]:
                self._reduce(rank, at, step, ready)
        self._send(rank, at, step, ended)
        rank.ends.append(ended)

    def _forward(self, rank: _Rank, at: Step, step: int, after: list[int]) -> int:
        ended = -1
        for index, unit in enumerate(rank.stage.units):
            if unit.flops:
                ended = self._compute(rank, at, step, index, after)
                after = []
        return ended

    def _backward(self, rank: _Rank, at: Step, step: int, after: list[int]) -> dict[int, int]:
        """Issue the backward of a stage; return the op after which each unit has its gradients."""
        ready: dict[int, int] = {}
        ended = -1
        for index in reversed(range(len(rank.stage.units))):
            if rank.stage.units[index].flops:
                ended = self._compute(rank, at, step, index, after)
                after = []
            ready[index] = ended
        return ready

    def _compute(self, rank: _Rank, at: Step, step: int, index: int, after: list[int]) -> int:
        unit, phase = rank.stage.units[index], PHASE[at.action.work]
        flops = unit.flops * (1 if phase == Phase.FORWARD else BACKWARD_PER_FORWARD)
        return self.build.compute(
            rank.lane,
            round(flops / rank.tflops),  # FLOPs / (1e12 FLOP/s) are picoseconds
            name=f"{_LETTER[phase]} {unit.name}",
            stream=COMPUTE,
            after=after,
            tags=self._tags(at, step, layer=unit.layer),
            flops=float(flops),
        )

    def _receive(self, rank: _Rank, at: Step, step: int) -> list[int]:
        if not at.sources:
            return []
        op = self.build.recv(
            rank.lane,
            self._rank(rank.replica, at.sources[0][0]),
            self.boundary,
            group=self.pp_groups[rank.replica],
            stream=f"pp {_DIRECTION[PHASE[at.action.work]]} recv",
            after=rank.ends[-2:-1],
            tags=self._tags(at, step),
        )
        return [op]

    def _send(self, rank: _Rank, at: Step, step: int, ended: int) -> None:
        if at.feeds < 0:
            return
        self.build.send(
            rank.lane,
            self._rank(rank.replica, at.feeds),
            self.boundary,
            group=self.pp_groups[rank.replica],
            stream=f"pp {_DIRECTION[PHASE[at.action.work]]} send",
            after=[ended],
            tags=self._tags(at, step),
        )

    def _reduce(self, rank: _Rank, at: Step, step: int, ready: dict[int, int]) -> None:
        """All-reduce the buckets in index order, then the token table that two stages share."""
        rank.reductions = []
        tags = Tags(step=step, stage=self._stage_tag(at))
        if self.dp > 1:
            rank.reductions = [
                self.build.collective(
                    rank.lane,
                    self.dp_groups[at.action.stage],
                    "all_reduce",
                    bucket.size,
                    stream=DP,
                    name=f"all_reduce bucket {index}",
                    dtype=self.plan.precision,
                    after=[ready[bucket.unit if self.overlap else 0]],
                    tags=tags,
                )
                for index, bucket in enumerate(rank.stage.buckets)
            ]
        if self.plan.tied_bytes and at.action.stage in (0, self.pp - 1):
            op = self.build.collective(
                rank.lane,
                self.tied_groups[rank.replica],
                "all_reduce",
                self.plan.tied_bytes,
                stream="embedding",
                name="all_reduce embedding",
                dtype=self.plan.precision,
                after=rank.reductions[-1:] or [ready[0]],
                tags=tags,
            )
            rank.reductions.append(op)

    def _optimizer(self, rank: _Rank, at: Step, step: int) -> None:
        traffic = ADAM_BYTES * rank.stage.parameters
        seconds = traffic / (ADAM_MEMORY_SHARE * rank.memory_bandwidth)
        op = self.build.compute(
            rank.lane,
            round(seconds * 1e12),
            name="optimizer",
            stream=COMPUTE,
            after=rank.reductions,
            tags=Tags(phase=Phase.OPTIMIZER, step=step, stage=self._stage_tag(at)),
            traffic=float(traffic),
        )
        rank.ends.append(op)

    def _tags(self, at: Step, step: int, *, layer: int = -1) -> Tags:
        action = at.action
        return Tags(PHASE[action.work], step, action.microbatch, self._stage_tag(at), layer)

    def _stage_tag(self, at: Step) -> int:
        return at.action.stage if self.pp > 1 else -1


def _tflops(cluster: Cluster, rank: int, precision: str, where: str) -> float:
    gpu = cluster.gpu(rank)
    if not gpu.tflops.get(precision):
        known = ", ".join(gpu.tflops) or "none"
        raise ScenarioError(f"{where}.precision: {gpu.name} has no {precision}; it has {known}.")
    return gpu.tflops[precision]


def _facts(plan: TrainingPlan, cluster: Cluster) -> TrainingFacts:
    layout, shape, seq = plan.layout, plan.model.shape, plan.model.seq_len
    sequences = layout.degree("dp") * plan.micro * plan.microbatches
    held = {
        layout.rank({"dp": replica, "pp": index}): stage.parameters
        for replica in range(layout.degree("dp"))
        for index, stage in enumerate(plan.stages)
    }
    peaks = [cluster.gpu(rank).tflops[plan.precision] * 1e12 for rank in range(layout.world)]
    return TrainingFacts(
        model_flops=float(training_flops(shape, batch=sequences, seq=seq)),
        flop_convention="full attention (not causal), no recompute",
        tokens=sequences * seq,
        parameters=parameter_count(shape),
        rank_parameters=tuple(held[rank] for rank in range(layout.world)),
        peak_flops=sum(peaks) / len(peaks),
    )
