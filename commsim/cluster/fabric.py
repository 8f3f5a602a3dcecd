"""
What joins the nodes: leaf, spine and core switches, and the ways between NICs.

    nic - leaf - nic                         both on one leaf
    nic - leaf - spine - leaf - nic          leaves of one group
    nic - leaf - spine - core - spine - leaf - nic

A fabric kind only decides which leaf a NIC hangs on; above the leaves all are one tree. A
leaf's uplinks carry together the bandwidth of its NICs divided by the oversubscription.

Spines: an even split over k equal uplinks is exactly one uplink of k times the bandwidth. So
with `ecmp: even` the spines of a group are merged into one and their uplinks into a trunk
(likewise the cores), unless `spines` asks to see them apart. With `ecmp: hash`, where one
connection uses one path, they are apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from commsim.cluster.routes import LinkRows, Route
from commsim.errors import ScenarioError
from commsim.sections import Section
from commsim.units import Duration

__all__ = ["Fabric", "FabricSection", "Nic"]

Kind = Literal["none", "single_switch", "rail_optimized", "rail_only", "fat_tree"]

_RADIX = 64
_MAX_SPINES = 4096
_SWITCH_LATENCY = {"infiniband": 130_000, "ethernet": 600_000}  # ps; see _note_latency


class FabricSection(Section):
    """The network between nodes, as a user writes it.

    `oversubscription`: bandwidth of a leaf's NICs over that of its uplinks. `radix`: ports per
    switch; decides how many nodes share a leaf (or a pod of rail leaves), and whether a core
    level is needed. `nodes_per_leaf` says it outright (for rail_optimized: nodes per pod).
    `spines`: uplinks per leaf that are told apart. `cable_latency`: of each network link.
    """

    kind: Kind | None = None
    oversubscription: float | None = None
    ecmp: Literal["even", "hash"] | None = None
    seed: int | None = None
    radix: int | None = None
    nodes_per_leaf: int | None = None
    spines: int | None = None
    switch_latency: Duration | None = None
    cable_latency: Duration | None = None
    sources: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC: its node, its number there, its rail, raw bandwidth (bytes/s), share, medium."""

    node: int
    index: int
    rail: int
    bandwidth: float
    efficiency: float
    latency: int
    medium: str


