"""
Folded plans: one plan for all the groups that a group of a folded graph stands for.

Ranks may be simulated once only if their links are as equivalent as their work. So every group
of every orbit is planned, and flows and links are told apart (see `refinement`). Links of one
color carry the same traffic at every moment, and one of each color is enough. Where an orbit's
groups end up in different colors, the ranks are not equivalent: `finer_roles` says which are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Floats, Ints
from commsim.cluster import Cluster
from commsim.engine.copies import copy_phase
from commsim.engine.folding.ample import ample_links
from commsim.engine.folding.refinement import (
    Entries,
    Hashes,
    color_by_plans,
    entries_of,
    mix,
    refine,
)
from commsim.engine.folding.shifted_plans import OrbitPlans, ShiftedPlans
from commsim.engine.planning import Planner
from commsim.follow import Follow, followed, unfollowed
from commsim.graph import CopyDirection, Folding, Graph, OpKind, member_lanes, refold
from commsim.libraries import Library, Plan, PlanPart, PlanPhase, Request, Start, links_of, plan_of

__all__ = ["FoldedPlanner", "folded"]


_MOST_ROUNDS = 12
_MANY = 10  # negligible plans may together move this many times their share
_COPY = "copy"


class FoldedPlanner(Planner):
    """Plans the ops of a folded graph, each for all the ops that it represents.

    `link_color` tells the links apart (-1: not used); of each color the lowest link is used.
    Plans that move at most the share `negligible` of every link's bytes do not distinguish ranks.
    Links in `apart` are like no other, whatever they carry. `follow` follows the orbits that are
    planned.
    """

    def __init__(
        self,
        graph: Graph,
        cluster: Cluster,
        library: Library,
        *,
        negligible: float = 0.0,
        apart: Ints | None = None,
        follow: Follow = unfollowed,
    ) -> None:
        super().__init__(graph, cluster, library)
        assert graph.folding is not None
        self._folding: Folding = graph.folding
        self._members = member_lanes(graph)
        self._orbits: list[tuple[Request, Ints]] = []
        self._number: dict[tuple[int, Request], int] = {}
        self._collectives = self._collect(self.equivalent_collectives(), self._collective_orbit)
        self._messages = self._collect(self.equivalent_messages(), self._message_orbit)
        self._copies = self._collect_copies()
        shifted = ShiftedPlans(cluster, partial(_made, cluster, library))
        orbits = followed(self._orbits, follow)
        found = [shifted.plans(request, rows) for request, rows in orbits]
        self._first = np.cumsum([0, *(len(plans.of) for plans in found)])
        entries = _numbered_through(found, self._first)
        # Of 100,000 ranks the loads are hundreds of MB: once joined, each orbit's own are let go.
        self._plans = [replace(plans, entries=entries_of(())) for plans in found]
        del found, shifted
        telling = entries.of(~self._negligible(entries, negligible)) if negligible else entries
        ample, capacity = ample_links(entries, cluster), cluster.links.capacity
        if apart is not None and apart.size:
            ample[apart] = False
            capacity = capacity.copy()
            capacity[apart] = -1.0 - np.arange(len(apart))  # as keys: no link has such a capacity
        self._color, self.link_color = refine(self._plan_keys(), telling.without(ample), capacity)
        self._color_the_rest(entries, ample, cluster)
        self._folded = self._fold(entries, len(cluster.links.capacity))

    def equivalent_links(self) -> Ints:
        """Return per link the lowest of its color, which all traffic of the color is put on."""
        first = np.arange(len(self.link_color))
        used = np.flatnonzero(self.link_color >= 0)
        colors = self.link_color[used]
        lowest = np.full(int(colors.max(initial=-1)) + 1, len(first))
        np.minimum.at(lowest, colors, used)
        first[used] = lowest[colors]
        return first

    def collective(self, row: int) -> Plan:
        """Return the plan of all the collectives that `row` stands for."""
        return self._folded[self._collectives[row]]

    def message(self, row: int) -> Plan:
        """Return the plan of all the messages that `row` stands for."""
        return self._folded[self._messages[row]]

    def copy(self, op: int) -> PlanPhase | None:
        """Return the flow of all the copies that `op` stands for."""
        return self._folded[self._copies[op]].parts[0].phases[0]

    def finer_roles(self) -> Ints | None:
        """Return a number per rank, equal for equivalent ranks; None if all are."""
        world = len(self._folding.lane_of)
        seen = np.zeros(world, np.uint64)
        for number, (_, rows) in enumerate(self._orbits):
            first, last = int(self._first[number]), int(self._first[number + 1])
            own = mix(np.array([number + 1]), self._color[first:last])
            np.add.at(seen, rows, mix(own[:, None], _exits(self._plans[number])))
        roles = np.unique(
            np.stack((self._folding.lane_of.astype(np.uint64), seen)), axis=1, return_inverse=True
        )[1].reshape(-1)
        lanes = int(self._folding.lane_of.max()) + 1
        return roles.astype(np.int64) if int(roles.max()) + 1 > lanes else None

    def _collect(self, classes: tuple[Ints, Ints], orbit: Callable[[int], int]) -> list[int]:
        """Return per row of a table the number of what it asks for, together with its orbit."""
        first, number = classes
        numbers = np.array([orbit(row) for row in first.tolist()], dtype=np.int64)
        found: list[int] = numbers[number].tolist()
        return found

    def _collective_orbit(self, row: int) -> int:
        group = int(self._graph.collectives.group[row])
        return self._orbit((group, self.collective_request(row)), self._folding.groups[group])

    def _message_orbit(self, row: int) -> int:
        pair = int(self._folding.pair[row])
        return self._orbit((pair, self.message_request(row)), self._folding.pairs[pair])

    def _collect_copies(self) -> dict[int, int]:
        """Return, per copy over links, the number of what it asks for."""
        graph, found = self._graph, {}
        for op in np.flatnonzero((graph.kind == OpKind.COPY) & (graph.duration < 0)).tolist():
            lane = int(graph.lane[op])
            rows = np.flatnonzero(self._folding.lane_of == lane)[:, None]
            request = Request(_COPY, int(graph.size[op]), (-1,), root=int(graph.item[op]))
            found[op] = self._orbit((lane, request), rows)
        return found

    def _orbit(self, key: tuple[int, Request], rows: Ints) -> int:
        """Return the number of what a group, pair or lane asks for, a new one for a new request.

        Which of the three it is, the kind of the request tells.
        """
        if key not in self._number:
            self._number[key] = len(self._orbits)
            self._orbits.append((key[1], rows))
        return self._number[key]

    def _negligible(self, entries: Entries, share: float) -> Bools:
        """Return the plans that move at most `share` of every link's bytes; none if many do."""
        asked = np.array([*self._collectives, *self._messages, *self._copies.values()], np.int64)
        times = np.repeat(np.bincount(asked, minlength=len(self._orbits)), np.diff(self._first))
        moved = entries.load * times[entries.plan]
        part = moved / np.bincount(entries.link, weights=moved)[entries.link]
        most = np.zeros(int(self._first[-1]))
        np.maximum.at(most, entries.plan, part)
        negligible = most <= share
        together = np.bincount(entries.link, weights=part * negligible[entries.plan])
        few = together.max(initial=0.0) <= _MANY * share
        return negligible if few else np.zeros_like(negligible)

    def _color_the_rest(self, entries: Entries, ample: Bools, cluster: Cluster) -> None:
        """Color the links left out of the refinement: ample ones by their plans, others singly."""
        on = entries.of_links(ample)
        used, color = color_by_plans(self._color, on, cluster.links.capacity)
        self.link_color[used] = int(self.link_color.max(initial=-1)) + 1 + color
        rest = np.flatnonzero(entries.on(len(ample)) & (self.link_color < 0))
        self.link_color[rest] = int(self.link_color.max(initial=-1)) + 1 + np.arange(len(rest))

    def _plan_keys(self) -> Hashes:
        """Return the properties of each plan apart from its links."""
        number = np.repeat(np.arange(len(self._orbits)), np.diff(self._first))
        place: dict[tuple[object, ...], int] = {}
        times = [np.zeros(0, np.int64)]
        for plans in self._plans:
            own = [place.setdefault(_times(plan), len(place)) for plan in plans.templates]
            times.append(np.array(own, dtype=np.int64)[plans.of])
        return mix(number + 1, np.concatenate(times))

    def _fold(self, entries: Entries, links: int) -> list[Plan]:
        """Return one plan per orbit: that of its first group, loaded with all of them."""
        used = self.link_color >= 0
        first = np.full(int(self.link_color.max(initial=-1)) + 1, links)
        np.minimum.at(first, self.link_color[used], np.flatnonzero(used))
        lowest = np.zeros(links + 1, np.bool_)
        lowest[first] = True
        kept = entries.of_links(lowest[:links])
        orbit = np.searchsorted(self._first, kept.plan, side="right") - 1
        phases = int(kept.flows.phase.max(initial=0)) + 1
        key = (orbit * phases + kept.phase) * links + kept.link  # orbits and phases are 64 bits
        keys, where = np.unique(key, return_inverse=True)
        load = _sums(where, kept.load, len(keys))
        conns = _sums(where, kept.conns, len(keys))
        owner, link = np.divmod(keys, links)
        plans = []
        for number in range(len(self._orbits)):
            template = self._plans[number].templates[0]
            at = 0
            parts = []
            for part in template.parts:
                flows = []
                for phase in part.phases:
                    low, high = np.searchsorted(owner, number * phases + np.array([at, at + 1]))
                    flows.append(
                        PlanPhase(
                            phase.idle,
                            link[low:high],
                            load[low:high],
                            conns[low:high],
                            phase.lead,
                            phase.tail,
                        )
                    )
                    at += 1
                parts.append(PlanPart(tuple(flows), part.joins, part.leaves))
            plans.append(replace(template, parts=tuple(parts), programs=()))
        return plans


