"""
Color refinement: the equivalence classes of plans and of links.

Flows and links are split together: links by capacity and by the flows that load them, flows
by the links they load and how much, until nothing splits any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from commsim.arrays import Bools, Floats, Ints, Whole, distinct_columns, narrow, parts, taken
from commsim.libraries import Plan

__all__ = ["Entries", "Hashes", "PhaseLoads", "color_by_plans", "entries_of", "mix", "refine"]

Hashes = npt.NDArray[np.uint64]

_DIGITS = 9  # loads that agree to this many digits are equal


class PhaseLoads(msgspec.Struct, frozen=True, eq=False):
    """What a phase of a plan puts on a link: the `phase`, bytes and connections."""

    phase: Ints
    load: Floats
    conns: Floats


class Entries(msgspec.Struct, frozen=True, eq=False):
    """What the phases of many plans do to links: one entry per (plan, phase, link), by plan.

    Thousands of plans do the same, each on its links, and one plan does the same on thousands of
    links: `flow` is the row of `flows` that says what. Columns are of 32 bits if that holds them.
    """

    plan: Whole
    link: Whole
    flow: Whole
    flows: PhaseLoads

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """Return all entries of several."""
        flows = [part.flows for part in parts]
        first = np.cumsum([0, *(len(own.load) for own in flows)])
        flow = [
            taken(narrow(np.arange(low, high)), part.flow)
            for low, high, part in zip(first[:-1], first[1:], parts, strict=True)
        ]
        return cls(
            plan=np.concatenate([part.plan for part in parts]),
            link=np.concatenate([part.link for part in parts]),
            flow=np.concatenate(flow),
            flows=PhaseLoads(
                np.concatenate([own.phase for own in flows]),
                np.concatenate([own.load for own in flows]),
                np.concatenate([own.conns for own in flows]),
            ),
        )

    @property
    def phase(self) -> Ints:
        """The phase of each entry, made anew."""
        return taken(self.flows.phase, self.flow)

    @property
    def load(self) -> Floats:
        """The bytes of each entry, made anew."""
        return taken(self.flows.load, self.flow)

    @property
    def conns(self) -> Floats:
        """The connections of each entry, made anew."""
        return taken(self.flows.conns, self.flow)

    def on(self, links: int) -> Bools:
        """Return which links have entries: `links` of them, or up to the last that has."""
        found = np.zeros(max(links, int(self.link.max(initial=-1)) + 1), np.bool_)
        for part in parts(len(self.link)):
            found[self.link[part]] = True
        return found

    def numbered(self, plans: Ints) -> Entries:
        """Return the same entries, plan i being called `plans[i]`."""
        return replace(self, plan=taken(narrow(plans), self.plan))

    def by_plan(self) -> Entries:
        """Return the entries in the order of their plans."""
        if (self.plan[1:] >= self.plan[:-1]).all():
            return self
        return self._kept(np.argsort(self.plan, kind="stable"))

    def in_parts(self) -> Iterator[Entries]:
        """Yield the entries of some plans after those of others, all of a plan together."""
        at = 0
        for part in parts(len(self.plan)):
            last = min(part.stop, len(self.plan)) - 1
            if last >= at:
                end = int(np.searchsorted(self.plan, self.plan[last], side="right"))
                yield self._kept(slice(at, end))
                at = end

    def of(self, plans: Bools) -> Entries:
        """Return the entries of the plans that are True."""
        return self._kept(taken(plans, self.plan))

    def of_links(self, links: Bools) -> Entries:
        """Return the entries on the links that are True; links beyond these are not."""
        known = np.zeros(max(len(links), int(self.link.max(initial=-1)) + 1), np.bool_)
        known[: len(links)] = links
        return self._kept(taken(known, self.link))

    def without(self, links: Bools) -> Entries:
        """Return the entries on all but the links that are True."""
        if not links.any():
            return self
        others = np.ones(max(len(links), int(self.link.max(initial=-1)) + 1), np.bool_)
        others[: len(links)] = ~links
        return self._kept(taken(others, self.link))

    def _kept(self, kept: Bools | Ints | slice) -> Entries:
        return Entries(self.plan[kept], self.link[kept], self.flow[kept], self.flows)


def entries_of(plans: Sequence[Plan]) -> Entries:
    """Return the loads of all plans as columns; phases are numbered through a plan's parts."""
    rows = [
        (at, number, phase)
        for at, plan in enumerate(plans)
        for number, phase in enumerate(phase for part in plan.parts for phase in part.phases)
    ]
    counts = [len(phase.link) for _, _, phase in rows]

    def spread(values: list[int]) -> Ints:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    none = np.zeros(0)
    link = np.concatenate([none, *(phase.link for _, _, phase in rows)])
    number = spread([number for _, number, _ in rows])
    load = np.concatenate([none, *(phase.load for _, _, phase in rows)])
    conns = np.concatenate([none, *(phase.conns for _, _, phase in rows)])
    first, flow = distinct_columns((number, load.view(np.int64), conns.view(np.int64)))
    return Entries(
        plan=narrow(spread([at for at, _, _ in rows])),
        link=narrow(link.astype(np.int64)),
        flow=narrow(flow),
        flows=PhaseLoads(number[first], load[first], conns[first]),
    )


