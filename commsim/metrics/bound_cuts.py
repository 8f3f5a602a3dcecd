"""
Cuts of a cluster that bound a collective: the links between some GPUs and the rest.

A cut is a set X of devices; all that X sends to the others crosses the links that leave X. Any
set gives a valid bound; taking only some of them loosens it. Up to 16 devices every set is
examined. Above, X is each GPU alone, all that hangs on one PCIe
switch, socket, node (with and without its NICs), NVLink domain, leaf or pod, group of spines.

Only links that a library can use count: NVLink if all GPUs of a group are joined by it, else
PCIe and NICs as well.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.cluster import Cluster

__all__ = ["HOST_LEVELS", "Cuts", "Level", "Partition", "cuts_of", "slowest_link"]


HOST_LEVELS = ("node", "NVLink", "leaf", "group")
"""First words of the levels whose sets hold the GPUs' host memory as well."""

_EXACT = 16  # devices; their sets are all looked at
_PAIRS = 144  # GPUs; above, the links between all pairs are not collected


class Cuts(NamedTuple):
    """Sets X of devices: who is inside, and the links across, as columns.

    `inside[c]` members of the group (as a level's label, or a mask). `out`, `into`: bytes/s over
    the links that leave and enter; `late_out`, `late_into`: the least latency of these, in s.
    """

    name: tuple[str, ...]
    members: Ints
    out: Floats
    into: Floats
    late_out: Floats
    late_into: Floats


class Level(msgspec.Struct, frozen=True, eq=False):
    """One way to cut: `unit[i]` is the cut that member i is inside, or `mask[c, i]` if several."""

    cuts: Cuts
    unit: Ints | None = None
    mask: Bools | None = None
    what: str = "set"

    def inside(self, member: int) -> Bools:
        """Return for each cut whether a member is inside."""
        if self.mask is not None:
            return self.mask[:, member]
        assert self.unit is not None
        found: Bools = np.arange(len(self.cuts.members)) == self.unit[member]
        return found

    def leaving(self, weight: Floats, source: Ints, target: Ints) -> Floats:
        """Return for each cut the weights of the pairs that lead out of it."""
        if self.mask is not None:
            crossing = self.mask[:, source] & ~self.mask[:, target]
            total: Floats = crossing @ weight
            return total
        assert self.unit is not None
        crosses = self.unit[source] != self.unit[target]
        found: Floats = np.bincount(
            self.unit[source][crosses], weights=weight[crosses], minlength=len(self.cuts.members)
        ).astype(np.float64)
        return found


class Partition(msgspec.Struct, frozen=True):
    """The group cut into `parts` at once; bytes/s over all links that leave or enter a part."""

    name: str
    parts: int
    capacity: float
    latency: float
    what: str = "set"


def cuts_of(
    cluster: Cluster, gpus: tuple[int, ...], *, every_set: bool = True
) -> tuple[list[Level], list[Partition]]:
    """Return the cuts of a group's GPUs, and the partitions that whole levels of them make.

    `every_set`: on up to 16 devices look at all sets of them, which takes a tenth of a second.
    """
    wires = _Wires(cluster, gpus)
    levels = [wires.level(what, mask) for what, mask in wires.kinds()]
    levels = [level for level in levels if len(level.cuts.members) > 1]
    partitions = [_partition(level) for level in levels]
    if every_set and wires.devices <= _EXACT:
        levels.append(wires.every_set())
    return levels, partitions


def slowest_link(cluster: Cluster, gpus: tuple[int, ...], cut: str, *, by_latency: bool) -> str:
    """Return the name of the link across a cut (as `Bound.cut` names it) that sets its bound.

    The one of least capacity, or of least latency `by_latency`; "" for a set without a name.
    """
    wires = _Wires(cluster, gpus)
    words = cut.removeprefix("out of ").removeprefix("into ")
    for what, within in wires.kinds():
        level = wires.level(what, within)
        whole = cut.startswith("between ") and _partition(level).name == cut
        if whole or words in level.cuts.name:
            at = -1 if whole else level.cuts.name.index(words)
            return wires.crossing(within, at, inward=cut.startswith("into "), late=by_latency)
    return ""


