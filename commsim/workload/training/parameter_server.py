"""
A parameter server: workers push gradients to it and pull parameters from it.

The first `servers` ranks are servers, each with an equal part of the parameters; the others are
workers. When a worker has run its microbatches it sends every server its part of the gradient,
and goes on when the parameters are back. In a synchronous step a server adds up all workers'
gradients, updates once and answers all; asynchronously it updates for each gradient and answers
its worker at once, so that a worker computes with parameters that others have moved on from: its
*staleness* is how many updates came between those it read and its own.

Asynchronous updates for different workers may overlap in time on a server: which comes first is
known only in the run. Li et al., "Scaling distributed machine learning with the parameter
server", OSDI 2014.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster
from commsim.graph import Graph, GraphBuilder, Phase, Tags
from commsim.models import MemoryUse, state_bytes
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND, to_picoseconds
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.whole import WholeModel

__all__ = ["build_parameter_server", "paces", "server_memory", "staleness"]


_AXIS = "ps"


def build_parameter_server(plan: TrainingPlan, cluster: Cluster) -> Graph:
    """Return the graph of all steps."""
    builder = _ServerBuilder(plan, cluster)
    for step in range(plan.section.steps):
        builder.step(step)
    servers = len(builder.servers)
    return builder.build.build({"steps": plan.section.steps, "servers": servers})


class _ServerBuilder:
    def __init__(self, plan: TrainingPlan, cluster: Cluster) -> None:
        data = plan.section.data_parallel
        self.plan = plan
        self.sync = data.sync is not False
        self.build = GraphBuilder()
        self.whole = WholeModel(plan, self.build, cluster)
        ranks = range(plan.layout.world)
        self.lanes = [self.build.lane(rank) for rank in ranks]
        self.group = self.build.group(_AXIS, ranks, axis=_AXIS)
        self.servers = ranks[: data.servers or 1]
        self.workers = ranks[data.servers or 1 :]
        self.part = -(-plan.stages[0].parameters // len(self.servers))
        self.bandwidth = cluster.gpu(0).memory_bandwidth
        self.pulled: dict[int, list[int]] = {worker: [] for worker in self.workers}

    def step(self, step: int) -> None:
        for worker in self.workers:
            self._work(worker, step)
        for server in self.servers:
            pushed = {worker: self._receive(server, worker, step) for worker in self.workers}
            if self.sync:
                update = self._update(server, list(pushed.values()), step, "compute", -1)
                answers = dict.fromkeys(self.workers, update)
            else:
                answers = {
                    worker: self._update(server, [op], step, f"worker {worker}", worker)
                    for worker, op in pushed.items()
                }
            for worker, update in answers.items():
                self._message("send", server, worker, step, self.plan.width, [update], "pull")

    def _work(self, worker: int, step: int) -> None:
        """Issue a worker's microbatches, its pushes, and what it pulls."""
        after = self.pulled[worker]
        done = -1
        for microbatch in range(self.plan.microbatches):
            begun = self.whole.forward(
                self.lanes[worker], worker, step=step, microbatch=microbatch, after=after
            )
            after = [begun]
            done = self.whole.backward(
                self.lanes[worker], worker, step=step, microbatch=microbatch, after=after
            )
            after = [done]
        for server in self.servers:
            self._message("send", worker, server, step, self.plan.gradient_width, [done], "push")
        self.pulled[worker] = [
            self._message("recv", worker, server, step, self.plan.width, [], "pull")
            for server in self.servers
        ]

    def _receive(self, server: int, worker: int, step: int) -> int:
        return self._message("recv", server, worker, step, self.plan.gradient_width, [], "push")

    def _message(
        self, verb: str, rank: int, peer: int, step: int, width: int, after: list[int], name: str
    ) -> int:
        issue = self.build.send if verb == "send" else self.build.recv
        return issue(
            self.lanes[rank],
            peer,
            self.part * width,
            group=self.group,
            stream=f"{name} {peer}",
            name=name,
            after=after,
            tags=Tags(step=step),
        )

    def _update(self, server: int, after: list[int], step: int, stream: str, worker: int) -> int:
        """Issue an update: gradients added up, and the optimizer on a server's part."""
        work = self.whole.model(server).optimizer(self.part)
        adding = (len(after) - 1) * self.part * self.plan.gradient_width
        seconds = work.seconds + adding / self.bandwidth
        return self.build.compute(
            self.lanes[server],
            to_picoseconds(seconds, "an update"),
            name="update",
            stream=stream,
            after=after,
            traffic=work.traffic + adding,
            tags=Tags(Phase.OPTIMIZER, step, microbatch=worker),
        )


def server_memory(plan: TrainingPlan) -> tuple[MemoryUse, MemoryUse]:
    """Return what a server holds all through a step, and what a worker does."""
    servers = plan.section.data_parallel.servers or 1
    whole = plan.stages[0].parameters
    part = state_bytes(
        -(-whole // servers), precision=plan.section.precision, gradient_width=plan.gradient_width
    )
    state = state_bytes(whole, precision=plan.section.precision, gradient_width=plan.gradient_width)
    return (
        MemoryUse(part.parameters, part.gradients, part.optimizer, 0),
        MemoryUse(state.parameters, state.gradients, 0, 0),
    )


def staleness(timeline: Timeline) -> float:
    """Return the mean staleness of the updates of a run's first server after each first one.

    Of an update: how many others ended between the one that its worker pulled last and it.
    """
    updates, worker, step = _updates(timeline)
    order = np.lexsort((updates, timeline.end[updates]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found = []
    for one in np.unique(worker).tolist():
        mine = np.flatnonzero(worker == one)
        places = rank[mine[np.argsort(step[mine])]]
        found += (np.diff(places) - 1).tolist()
    return float(np.mean(found)) if found else 0.0


def paces(timeline: Timeline) -> tuple[float, ...]:
    """Return the mean seconds from one update of each worker to its next, on the first server."""
    updates, worker, step = _updates(timeline)
    found = []
    for one in np.unique(worker).tolist():
        mine = np.flatnonzero(worker == one)
        ends = timeline.end[updates[mine[np.argsort(step[mine])]]]
        found.append(float(np.diff(ends).mean()) / PS_PER_SECOND)
    return tuple(found)


def _updates(timeline: Timeline) -> tuple[Ints, Ints, Ints]:
    """Return the updates (spans) of a run's first server, the worker and the step of each."""
    graph = timeline.graph
    updates = np.flatnonzero(
        (graph.phase[timeline.op] == Phase.OPTIMIZER) & (timeline.lane == timeline.lane.min())
    )
    return updates, graph.microbatch[timeline.op[updates]], graph.step[timeline.op[updates]]