def refine(plan_keys: Hashes, entries: Entries, capacity: Floats) -> tuple[Ints, Ints]:
    """Return stable colors of plans and of links (-1: a link that nothing uses)."""
    weight = _weights(entries.flows)
    used, link = _renumbered(entries, len(capacity))
    plan_color = _number(plan_keys)
    link_color = _number(_digits(capacity[used]))
    while entries.link.size:
        before = plan_color.max() + link_color.max()
        # Sums of hashes tell multisets apart whatever their order; each key holds the old color,
        # so classes only ever split, and as many as before means that none did.
        loaded = _summed(weight, entries.flow, plan_color, entries.plan, link, len(used))
        link_color = _number(mix(link_color + 1, loaded))
        loads = _summed(weight, entries.flow, link_color, link, entries.plan, len(plan_color))
        plan_color = _number(mix(plan_color + 1, loads))
        if plan_color.max() + link_color.max() == before:
            break
    colors = np.full(len(capacity), -1)
    colors[used] = link_color
    return plan_color, colors


def color_by_plans(plan_color: Ints, entries: Entries, capacity: Floats) -> tuple[Ints, Ints]:
    """Return the links of `entries` and their colors: equal if equal plans load them equally."""
    used, link = _renumbered(entries, len(capacity))
    weight = _weights(entries.flows)
    loaded = _summed(weight, entries.flow, plan_color, entries.plan, link, len(used))
    return used, _number(mix(_digits(capacity[used]), loaded))


def _renumbered(entries: Entries, links: int) -> tuple[Ints, Whole]:
    """Return the links of entries, ascending, and the place of each entry there."""
    on = entries.on(links)
    used = np.flatnonzero(on)
    place = np.zeros(len(on), np.int64)
    place[used] = np.arange(len(used))
    return used, taken(narrow(place), entries.link)


def _weights(flows: PhaseLoads) -> Hashes:
    return mix(mix(_digits(flows.load), _digits(flows.conns)), flows.phase + 1)


def _summed(
    weight: Hashes, flow: Whole, color: Ints, number: Whole, where: Whole, count: int
) -> Hashes:
    """Return, by `where` the entries are, the sum of their weights mixed with their colors.

    The weight is that of an entry's flow, the color that of its number.
    """
    found = np.zeros(count, np.uint64)
    for part in parts(len(flow)):
        np.add.at(found, where[part], mix(weight[flow[part]], color[number[part]]))
    return found


def _number(keys: Hashes) -> Ints:
    """Number keys in the order of their values; equal keys get equal numbers."""
    numbered: Ints = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbered


def _digits(values: Floats) -> Hashes:
    """Return numbers that are equal if the values agree to some nine digits."""
    mantissa, exponent = np.frexp(values)
    rounded = np.rint(mantissa * 10.0**_DIGITS).astype(np.int64)
    return mix(rounded, exponent.astype(np.int64))


def mix(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> Hashes:
    """Hash pairs of integers to 64 bits: splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + b.astype(np.uint64)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
