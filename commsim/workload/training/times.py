"""
What the stages of a layout take, as far as it is known before anything runs.

Searched schedules are laid out for these times: compute; collectives inside layers, unless they
run alongside it; and messages between stages. Communication takes what the ideal library says of
idle links, those of the ranks that share a NIC one after another.
"""

from __future__ import annotations

from commsim.cluster import Cluster
from commsim.libraries import Ideal, Request, plan_of
from commsim.models import Split
from commsim.workload.layout import Layout
from commsim.workload.schedules import StageTimes
from commsim.workload.training.stage_compiler import StageCompiler
from commsim.workload.training.stages import Unit, unit_kinds
from commsim.workload.training.work_items import COMPUTE, EXCHANGE, WorkItem

__all__ = ["Estimate"]


class Estimate:
    """Times of the first ranks of a layout on a cluster; the others are taken to be equal."""

    def __init__(self, layout: Layout, cluster: Cluster, split: Split) -> None:
        self._cluster = cluster
        self._library = Ideal()
        self._pipes = layout.groups("pp")
        self._ranks = {axis: tuple(layout.groups(axis)[0].tolist()) for axis in ("tp", "cp")}
        holders = layout.holders(layout.replicas(), whole=split.whole_experts)
        self._ranks["ep"] = tuple(holders[0].tolist()[: split.ep])
        self._known: dict[tuple[str, int, tuple[int, ...]], int] = {}

    def stages(
        self,
        parts: tuple[tuple[Unit, ...], ...],
        home: tuple[int, ...],
        *,
        compiler: StageCompiler,
        boundary: int,
        tied: bool,
    ) -> StageTimes:
        """Return the times of all stages, and from device to device for `boundary` bytes.

        `tied`: the ends of the pipeline reduce a token table together.
        """
        known: dict[tuple[str | bool, ...], tuple[int, int, int]] = {}
        rows = []
        for number in range(len(home)):
            units = parts[number % len(parts)]
            kind = unit_kinds(compiler.shape, units)
            if kind not in known:
                made = compiler.compile(units)
                stage_ops = (made.forward, made.input_backward, made.weight)
                first, second, third = (sum(map(self._alone, work_list)) for work_list in stage_ops)
                known[kind] = first, second, third
            rows.append(known[kind])
        forward, backward, weight = (tuple(column) for column in zip(*rows, strict=True))
        devices = self._pipes.shape[1]
        hops = tuple(self._hop(at, (at + 1) % devices, boundary) for at in range(devices))
        return StageTimes(forward, backward, weight, hops, repeats=True, tied=tied)

    def _alone(self, item: WorkItem) -> int:
        """Return what an item adds to the chain of its action, in ps."""
        if item.kind == COMPUTE:
            return item.duration
        if item.beside or item.kind == EXCHANGE:
            return 0
        kind = "all_to_all" if "skewed" in item.kind else item.kind
        return self._idle(kind, item.size, self._ranks[item.axis])

    def _hop(self, source: int, target: int, size: int) -> int:
        if source == target:
            return 0
        ranks = int(self._pipes[0, source]), int(self._pipes[0, target])
        return self._idle("send_recv", size * self._sharing(source, ranks), ranks)

    def _sharing(self, device: int, ranks: tuple[int, int]) -> int:
        """Return how many pipelines leave a device by the NIC of the first one."""
        cluster, (rank, target) = self._cluster, ranks
        if cluster.local_route(rank, target) is not None:
            return 1
        node, nic = cluster.node_of[rank], cluster.nics_of(rank)[:1]
        beside = (
            other for other in self._pipes[:, device].tolist() if cluster.node_of[other] == node
        )
        return sum(cluster.nics_of(other)[:1] == nic for other in beside)

    def _idle(self, kind: str, size: int, ranks: tuple[int, ...]) -> int:
        key = (kind, size, ranks)
        if key not in self._known:
            plan = plan_of(self._library, Request(kind, size, ranks), self._cluster)
            self._known[key] = plan.idle
        return self._known[key]
