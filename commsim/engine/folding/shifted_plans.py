"""Plans of groups on one node or two, made once and shifted to the links of other nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster, Shifts
from commsim.libraries import Plan, PlanPart, PlanPhase

__all__ = ["ShiftedPlans"]

Make = Callable[[tuple[int, ...]], Plan]


class ShiftedPlans:
    """Plans one of the groups that stand equally, and shifts its plan to the links of the others.

    Groups stand equally if their members have equal places on one node or on two, nodes of one
    kind whose links carry the same, and, if they are on two, on the same leaves.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shifts: Shifts | None = None

    def plans(self, rows: Ints, make: Make) -> list[Plan]:
        """Return the plan of each group, a row of ranks; `make` plans one."""
        if len(rows) == 1:
            return [make(tuple(rows[0].tolist()))]
        if self._shifts is None:
            self._shifts = Shifts(self._cluster)
            self._state = self._states(self._shifts)
        nodes = self._cluster.node_of[rows]
        ends = np.stack((nodes[:, 0], _other(nodes)), axis=1)
        _, first, place = np.unique(
            self._keys(rows, nodes, ends), axis=0, return_index=True, return_inverse=True
        )
        plans: dict[int, Plan] = {}
        for number, at in enumerate(first.tolist()):
            same = np.flatnonzero(place.reshape(-1) == number)
            plan = plans[at] = make(tuple(rows[at].tolist()))
            others = same[same != at]
            if not others.size:
                continue
            moved = self._shifted(plan, ends[at], ends[others])
            if moved is None:
                moved = [make(tuple(rows[other].tolist())) for other in others.tolist()]
            plans.update(zip(others.tolist(), moved, strict=True))
        return [plans[at] for at in range(len(rows))]

    def _keys(self, rows: Ints, nodes: Ints, ends: Ints) -> Ints:
        """Return a row of numbers per group, equal for groups that stand equally."""
        assert self._shifts is not None
        cluster = self._cluster
        a, b = ends.T
        within, domain = a == b, cluster.domain_of_node
        singly = ((nodes != a[:, None]) & (nodes != b[:, None])).any(axis=1)
        if cluster.fabric.spec.ecmp == "hash":  # each connection has a path of its own
            singly |= ~within
        return np.column_stack(
            (
                np.where(singly, np.arange(len(rows)), -1),
                np.where(within, -1 - self._shifts.spec[a], self._shifts.kind[a]),
                np.where(within, 0, self._shifts.kind[b]),
                self._state[a],
                self._state[b],
                domain[a] == domain[b],
                nodes == a[:, None],
                cluster.local_of[rows],
            )
        )

    def _states(self, shifts: Shifts) -> Ints:
        """Number nodes: equal if their links carry the same. A broken one is unlike its kind."""
        known: dict[tuple[int, bytes], int] = {}
        states = np.zeros(len(shifts.spec), np.int64)
        for spec in np.unique(shifts.spec).tolist():
            nodes, links = shifts.own_links(spec)
            carried = self._cluster.links.capacity[links]
            for node, row in zip(nodes.tolist(), carried, strict=True):
                states[node] = known.setdefault((spec, row.tobytes()), len(known))
        return states

    def _shifted(self, plan: Plan, home: Ints, ends: Ints) -> list[Plan] | None:
        """Return a plan of the nodes `home` on the nodes of each row of `ends`.

        None if it uses other nodes' links, which may be unlike.
        """
        assert self._shifts is not None
        phases = [phase for part in plan.parts for phase in part.phases]
        if any(self._shifts.elsewhere(phase.link, home) for phase in phases):
            return None
        moved = [self._moved(phase, home, ends) for phase in phases]
        plans = []
        for row in range(len(ends)):
            of_row = iter([phase[row] for phase in moved])
            parts = tuple(
                PlanPart(tuple(next(of_row) for _ in part.phases), part.joins, part.leaves)
                for part in plan.parts
            )
            plans.append(_with_parts(plan, parts))
        return plans

    def _moved(self, phase: PlanPhase, home: Ints, ends: Ints) -> list[PlanPhase]:
        assert self._shifts is not None
        count = len(phase.link)
        entry = np.tile(np.arange(count), len(ends))
        link = phase.link[entry]
        for node, nodes in zip(home.tolist(), ends.T, strict=True):
            self._shifts.shift(
                link, phase.link, entry, np.full(count, node), np.repeat(nodes, count)
            )
        links = link.reshape(len(ends), count)
        order = np.argsort(links, axis=1, kind="stable")
        links = np.take_along_axis(links, order, axis=1)
        kept = (order == np.arange(count)).all(axis=1)
        return [
            PlanPhase(
                phase.idle,
                link,
                phase.load if same else phase.load[places],
                phase.conns if same else phase.conns[places],
                phase.lead,
                phase.tail,
            )
            for link, places, same in zip(links, order, kept.tolist(), strict=True)
        ]


def _other(nodes: Ints) -> Ints:
    """Return per row the first node that is not that of the first member; else that one."""
    at = (nodes != nodes[:, :1]).argmax(axis=1)
    found: Ints = nodes[np.arange(len(nodes)), at]
    return found


def _with_parts(plan: Plan, parts: tuple[PlanPart, ...]) -> Plan:
    """Return a plan with other parts; `dataclasses.replace` takes four times as long."""
    return Plan(
        parts,
        plan.start,
        plan.members,
        (),
        plan.algorithm,
        plan.channels,
        plan.notes,
        plan.copies_in,
        plan.copies_out,
        plan.sms,
        plan.touched,
        plan.root,
        plan.stays,
        plan.awaits_all,
    )
