"""Plans of groups within one node, made once and shifted to the links of the other nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from commsim.cluster import Cluster
from commsim.libraries import Plan, Request

__all__ = ["NodePlans"]


class NodePlans:
    """Plans groups that lie within one node once, and shifts them to the links of other nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[object, ...], tuple[int, Plan]] = {}
        self._links: dict[int, bytes] = {}

    def plan(self, request: Request, make: Callable[[Request], Plan]) -> Plan:
        """Return the plan of `request`: by `make`, or shifted from an equal group elsewhere."""
        cluster = self._cluster
        nodes = {int(cluster.node_of[rank]) for rank in request.ranks}
        if len(nodes) > 1:
            return make(request)
        node = nodes.pop()
        local = tuple(int(cluster.local_of[rank]) for rank in request.ranks)
        key = (cluster.spec_of[node], self._capacity(node), local, replace(request, ranks=()))
        if key not in self._known:
            self._known[key] = (node, make(request))
        first, plan = self._known[key]
        if node == first:
            return plan
        if not self._within(plan, first):
            return make(request)
        return _shifted(plan, cluster.first_link(node) - cluster.first_link(first))

    def _capacity(self, node: int) -> bytes:
        """Return what a node's links carry: a broken one makes it unlike others of its kind."""
        if node not in self._links:
            low = self._cluster.first_link(node)
            high = low + len(self._cluster.template(self._cluster.spec_of[node]).rows)
            self._links[node] = self._cluster.links.capacity[low:high].tobytes()
        return self._links[node]

    def _within(self, plan: Plan, node: int) -> bool:
        """Return whether a plan uses the node's own links alone."""
        low = self._cluster.first_link(node)
        high = low + len(self._cluster.template(self._cluster.spec_of[node]).rows)
        return all(
            not phase.link.size or (low <= phase.link.min() and phase.link.max() < high)
            for part in plan.parts
            for phase in part.phases
        )


def _shifted(plan: Plan, by: int) -> Plan:
    parts = tuple(
        replace(part, phases=tuple(replace(p, link=p.link + by) for p in part.phases))
        for part in plan.parts
    )
    return replace(plan, parts=parts, programs=())