def folded(
    graph: Graph,
    cluster: Cluster,
    library: Library,
    *,
    negligible: float = 0.0,
    apart: Ints | None = None,
    follow: Follow = unfollowed,
) -> tuple[Graph, Planner]:
    """Return the coarsest folded graph that the hardware allows, and a planner for it.

    `graph` is folded by what the ranks do. `negligible` is the share of a link's bytes that does
    not distinguish ranks: above 0 the fold is nearly exact; `apart` are links like no other.
    Nothing is folded if no fold is found in a few rounds, or if the library has links of its own,
    one set per process. `follow` is given a function that says which share is planned of what a
    round asks for, in each round anew.

    Raises:
        ScenarioError: see `refold`.
    """
    if graph.folding is not None and len(links_of(library, cluster)) > len(cluster.links):
        graph = refold(graph, np.arange(len(graph.folding.lane_of)))
    for _ in range(_MOST_ROUNDS):
        if graph.folding is None:
            return graph, Planner(graph, cluster, library)
        planner = FoldedPlanner(
            graph, cluster, library, negligible=negligible, apart=apart, follow=follow
        )
        finer = planner.finer_roles()
        if finer is None:
            return graph, planner
        world = len(graph.folding.lane_of)
        del planner  # before the next one is made
        graph = refold(graph, finer)
    graph = refold(graph, np.arange(world))
    return graph, Planner(graph, cluster, library)


