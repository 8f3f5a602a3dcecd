"""
torch.nn.DataParallel as it is: one process, and everything through GPU 0.

Eight steps for every microbatch, none alongside another:

1  scatter the inputs from GPU 0         5  loss on GPU 0 over all outputs
2  broadcast the parameters              6  scatter the outputs' gradients
3  forward on every GPU                  7  backward on every GPU
4  gather the outputs on GPU 0           8  reduce the gradients onto GPU 0

Then GPU 0 updates the parameters. It holds all logits twice (outputs and their gradients), the
gradients and the optimizer; the others only their copy.
Source: torch/nn/parallel/data_parallel.py and replicate.py.
"""

from __future__ import annotations

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.graph import Graph, GraphBuilder, Phase, Tags
from commsim.models import MemoryUse, state_bytes
from commsim.units import to_picoseconds
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.whole import WholeModel

__all__ = ["build_dataparallel", "check_one_node", "dataparallel_memory"]

_TOKEN_BYTES = 8  # token ids are int64
_LOSS_PASSES = 4  # the loss reads the logits, writes and reads their softmax, writes a gradient
_AXIS = "dp"


def check_one_node(plan: TrainingPlan, cluster: Cluster) -> None:
    """Raise ScenarioError if the GPUs are of several nodes: one process has those of one."""
    nodes = len(set(cluster.node_of.tolist()))
    if nodes > 1:
        raise ScenarioError(
            f"{plan.where}.data_parallel.kind: dataparallel is one process and reaches the"
            f" GPUs of one node; the cluster has {nodes}. Use kind: ddp."
        )


def build_dataparallel(plan: TrainingPlan, cluster: Cluster) -> Graph:
    """Return the graph of all steps."""
    builder = _DataParallelBuilder(plan, cluster)
    for step in range(plan.section.steps):
        builder.step(step)
    return builder.build.build({"steps": plan.section.steps})


class _DataParallelBuilder:
    def __init__(self, plan: TrainingPlan, cluster: Cluster) -> None:
        self.plan = plan
        self.build = GraphBuilder()
        self.whole = WholeModel(plan, self.build, cluster)
        self.ranks = range(plan.layout.world)
        self.lanes = [self.build.lane(rank) for rank in self.ranks]
        self.group = self.build.group(_AXIS, self.ranks, axis=_AXIS)
        self.parameters = plan.stages[0].parameters
        self.bandwidth = cluster.gpu(0).memory_bandwidth
        tokens = plan.split.tokens * len(self.ranks)
        self.inputs = tokens * _TOKEN_BYTES
        self.outputs = tokens * plan.model.shape.vocab * plan.width
        self.last = [-1] * len(self.ranks)

    def step(self, step: int) -> None:
        for microbatch in range(self.plan.microbatches):
            self._microbatch(step, microbatch)
        work = self.whole.model(0).optimizer(self.parameters)
        self.last[0] = self.build.compute(
            self.lanes[0],
            to_picoseconds(work.seconds, "the optimizer"),
            name="optimizer",
            after=[self.last[0]],
            traffic=work.traffic,
            tags=Tags(Phase.OPTIMIZER, step),
        )

    def _microbatch(self, step: int, microbatch: int) -> None:
        plan = self.plan
        self._all("scatter", self.inputs, "scatter inputs", step, microbatch)
        self._all("broadcast", self.parameters * plan.width, "replicate", step, microbatch)
        for rank in self.ranks:
            self.last[rank] = self.whole.forward(
                self.lanes[rank], rank, step=step, microbatch=microbatch, after=[self.last[rank]]
            )
        self._all("gather", self.outputs, "gather outputs", step, microbatch)
        self._loss(step, microbatch)
        self._all("scatter", self.outputs, "scatter gradients", step, microbatch)
        for rank in self.ranks:
            self.last[rank] = self.whole.backward(
                self.lanes[rank], rank, step=step, microbatch=microbatch, after=[self.last[rank]]
            )
        size = self.parameters * plan.gradient_width
        self._all("reduce", size, "reduce gradients", step, microbatch)

    def _all(self, kind: str, size: int, name: str, step: int, microbatch: int) -> None:
        """Issue a collective between GPU 0 and all of them."""
        for rank in self.ranks:
            self.last[rank] = self.build.collective(
                self.lanes[rank],
                self.group,
                kind,
                size,
                stream=_AXIS,
                name=name,
                root=0,
                after=[op for op in self.last[rank : rank + 1] if op >= 0],
                dtype=self.plan.dtype,
                tags=Tags(step=step, microbatch=microbatch),
            )

    def _loss(self, step: int, microbatch: int) -> None:
        traffic = _LOSS_PASSES * self.outputs
        self.last[0] = self.build.compute(
            self.lanes[0],
            to_picoseconds(traffic / self.bandwidth, "the loss"),
            name="loss",
            after=[self.last[0]],
            traffic=float(traffic),
            alloc=2 * self.outputs,
            free=2 * self.outputs,
            tags=Tags(Phase.FORWARD, step, microbatch),
        )


def dataparallel_memory(plan: TrainingPlan) -> tuple[MemoryUse, MemoryUse]:
    """Return what GPU 0 holds all through a step, and what the others do."""
    state = state_bytes(
        plan.stages[0].parameters,
        precision=plan.section.precision,
        gradient_width=plan.gradient_width,
    )
    return (
        MemoryUse(state.parameters, state.gradients, state.optimizer, 0),
        MemoryUse(state.parameters, state.gradients, 0, 0),
    )
