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

from commsim.arrays import Bools, Floats, Ints
from commsim.libraries import Plan

__all__ = ["Entries", "Hashes", "color_by_plans", "entries_of", "mix", "refine"]

Hashes = npt.NDArray[np.uint64]

_PART = 1 << 18
_DIGITS = 9  # loads that agree to this many digits are equal


class Entries(msgspec.Struct, frozen=True, eq=False):
    """What the phases of many plans do to links: one entry per (plan, phase, link)."""

    plan: Ints
    phase: Ints
    link: Ints
    load: Floats
    conns: Floats

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """Return all entries of several."""
        whole = {
            column: np.concatenate([getattr(part, column) for part in parts])
            for column in cls.__struct_fields__
        }
        return cls(**whole)

    def numbered(self, plans: Ints) -> Entries:
        """Return the same entries, plan i being called `plans[i]`."""
        return replace(self, plan=plans[self.plan])

    def by_plan(self) -> Entries:
        """Return the entries in the order of their plans."""
        if (self.plan[1:] >= self.plan[:-1]).all():
            return self
        return self._kept(np.argsort(self.plan, kind="stable"))

    def of(self, plans: Bools) -> Entries:
        """Return the entries of the plans that are True."""
        return self._kept(plans[self.plan])

    def of_links(self, links: Bools) -> Entries:
        """Return the entries on the links that are True; links beyond these are not."""
        known = self.link < len(links)
        kept = np.zeros(len(self.link), np.bool_)
        kept[known] = links[self.link[known]]
        return self._kept(kept)

    def without(self, links: Bools) -> Entries:
        """Return the entries on all but the links that are True."""
        beyond = np.zeros(int(self.link.max(initial=-1)) + 1, np.bool_)
        beyond[: len(links)] = links[: len(beyond)]
        return self._kept(~beyond[self.link])

    def _kept(self, kept: Bools | Ints) -> Entries:
        return Entries(
            self.plan[kept], self.phase[kept], self.link[kept], self.load[kept], self.conns[kept]
        )


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
    return Entries(
        plan=spread([at for at, _, _ in rows]),
        phase=spread([number for _, number, _ in rows]),
        link=np.concatenate([none, *(phase.link for _, _, phase in rows)]).astype(np.int64),
        load=np.concatenate([none, *(phase.load for _, _, phase in rows)]),
        conns=np.concatenate([none, *(phase.conns for _, _, phase in rows)]),
    )


def refine(plan_keys: Hashes, entries: Entries, capacity: Floats) -> tuple[Ints, Ints]:
    """Return stable colors of plans and of links (-1: a link that nothing uses)."""
    weight = _weights(entries)
    used, link, carried = _renumbered(entries.link, len(capacity))
    by_link = np.argsort(link, kind="stable")
    link_starts = np.cumsum(carried) - carried
    owners, plan_starts = np.unique(entries.plan, return_index=True)
    plan_color = _number(plan_keys)
    link_color = _number(_digits(capacity[used]))
    while entries.link.size:
        before = plan_color.max() + link_color.max()
        # Sums of hashes tell multisets apart whatever their order; each key holds the old color,
        # so classes only ever split, and as many as before means that none did.
        loaded = np.add.reduceat(_mixed(weight, plan_color, entries.plan)[by_link], link_starts)
        link_color = _number(mix(link_color + 1, loaded))
        loads = np.zeros(len(plan_color), np.uint64)
        loads[owners] = np.add.reduceat(_mixed(weight, link_color, link), plan_starts)
        plan_color = _number(mix(plan_color + 1, loads))
        if plan_color.max() + link_color.max() == before:
            break
    colors = np.full(len(capacity), -1)
    colors[used] = link_color
    return plan_color, colors


def color_by_plans(plan_color: Ints, entries: Entries, capacity: Floats) -> tuple[Ints, Ints]:
    """Return the links of `entries` and their colors: equal if equal plans load them equally."""
    used, link, _ = _renumbered(entries.link, len(capacity))
    loaded = np.zeros(len(used), np.uint64)
    np.add.at(loaded, link, _mixed(_weights(entries), plan_color, entries.plan))
    return used, _number(mix(_digits(capacity[used]), loaded))


def _renumbered(link: Ints, links: int) -> tuple[Ints, Ints, Ints]:
    """Return the links of entries, ascending, the place of each entry there, and their numbers."""
    count = np.bincount(link, minlength=links)
    used = np.flatnonzero(count)
    place = np.empty(len(count), np.int64)
    place[used] = np.arange(len(used))
    return used, place[link], count[used]


def _weights(entries: Entries) -> Hashes:
    found = np.empty(len(entries.load), np.uint64)
    for part in _parts(len(found)):
        loads = mix(_digits(entries.load[part]), _digits(entries.conns[part]))
        found[part] = mix(loads, entries.phase[part] + 1)
    return found


def _mixed(weight: Hashes, color: Ints, number: Ints) -> Hashes:
    """Return each weight mixed with the color of its number."""
    found = np.empty(len(weight), np.uint64)
    for part in _parts(len(found)):
        found[part] = mix(weight[part], color[number[part]])
    return found


def _parts(count: int) -> Iterator[slice]:
    """Yield the parts of a column of millions, of which hashing would make copies."""
    return (slice(at, at + _PART) for at in range(0, count, _PART))


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