def _made(cluster: Cluster, library: Library, request: Request, ranks: tuple[int, ...]) -> Plan:
    """Return the plan of one group (or pair, or copy) of an orbit."""
    if request.kind == _COPY:
        return _copy_plan(cluster, ranks[0], CopyDirection(request.root), request.size)
    return plan_of(library, replace(request, ranks=ranks), cluster)


def _copy_plan(cluster: Cluster, rank: int, way: CopyDirection, size: int) -> Plan:
    route = cluster.to_host(rank) if way == CopyDirection.TO_HOST else cluster.from_host(rank)
    none = np.zeros(1, np.int64)
    part = PlanPart((copy_phase(route, size, cluster.links),), none, none)
    return Plan((part,), Start.ALL, 1)


def _times(plan: Plan) -> tuple[object, ...]:
    """Return what must be equal for two plans to be equivalent, apart from their links."""
    phases = tuple(
        tuple((phase.idle, phase.lead, phase.tail) for phase in part.phases) for part in plan.parts
    )
    return (phases, plan.start, plan.algorithm, plan.channels)


def _numbered_through(orbits: list[OrbitPlans], first: Ints) -> Entries:
    """Return the entries of all orbits, their plans numbered from `first` of each."""
    if not orbits:
        return entries_of(())
    numbers = [first[at] + np.arange(len(plans.of)) for at, plans in enumerate(orbits)]
    parts = zip(orbits, numbers, strict=True)
    return Entries.joined([plans.entries.numbered(own) for plans, own in parts])


def _exits(orbit: OrbitPlans) -> Hashes:
    """Return when members join and leave plans as numbers, shape (plans, members)."""
    plans = orbit.templates
    found = np.zeros((len(plans), plans[0].members), np.uint64)
    for number in range(max(len(plan.parts) for plan in plans)):
        parts = [plan.parts[min(number, len(plan.parts) - 1)] for plan in plans]
        when = mix(np.stack([p.joins for p in parts]), np.stack([p.leaves for p in parts]))
        found = mix(found, when)
    return found[orbit.of]


def _sums(where: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(where, weights=values, minlength=count).astype(np.float64)
