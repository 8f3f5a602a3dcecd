"""The groups and pairs of a layout by name, and which ranks play the same role."""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster
from commsim.workload.layout import divided
from commsim.workload.training.lanes import RING
from commsim.workload.training.plan import TrainingPlan

__all__ = ["Axes", "hop_name"]


class Axes:
    """The groups and pairs of a layout by name, and the roles of its ranks."""

    def __init__(self, plan: TrainingPlan, cluster: Cluster) -> None:
        layout, section = plan.layout, plan.section
        self.places = layout.places()
        self.groups: dict[str, Ints] = {}
        for axis in ("tp", "cp", "pp"):
            if layout.degree(axis) > 1:
                self.groups[axis] = layout.groups(axis)
        replicas = _both_ends(plan, layout.replicas())
        if plan.sharers > 1:
            self.groups["dp"] = replicas
        if section.parallel.ep > 1:
            holders = layout.holders(replicas, whole=plan.split.whole_experts)
            self.groups["ep"], same = divided(holders, section.parallel.ep)
            if same.shape[1] > 1:
                self.groups["edp"] = same
        if section.data_parallel.kind == "hsdp":
            size = int(section.data_parallel.shard or 1)
            self.groups["shard"], self.groups["replicate"] = divided(replicas, size)
        if plan.tied_bytes:
            pipes = layout.groups("pp")
            ends = plan.schedule.pipes[0][0], plan.schedule.pipes[0][-1]
            self.groups["embedding"] = pipes[:, [plan.schedule.home[stage] for stage in ends]]
        self.pairs = _pairs(plan)
        self.gpu = _kinds(cluster)
        expert = self._expert_places(layout.world) if section.parallel.expert_skew > 1 else 0
        self.roles: Ints = (self.places["pp"] * (self.gpu.max() + 1) + self.gpu) * 2 + expert

    def expert_place(self, rank: int) -> int:
        """Return a rank's place in its expert group."""
        return int(np.argwhere(self.groups["ep"] == rank)[0][1])

    def _expert_places(self, world: int) -> Ints:
        """Return 1 for the ranks that hold the busiest experts, the first of each group."""
        busy = np.zeros(world, np.int64)
        busy[self.groups["ep"][:, 0]] = 1
        return busy


def _both_ends(plan: TrainingPlan, replicas: Ints) -> Ints:
    """Join the replicas of devices that hold the same parts (DualPipe's two copies)."""
    if plan.schedule.name != "dualpipe":
        return replicas
    by_device = replicas.reshape(-1, plan.layout.degree("pp"), replicas.shape[1])
    half = by_device.shape[1] // 2
    both = np.concatenate((by_device[:, :half], by_device[:, ::-1][:, :half]), axis=2)
    return both.reshape(-1, both.shape[2])


def _pairs(plan: TrainingPlan) -> dict[str, Ints]:
    """Return who sends to whom: stages by their distance along the pipeline, and the ring."""
    pairs: dict[str, list[Ints]] = {}
    pipes = plan.layout.groups("pp")
    hops = {
        (plan.schedule.home[a], plan.schedule.home[b])
        for pipe in plan.schedule.pipes
        for a, b in zip(pipe, pipe[1:], strict=False)
    }
    for source, target in sorted(hops | {(b, a) for a, b in hops}):
        if source != target:
            pairs.setdefault(hop_name(source, target), []).append(pipes[:, [source, target]])
    found = {name: np.concatenate(rows) for name, rows in pairs.items()}
    if plan.layout.degree("cp") > 1 and plan.section.parallel.context == "ring":
        ring = plan.layout.groups("cp")
        found[RING] = np.stack((ring.ravel(), np.roll(ring, -1, axis=1).ravel()), axis=1)
    return found


def hop_name(source: int, target: int) -> str:
    """Return the name of the pairs of devices that lie as far apart."""
    return f"pp {target - source:+d}"


def _kinds(cluster: Cluster) -> Ints:
    """Return a number per GPU that is equal for equal GPUs."""
    numbers: dict[int, int] = {}
    specs = [cluster.gpu(rank) for rank in range(cluster.world_size)]
    return np.array([numbers.setdefault(id(spec), len(numbers)) for spec in specs], dtype=np.int64)
