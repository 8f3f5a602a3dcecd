"""
The bytes that a step sends between nodes: over all NICs together they bound its time.

All groups of an axis are assumed to send the same bytes: the first is planned and counts for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from commsim.cluster import Cluster
from commsim.libraries import Library, Request, plan_of
from commsim.units import PS_PER_SECOND
from commsim.workload.training import COMPUTE, EXCHANGE, Actions, TrainingPlan, WorkItem

__all__ = ["AxisGroups", "StepTraffic"]


_PROBE = 2**26


class AxisGroups:
    """The first group of each axis of a plan, and all groups of a stage."""

    def __init__(self, plan: TrainingPlan) -> None:
        layout, parallel = plan.layout, plan.section.parallel
        self.layout = layout
        replicas = layout.replicas()[0].tolist()
        self._ranks = {
            "tp": layout.groups("tp")[0].tolist(),
            "cp": layout.groups("cp")[0].tolist(),
            "pp": layout.groups("pp")[0].tolist(),
            "dp": replicas,
            "ep": replicas[: parallel.ep],
        }
        self._same = layout.same_experts(parallel.ep, whole=plan.split.whole_experts)
        self._ranks["edp"] = self._same[0].tolist()

    def ranks(self, axis: str) -> tuple[int, ...]:
        """Return the ranks of the first group of an axis."""
        return tuple(self._ranks[axis])

    def rows(self, axis: str) -> list[tuple[int, ...]]:
        """Return the groups of an axis that the ranks of the first device form; pairs of a ring."""
        if axis == "ring":
            rings = self.rows("cp")
            return [pair for ring in rings for pair in zip(ring, ring[1:] + ring[:1], strict=True)]
        if axis == "edp":
            rows = self._same
        else:
            rows = self.layout.replicas() if axis == "dp" else self.layout.groups(axis)
        stage = self.layout.places()["pp"]
        return [tuple(row) for row in rows.tolist() if stage[row[0]] == 0]

    def hops(self, source: int, target: int) -> list[tuple[int, ...]]:
        """Return who sends from one device of the pipelines to another."""
        return [(row[source], row[target]) for row in self.layout.groups("pp").tolist()]

    def shard(self, size: int) -> tuple[int, ...]:
        """Return the ranks of the first group of HSDP that shares a copy."""
        return tuple(self._ranks["dp"][:size])

    def between(self, size: int) -> tuple[int, ...]:
        """Return the ranks that hold the same shard of HSDP's copies."""
        return tuple(self._ranks["dp"][::size])