class Fabric:
    """The fabric of a cluster; its links follow those of the nodes, from id `first` on."""

    def __init__(
        self, section: FabricSection, nics: Sequence[Nic], nodes: int, *, first: int, where: str
    ) -> None:
        self._where = where
        self.kind: Kind = section.kind or ("single_switch" if nodes > 1 and nics else "none")
        self.ecmp = section.ecmp or "even"
        self.seed = section.seed or 0
        self.oversubscription = self._at_least_one(section)
        self.medium = self._one_medium(nics)
        self.notes: list[str] = []
        self.rows = LinkRows()
        self.kind_of: dict[str, str] = {}
        self._first = first
        self._routes: dict[tuple[int, int, int, int], Route] = {}
        self._inner: dict[tuple[int, int, int, int], Route] = {}
        self.leaf_of: list[int] = []
        self._refuse_unused(section)
        if self.kind == "none":
            if nodes > 1:
                raise self._error("kind", f"none joins no nodes, and there are {nodes}. {_KINDS}")
            return
        self._note_latency(section)
        self._build(section, nics)

    def _error(self, field: str, message: str) -> ScenarioError:
        return ScenarioError(f"{self._where}.{field}: {message}")

    def _at_least_one(self, section: FabricSection) -> float:
        ratio = section.oversubscription
        if ratio is not None and not ratio >= 1:
            raise self._error(
                "oversubscription",
                f"{ratio:g} is below 1. Give the bandwidth of a leaf's NICs over that of its"
                " uplinks: 1 for none, 2 for 2:1.",
            )
        for field in ("radix", "nodes_per_leaf", "spines"):
            value = getattr(section, field)
            if value is not None and value < 1:
                raise self._error(field, f"{value} is not a count. Give 1 or more.")
        if section.radix == 1:
            raise self._error("radix", "a switch of one port joins nothing. Give 2 or more.")
        if (section.spines or 0) > _MAX_SPINES:
            raise self._error("spines", f"{section.spines} is more than {_MAX_SPINES}.")
        return ratio or 1.0

    def _one_medium(self, nics: Sequence[Nic]) -> str:
        media = list(dict.fromkeys(nic.medium for nic in nics))
        if len(media) > 1:
            raise self._error(
                "kind", f"{' and '.join(media)} NICs cannot share one fabric. Give one medium."
            )
        return media[0] if media else ""

    def _refuse_unused(self, section: FabricSection) -> None:
        """Refuse settings that would change nothing in this kind of fabric."""
        trunks = ("oversubscription", "ecmp", "seed", "spines", "radix", "nodes_per_leaf")
        flat = {"none": (*trunks, "switch_latency", "cable_latency"), "single_switch": trunks,
                "rail_only": trunks}  # fmt: skip
        harmless = {"oversubscription": 1.0, "ecmp": "even", "seed": 0}
        for field in flat.get(self.kind, ()):
            value = getattr(section, field)
            if value is not None and value != harmless.get(field):
                raise self._error(
                    field, f"means nothing with kind: {self.kind}. Leave it out, or change kind."
                )

    def _note_latency(self, section: FabricSection) -> None:
        """Take the documented 130 ns of an HDR switch, or a general 600 ns for Ethernet."""
        given = section.switch_latency
        self._switch = _SWITCH_LATENCY.get(self.medium, 0) if given is None else int(given)
        self._cable = int(section.cable_latency or 0)
        if given is None and self.medium:
            source = {
                "infiniband": "documented: Quantum QM8790 brief, 'sub-130 ns'",
                "ethernet": "general: Tomahawk class, 450 to 900 ns",
            }[self.medium]
            self.notes.append(
                f"fabric: switch_latency {self._switch // 1000} ns taken by default ({source})."
            )

    def _build(self, section: FabricSection, nics: Sequence[Nic]) -> None:
        names, self.leaf_of, leaf_group = self._leaves(section, nics)
        for name in names:
            self.kind_of[name] = "leaf"
        self._nic_up = [self._attach(nic, names[leaf]) for nic, leaf in zip(nics, self.leaf_of)]
        self._group = leaf_group
        self.leaves = len(names)
        self.raw = [0.0] * self.leaves
        payload = [0.0] * self.leaves
        for nic, leaf in zip(nics, self.leaf_of, strict=True):
            self.raw[leaf] += nic.bandwidth
            payload[leaf] += nic.bandwidth * nic.efficiency
        self.payload = payload
        self.planes = self.cores = 1
        if self.leaves > 1 and self.kind != "rail_only":
            self._add_tree(section, names, nics)

    def _attach(self, nic: Nic, leaf: str) -> int:
        """Add a NIC's two links; a switch's delay counts half at each of its sides."""
        return self.rows.both(
            f"node{nic.node}/nic{nic.index}", leaf, kind="network", bandwidth=nic.bandwidth,
            efficiency=nic.efficiency, latency=nic.latency + self._cable + self._switch // 2,
            medium=nic.medium,
        )  # fmt: skip

    def _leaves(
        self, section: FabricSection, nics: Sequence[Nic]
    ) -> tuple[list[str], list[int], list[int]]:
        """Return the leaves' names, the leaf of each NIC, and the group of each leaf."""
        width = section.nodes_per_leaf or self._nodes_per_leaf(section, nics)
        keys: list[tuple[int, ...]]
        if self.kind == "single_switch":
            keys = [(0, 0)] * len(nics)
        elif self.kind == "rail_only":
            keys = [(0, nic.rail) for nic in nics]
        elif self.kind == "rail_optimized":
            keys = [(nic.node // width, nic.rail) for nic in nics]
        else:
            keys = [(nic.node // width, 0) for nic in nics]
        order = sorted(dict.fromkeys(keys))
        number = {key: index for index, key in enumerate(order)}
        names = [self._leaf_name(pod, rail, order) for pod, rail in order]
        return names, [number[key] for key in keys], self._groups(section, order)

    def _leaf_name(self, pod: int, rail: int, order: list[tuple[int, ...]]) -> str:
        if self.kind == "single_switch":
            return "switch"
        if self.kind == "fat_tree":
            return f"leaf{pod}"
        return f"leaf{rail}" if order[-1][0] == 0 else f"pod{pod}/leaf{rail}"

    def _nodes_per_leaf(self, section: FabricSection, nics: Sequence[Nic]) -> int:
        """Return how many nodes fill a leaf's downward ports, with `radix` ports in all."""
        radix = section.radix or _RADIX
        down = int(radix * self.oversubscription / (1 + self.oversubscription))
        per_node = 1
        if self.kind == "fat_tree":
            per_node = max((nic.index for nic in nics), default=0) + 1
        return max(1, down // per_node)

    def _groups(self, section: FabricSection, order: list[tuple[int, ...]]) -> list[int]:
        """Return each leaf's group: one where a spine has a port per leaf, else halves of pods."""
        radix = section.radix or _RADIX
        if len(order) <= radix:
            return [0] * len(order)
        per_pod = sum(1 for pod, _ in order if pod == order[0][0])
        pods = max(1, radix // 2 // per_pod)
        return [pod // pods for pod, _ in order]

    def _add_tree(
        self, section: FabricSection, names: list[str], nics: Sequence[Nic]
    ) -> None:
        groups = self._group[-1] + 1
        apart = section.spines is not None or self.ecmp == "hash"
        if apart:
            self.planes = section.spines or self._uplinks(nics)
        per_group = max(self._group.count(group) for group in range(groups))
        if groups > 1 and self.ecmp == "hash":
            self.cores = per_group
        self._up = len(self.rows)
        for leaf, name in enumerate(names):
            rate = self.raw[leaf] / self.oversubscription / self.planes
            efficiency = self.payload[leaf] / self.raw[leaf]
            for plane in range(self.planes):
                spine = self._spine(self._group[leaf], plane, groups)
                self._trunk(name, spine, rate, efficiency)
        self._core = len(self.rows)
        if groups > 1:
            self._add_cores(groups)

    def _add_cores(self, groups: int) -> None:
        """Join the groups; the oversubscription counts between leaf and spine only."""
        for group in range(groups):
            leaves = [leaf for leaf in range(self.leaves) if self._group[leaf] == group]
            raw = sum(self.raw[leaf] for leaf in leaves)
            efficiency = sum(self.payload[leaf] for leaf in leaves) / raw
            rate = raw / self.oversubscription / self.planes / self.cores
            for plane in range(self.planes):
                for core in range(self.cores):
                    name = f"core{plane * self.cores + core}" if self._many else "core"
                    self.kind_of[name] = "core"
                    self._trunk(self._spine(group, plane, groups), name, rate, efficiency)

    @property
    def _many(self) -> bool:
        return self.planes * self.cores > 1

    def _uplinks(self, nics: Sequence[Nic]) -> int:
        """Return how many uplinks the fullest leaf has: ports of one NIC's speed each."""
        most = max(self.leaf_of.count(leaf) for leaf in range(self.leaves))
        return max(1, min(_MAX_SPINES, round(most / self.oversubscription)))

    def _spine(self, group: int, plane: int, groups: int) -> str:
        name = f"spine{plane}" if self.planes > 1 else "spine"
        name = f"group{group}/{name}" if groups > 1 else name
        self.kind_of[name] = "spine"
        return name

    def _trunk(self, a: str, b: str, bandwidth: float, efficiency: float) -> None:
        self.rows.both(
            a, b, kind="network", bandwidth=bandwidth, efficiency=efficiency,
            latency=self._switch + self._cable, medium=self.medium,
        )  # fmt: skip

    def route(self, a: int, b: int, key: int) -> Route | None:
        """Return the way from NIC a to NIC b, or None where there is none.

        With `ecmp: hash`, connection `key` takes the path that its hash picks.
        """
        if self.kind == "none":
            return None
        leaves = self.leaf_of[a], self.leaf_of[b]
        if leaves[0] != leaves[1] and self.kind == "rail_only":
            return None
        plane = core = -1
        if self.ecmp == "hash" and leaves[0] != leaves[1]:
            pick = stable_hash(self.seed, a, b, key)
            plane, core = pick % self.planes, pick // self.planes % self.cores
        chosen = (a, b, plane, core)
        if chosen not in self._routes:
            self._routes[chosen] = self._join(a, b, plane, core)
        return self._routes[chosen]

    def _join(self, a: int, b: int, plane: int, core: int) -> Route:
        leaves = (self.leaf_of[a], self.leaf_of[b], plane, core)
        if leaves not in self._inner:
            self._inner[leaves] = self._between(*leaves)
        inner = self._inner[leaves]
        up, down = self._nic_up[a], self._nic_up[b] + 1
        return Route(
            (self._first + up, *inner.link, self._first + down),
            inner.share,
            inner.hop,
            inner.latency + self.rows.latency[up] + self.rows.latency[down],
        )

    def _between(self, a: int, b: int, plane: int, core: int) -> Route:
        """Return the way from leaf to leaf; share and hop also count the NICs' own links."""
        planes = range(self.planes) if plane < 0 else (plane,)
        cores = range(self.cores) if core < 0 else (core,)
        hops: list[list[int]] = []
        if a != b:
            hops.append([self._up + 2 * (a * self.planes + p) for p in planes])
            if self._group[a] != self._group[b]:
                for group, down in ((self._group[a], 0), (self._group[b], 1)):
                    base = group * self.planes
                    hops.append(
                        [
                            self._core + 2 * ((base + p) * self.cores + c) + down
                            for p in planes
                            for c in cores
                        ]
                    )
            hops.append([self._up + 2 * (b * self.planes + p) + 1 for p in planes])
        latency = sum(max(self.rows.latency[link] for link in hop) for hop in hops)
        sizes = [1, *(len(hop) for hop in hops), 1]
        return Route(
            tuple(self._first + link for hop in hops for link in hop),
            tuple(1.0 / size for size in sizes for _ in range(size)),
            tuple(number for number, size in enumerate(sizes) for _ in range(size)),
            latency,
        )


_KINDS = "Give kind: single_switch, rail_optimized, rail_only or fat_tree."
_MASK = 2**64 - 1


def stable_hash(*words: int) -> int:
    """Return 64 well-mixed bits of some integers, the same in every run (splitmix64)."""
    state = 0
    for word in words:
        state = (state + word + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state