_SEVERAL = {
    "GPU": "GPUs", "PCIe switch": "PCIe switches", "socket": "sockets",
    "node without NICs": "nodes without NICs", "node": "nodes", "NVLink domain": "NVLink domains",
    "leaf": "leaves", "group": "groups",
}  # fmt: skip


def _partition(level: Level) -> Partition:
    cuts = level.cuts
    return Partition(
        f"between {len(cuts.members)} {_SEVERAL[level.what]}",
        len(cuts.members),
        float(min(cuts.out.sum(), cuts.into.sum())),
        float(min(cuts.late_out.min(), cuts.late_into.min())),
        level.what,
    )


class _Wires:
    """The links that a group can use, by number of the devices at their ends."""

    def __init__(self, cluster: Cluster, gpus: tuple[int, ...]) -> None:
        links, ends = cluster.links, cluster.ends
        chosen = _usable(cluster, gpus)
        self._links, self._chosen, self._ends = links, chosen, ends
        count = len(chosen)
        both = np.concatenate((ends.source[chosen], ends.target[chosen]))
        self._device, number = _by_appearance(both, len(ends.number))
        self.devices = len(self._device)
        self._source, self._target = number[both[:count]], number[both[count:]]
        self._capacity = links.capacity[chosen]
        self._latency = links.latency[chosen] / 1e12
        self._kind = ends.kind[chosen]
        self._both = self._kind == "memory"  # used both ways
        names = [f"node{cluster.node_of[g]}/gpu{cluster.local_of[g]}" for g in gpus]
        self._gpu = number[[ends.number[name] for name in names]]
        self._gpus = gpus

    def kinds(self) -> list[tuple[str, Bools]]:
        """Return each level's name and the links that stay within its sets."""

        def touches(*types: str) -> Bools:
            source, target = self._are(self._ends.of_type(*types))
            return source | target

        network, nvlink = self._kind == "network", self._kind == "nvlink"
        local = ~network
        over = np.logical_or(*self._are(self._ends.named("domain")))  # NVSwitches of several nodes
        between = np.logical_and(*self._are(self._ends.of_type("cpu")))
        tree = local & ~nvlink
        return [
            ("GPU", np.zeros(len(self._source), dtype=np.bool_)),
            ("PCIe switch", tree & ~touches("cpu", "mem")),
            ("socket", tree & ~between),
            ("node without NICs", local & ~touches("nic") & ~over),
            ("node", local & ~over),
            ("NVLink domain", local),
            ("leaf", local | network & ~touches("spine", "core")),
            ("group", local | network & ~touches("core")),
        ]

    def _are(self, devices: Bools) -> tuple[Bools, Bools]:
        """Return whether the ends of each link are among some devices of the cluster."""
        inside = devices[self._device]
        return inside[self._source], inside[self._target]

    def level(self, what: str, within: Bools) -> Level:
        """Return the sets of devices that the links `within` join, those with members only."""
        label = _components(self.devices, self._source[within], self._target[within])
        sets, unit = np.unique(label[self._gpu], return_inverse=True)
        place = np.full(self.devices, -1, dtype=np.int64)
        place[sets] = np.arange(len(sets))
        place = place[label]
        a, b = place[self._source], place[self._target]
        count = len(sets)
        ends = [(a, b, a != b), (b, a, (a != b) & self._both)]
        out, into = np.zeros(count), np.zeros(count)
        late_out, late_into = np.full(count, np.inf), np.full(count, np.inf)
        for tail, head, crosses in ends:
            leave, enter = crosses & (tail >= 0), crosses & (head >= 0)
            out += np.bincount(tail[leave], weights=self._capacity[leave], minlength=count)
            into += np.bincount(head[enter], weights=self._capacity[enter], minlength=count)
            np.minimum.at(late_out, tail[leave], self._latency[leave])
            np.minimum.at(late_into, head[enter], self._latency[enter])
        unit = unit.reshape(-1)
        first = np.full(count, -1, dtype=np.int64)
        first[unit[::-1]] = np.arange(len(unit))[::-1]
        names = tuple(self._name(what, member) for member in first.tolist())
        members = np.bincount(unit, minlength=count)
        return Level(Cuts(names, members, out, into, late_out, late_into), unit, what=what)

    def crossing(self, within: Bools, at: int, *, inward: bool, late: bool) -> str:
        """Return the slowest link out of (`inward`: into) set `at` of a level; -1: any of them."""
        label = _components(self.devices, self._source[within], self._target[within])
        sets = np.unique(label[self._gpu])
        inside = np.isin(label, sets if at < 0 else sets[at : at + 1])
        ends = (self._target, self._source) if inward else (self._source, self._target)
        apart = label[self._source] != label[self._target]
        across = np.flatnonzero(inside[ends[0]] & apart)
        if not across.size:
            return ""
        worst = np.argmin((self._latency if late else self._capacity)[across])
        return self._links.names[int(self._chosen[across[worst]])]

    def _name(self, what: str, member: int) -> str:
        rank = self._gpus[member]
        return f"GPU {rank}" if what == "GPU" else f"{what} of GPU {rank}"

    def every_set(self) -> Level:
        """Return the least cut around every set of members, by looking at all sets of devices."""
        count = self.devices
        bits = np.arange(1 << count)[:, None] >> np.arange(count) & 1
        held = bits[:, self._gpu].sum(axis=1)
        bits = bits[(held > 0) & (held < len(self._gpu))].astype(np.float64)
        outside = 1 - bits
        wires = np.zeros((count, count))
        late = np.full((count, count), np.inf)
        for a, b, both in ((self._source, self._target, False), (self._target, self._source, True)):
            some = self._both if both else np.ones(len(a), dtype=np.bool_)
            np.add.at(wires, (a[some], b[some]), self._capacity[some])
            np.minimum.at(late, (a[some], b[some]), self._latency[some])
        fastest = np.min(late, initial=np.inf)
        held_by = (bits[:, self._gpu] @ (1 << np.arange(len(self._gpu)))).astype(np.int64)
        sets, place = np.unique(held_by, return_inverse=True)
        out, into = np.full(len(sets), np.inf), np.full(len(sets), np.inf)
        np.minimum.at(out, place.reshape(-1), ((bits @ wires) * outside).sum(axis=1))
        np.minimum.at(into, place.reshape(-1), ((outside @ wires) * bits).sum(axis=1))
        mask: Bools = (sets[:, None] >> np.arange(len(self._gpu)) & 1).astype(np.bool_)
        names = tuple(
            "GPUs " + " ".join(str(self._gpus[i]) for i in np.flatnonzero(row)) for row in mask
        )
        latency = np.full(len(sets), fastest)
        return Level(Cuts(names, mask.sum(axis=1), out, into, latency, latency), mask=mask)