class StepTraffic:
    """Seconds that the bytes of a step need on the NICs of all nodes together."""

    def __init__(self, cluster: Cluster, library: Library) -> None:
        self._cluster = cluster
        self._library = library
        links = cluster.links
        out = [
            kind == "network" and "/" in name.split("->")[0]
            for name, kind in zip(links.names, links.kinds, strict=True)
        ]
        self._out = np.array(out, dtype=np.bool_)
        self._capacity = float(links.capacity[: len(out)][self._out].sum())
        self._known: dict[Request, float] = {}
        self._shared: dict[object, float] = {}

    def together(
        self, kind: str, size: int, rows: Callable[[], Sequence[tuple[int, ...]]], *, key: object
    ) -> int:
        """Return how long the busiest link needs (ps) if all of `rows` run the same op at once.

        Loads are those of a buffer of 64 MiB, in proportion; `key` names the rows, which are asked
        for once.
        """
        if (kind, key) not in self._shared:
            used = np.zeros(len(self._cluster.links.capacity))
            for row in rows():
                plan = plan_of(self._library, Request(kind, _PROBE, row), self._cluster)
                for part in plan.parts:
                    for phase in part.phases:
                        own = phase.link < len(used)
                        used[phase.link[own]] += phase.load[own]
            seconds = float((used / self._cluster.links.capacity).max())
            self._shared[kind, key] = seconds * PS_PER_SECOND / _PROBE
        return int(self._shared[kind, key] * size)

    def inside(self, plan: TrainingPlan, actions: Actions, groups: AxisGroups) -> float:
        """Return the seconds for what is sent inside layers and between stages."""
        if not self._capacity:
            return 0.0
        world, layout = plan.layout.world, plan.layout
        known: dict[tuple[str, int, str], float] = {}
        by_work = actions.of_each(
            lambda work_list, repeats: self._sent(work_list, repeats, groups, known)
        )
        total = 0.0
        for device_actions in plan.schedule.actions:
            for action in device_actions:
                total += by_work[action.work][action.stage]
        total *= world / layout.degree("pp")  # per rank of a stage, so far
        return (total + self._boundaries(plan, groups)) / self._capacity

    def sharing(self, plan: TrainingPlan, groups: AxisGroups) -> float:
        """Return the seconds for gradients and parameters between replicas."""
        if not self._capacity or plan.sharers == 1:
            return 0.0
        dense = self._shared_by(plan, groups, expert=False)
        if plan.section.data_parallel.kind == "hsdp":
            return dense
        return dense + self._shared_by(plan, groups, expert=True)

    def _shared_by(self, plan: TrainingPlan, groups: AxisGroups, *, expert: bool) -> float:
        """Return the seconds for what replicas of dense parameters, or of experts, share."""
        data, ranks = plan.section.data_parallel, groups.ranks("edp" if expert else "dp")
        entries = sum(unit.entries(expert=expert) for stage in plan.stages for unit in stage.units)
        if not entries or len(ranks) == 1:
            return 0.0
        share = plan.layout.world / plan.layout.degree("pp") / len(ranks)  # groups of a stage
        gradients, parameters = entries * plan.gradient_width, entries * plan.width
        if data.kind == "ddp":
            return share * self._seconds("all_reduce", gradients, ranks)
        if data.kind == "zero":
            times = plan.microbatches if data.stage == 2 and not data.no_sync else 1
            reduced = times * self._seconds("reduce_scatter", gradients, ranks)
            return share * (reduced + self._seconds("all_gather", parameters, ranks))
        copies = 1.0
        found = 0.0
        if isinstance(data.shard, int):
            copies = len(ranks) / data.shard
            between = groups.between(data.shard)
            each = self._seconds("all_reduce", gradients // data.shard, between)
            found, ranks = each * data.shard, groups.shard(data.shard)
        gathered = plan.parameter_gathers * self._seconds("all_gather", parameters, ranks)
        reduced = self._seconds("reduce_scatter", gradients, ranks)
        times = plan.gradient_reductions
        return share * (times * found + copies * (gathered + times * reduced))

    def _sent(
        self,
        work_list: tuple[WorkItem, ...],
        repeats: tuple[int, ...],
        groups: AxisGroups,
        known: dict[tuple[str, int, str], float],
    ) -> float:
        """Return the bytes that a rank's part of its groups sends out in one action."""
        found = 0.0
        for item in work_list:
            if item.kind != COMPUTE:
                key = (item.kind, item.size, item.axis)
                if key not in known:
                    known[key] = self._item(item, groups.ranks(item.axis))
                found += known[key] * repeats[item.unit]
        return found

    def _item(self, item: WorkItem, ranks: tuple[int, ...]) -> float:
        """Return the mean bytes that a rank of the group sends to other nodes for an item."""
        if item.kind == EXCHANGE:
            pairs = zip(ranks, ranks[1:] + ranks[:1], strict=True)
            sent = sum(self._bytes("send_recv", item.size, pair) for pair in pairs)
        else:
            kind = item.kind if "skewed" not in item.kind else "all_to_all"
            sent = self._bytes(kind, item.size, ranks)
        return sent / len(ranks)

    def _boundaries(self, plan: TrainingPlan, groups: AxisGroups) -> float:
        """Return the bytes between stages, of all pipelines."""
        pipe, home = groups.ranks("pp"), plan.schedule.home
        sent = 0.0
        for stages in plan.schedule.pipes:
            for first, second in zip(stages, stages[1:], strict=False):
                a, b = pipe[home[first]], pipe[home[second]]
                if a != b:
                    sent += self._bytes("send_recv", plan.boundary, (a, b))
                    sent += self._bytes("send_recv", plan.boundary, (b, a))
        microbatches = plan.microbatches / len(plan.schedule.pipes)
        return sent * microbatches * plan.layout.world / len(pipe)

    def _seconds(self, kind: str, size: int, ranks: tuple[int, ...]) -> float:
        return self._bytes(kind, size, ranks) / self._capacity

    def _bytes(self, kind: str, size: int, ranks: tuple[int, ...]) -> float:
        """Return the bytes that one op sends out of nodes."""
        request = Request(kind, size, ranks)
        if request not in self._known:
            plan = plan_of(self._library, request, self._cluster)
            self._known[request] = sum(
                float(phase.load[self._out[phase.link]].sum())
                for part in plan.parts
                for phase in part.phases
            )
        return self._known[request]
