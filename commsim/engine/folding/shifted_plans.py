"""
Plans of the groups of an orbit: a few are made, the others are these on the links of other nodes.

Groups stand equally if their members have equal places on equal nodes: the same GPUs of the first
node, the second and so on, on nodes of one kind whose links carry the same, and on leaves that lie
to each other in the same way and whose links above them carry the same. Which nodes and which
leaves these are changes no time: one of them is planned, and the links of its plan are shifted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Ints, narrow
from commsim.cluster import Cluster, Shifts
from commsim.engine.folding.refinement import Entries, entries_of
from commsim.libraries import Plan, Request

__all__ = ["OrbitPlans", "ShiftedPlans"]


class OrbitPlans(msgspec.Struct, frozen=True, eq=False):
    """The plans of an orbit's groups: group i has `templates[of[i]]`, on links of its own.

    Plan i of `entries` is that of group i.
    """

    templates: tuple[Plan, ...]
    of: Ints
    entries: Entries


class _Made(msgspec.Struct, frozen=True, eq=False):
    """A plan that was made, the blocks of links of its group, and its loads."""

    plan: Plan
    home: Ints
    own: Entries


class ShiftedPlans:
    """Plans one of the groups that stand equally, and shifts its plan to the links of the others.

    `make` plans what is asked for among some ranks: of equal questions among groups that stand
    equally, of one orbit or of several, it is called for the first.
    """

    def __init__(self, cluster: Cluster, make: Callable[[Request, tuple[int, ...]], Plan]) -> None:
        self._cluster = cluster
        self._make = make
        self._shifts = Shifts(cluster)
        self._standings: dict[bytes, int] = {}
        self._single = 0
        self._made: dict[tuple[Request, int], _Made] = {}

    def plans(self, request: Request, rows: Ints) -> OrbitPlans:
        """Return the plan of each group, a row of ranks."""
        asked = replace(request, ranks=())
        standing, blocks, within = self._places(rows)
        templates: list[Plan] = []
        of = np.empty(len(rows), np.int64)
        found: list[Entries] = []
        for number in dict.fromkeys(standing.tolist()):
            same = np.flatnonzero(standing == number)
            made = self._made.get((asked, number))
            if made is None:
                plan = self._make(asked, tuple(rows[same[0]].tolist()))
                made = _Made(plan, blocks[same[0]], entries_of((plan,)))
                self._made[asked, number] = made
            entries = self._shifted(made, blocks[same], within=bool(within[same[0]]))
            if entries is None:
                plans = [self._make(asked, tuple(row)) for row in rows[same].tolist()]
                of[same] = len(templates) + np.arange(len(plans))
                entries = entries_of(plans)
                templates += plans
            else:
                of[same] = len(templates)
                templates.append(made.plan)
            found.append(entries.numbered(same))
        return OrbitPlans(tuple(templates), of, Entries.joined(found).by_plan())

    def _places(self, rows: Ints) -> tuple[Ints, Ints, Bools]:
        """Return a number per group, equal for groups that stand equally, and where each stands.

        That is the blocks of links at each member (its node, the pod and the group above), and
        whether all members are on one node.
        """
        shifts, cluster = self._shifts, self._cluster
        nodes = cluster.node_of[rows]
        within = (nodes == nodes[:, :1]).all(axis=1)
        blocks = np.concatenate((nodes, shifts.pod_of[nodes], shifts.group_of[nodes]), axis=1)
        state, order = shifts.state[blocks], _first_equal(blocks)
        if shifts.pods_differ:  # what a node does within itself is the same below any switch
            state[within, nodes.shape[1] :] = 0
        keys = [order, state, cluster.local_of[rows], _first_equal(cluster.domain_of_node[nodes])]
        if cluster.fabric.spec.ecmp == "hash":  # each connection has a path of its own
            keys.append(np.where(within, -1, self._single + np.arange(len(rows)))[:, None])
            self._single += len(rows)
        number, known = np.empty(len(rows), np.int64), self._standings
        for at, key in enumerate(np.concatenate(keys, axis=1)):
            number[at] = known.setdefault(key.tobytes(), len(known))
        return number, blocks, within

    def _shifted(self, made: _Made, blocks: Ints, *, within: bool) -> Entries | None:
        """Return the loads of a plan on the blocks of each row.

        None if it uses links elsewhere, which may be unlike.
        """
        own, times = made.own, len(blocks)
        stay = self._shifts.pods_differ and not within
        link = self._shifts.on_blocks(own.link, made.home, blocks, keeps_switches=stay)
        if link is None:
            return None
        return Entries(
            plan=np.repeat(narrow(np.arange(times)), len(own.link)),
            link=narrow(link.reshape(-1)),
            flow=np.tile(own.flow, times),
            flows=own.flows,
        )


def _first_equal(rows: Ints) -> Ints:
    """Return for each value the first place in its row that holds the same."""
    order = np.argsort(rows, axis=1, kind="stable")
    values = np.take_along_axis(rows, order, axis=1)
    begins = np.ones(rows.shape, np.bool_)
    begins[:, 1:] = values[:, 1:] != values[:, :-1]
    at = np.maximum.accumulate(np.where(begins, np.arange(rows.shape[1]), 0), axis=1)
    first = np.empty_like(rows)
    np.put_along_axis(first, order, np.take_along_axis(order, at, axis=1), axis=1)
    return first