def _usable(cluster: Cluster, gpus: tuple[int, ...]) -> Ints:
    """Return the links that messages between a group's GPUs can take."""
    everything: Ints = np.arange(len(cluster.links))
    if len(gpus) > _PAIRS or len({cluster.domain_of(gpu) for gpu in gpus}) > 1:
        return everything
    found: dict[int, None] = {}
    for a, b in permutations(gpus, 2):
        route = cluster.local_route(a, b)
        if route is None:
            return everything
        found.update(dict.fromkeys(route.link))
    return np.array(sorted(found), dtype=np.int64)


def _by_appearance(devices: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the different ones of `devices` as they appear, and the place of each of `count`."""
    first = np.full(count, len(devices))
    np.minimum.at(first, devices, np.arange(len(devices)))
    found = np.flatnonzero(first < len(devices))
    found = found[np.argsort(first[found])]
    place = np.full(count, -1)
    place[found] = np.arange(len(found))
    return found, place


def _components(count: int, source: Ints, target: Ints) -> Ints:
    """Return for each device the smallest device that the links join it with."""
    label: Ints = np.arange(count)
    while True:
        least = np.minimum(label[source], label[target])
        lower = label.copy()
        np.minimum.at(lower, source, least)
        np.minimum.at(lower, target, least)
        lower = lower[lower]
        if np.array_equal(lower, label):
            return label
        label = lower
