"""A rank that runs the whole model by itself: what DataParallel and a parameter server build on."""

from __future__ import annotations

from commsim.cluster import Cluster
from commsim.graph import GraphBuilder, Phase, Tags
from commsim.models import ComputeModel, compute_model
from commsim.workload.training.memory import with_memory
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.stage_compiler import StageOps
from commsim.workload.training.work_items import WorkItem, joined

__all__ = ["WholeModel"]


class WholeModel:
    """Issues forwards and backwards of the whole model on a lane, layer by layer."""

    def __init__(self, plan: TrainingPlan, build: GraphBuilder, cluster: Cluster) -> None:
        self.plan = plan
        self.build = build
        self._cluster = cluster
        self._known: dict[int, tuple[ComputeModel, StageOps]] = {}

    def model(self, rank: int) -> ComputeModel:
        """Return the compute model of a rank's GPU."""
        return self._of(rank)[0]

    def forward(self, lane: int, rank: int, *, step: int, microbatch: int, after: list[int]) -> int:
        """Issue a forward; return the op that ends it."""
        stage_ops = self._of(rank)[1]
        tags = Tags(Phase.FORWARD, step, microbatch)
        return self._issue(lane, stage_ops.forward, tags, after)

    def backward(
        self, lane: int, rank: int, *, step: int, microbatch: int, after: list[int]
    ) -> int:
        """Issue a backward; return the op that ends it."""
        stage_ops = self._of(rank)[1]
        tags = Tags(Phase.BACKWARD, step, microbatch)
        return self._issue(lane, stage_ops.backward, tags, after)

    def _issue(
        self, lane: int, work_list: tuple[WorkItem, ...], tags: Tags, after: list[int]
    ) -> int:
        op = -1
        for item in joined(work_list, across_units=False):
            op = self.build.compute(
                lane,
                item.duration,
                name=item.name,
                after=after,
                tags=tags._replace(layer=item.layer),
                flops=item.flops,
                traffic=item.traffic,
                alloc=item.alloc,
                free=item.free,
            )
            after = []
        return op

    def _of(self, rank: int) -> tuple[ComputeModel, StageOps]:
        gpu = self._cluster.gpu(rank)
        if id(gpu) not in self._known:
            section = self.plan.section
            model = compute_model(
                gpu,
                precision=section.precision,
                section=section.compute,
                where=self.plan.where,
                gpus=self.plan.layout.world,
            )
            units = self.plan.stages[0].units
            stage_ops = with_memory(
                self.plan.compiler(model).compile(units), self.plan, model, units
            )
            self._known[id(gpu)] = (model, stage_ops)
        return self._known[id(gpu)]
