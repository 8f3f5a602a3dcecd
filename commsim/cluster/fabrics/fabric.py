"""
What joins the nodes: leaf, spine and core switches, and the routes between NICs.

    nic - leaf - nic                                     both on one leaf
    nic - leaf - spine - leaf - nic                      leaves of one group
    nic - leaf - spine - core - spine - leaf - nic

A leaf's uplinks carry together the bandwidth of its NICs divided by the oversubscription.
An even split over k equal uplinks is exactly one uplink of k times the bandwidth: with
`ecmp: even` the spines of a group are merged into one and the uplinks into a trunk (the cores
likewise), unless `spines` asks to see them apart. With `ecmp: hash`, where a connection takes
one path, they are apart. Column c is the c-th spine of each group; it has its own cores.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster.fabrics.bill import FabricParts, fabric_parts
from commsim.cluster.fabrics.fabric_section import FabricSpec
from commsim.cluster.fabrics.leaves import Leaves, Nic, hang
from commsim.cluster.routes import LinkRows, Route

__all__ = ["Fabric", "stable_hash"]


class Fabric:
    """The fabric of a cluster; its links follow those of the nodes, from id `first` on.

    `is_tree`: what passes a switch upwards has come from below it.
    """

    is_tree = True

    def __init__(self, spec: FabricSpec, nics: Sequence[Nic], *, medium: str, first: int) -> None:
        self.spec = spec
        self.kind = spec.kind
        self.rows = LinkRows()
        self.kind_of: dict[str, str] = {}
        self.leaves = Leaves((), (), ())
        self.columns = self.cores = 1
        self.dims: tuple[int, ...] = ()
        self.notes = list(spec.notes)
        self._medium = medium
        self._first = first
        self._routes: dict[tuple[int, int, int, int], Route] = {}
        self._inner: dict[tuple[int, int, int, int], Route] = {}
        self._nic_up: list[int] = []
        self.trunk: tuple[float, ...] = ()
        self._up = self._core = 0
        nodes = 1 + max((nic.node for nic in nics), default=0)
        self._kept = (1 - spec.congestion) ** math.log2(nodes)
        if spec.kind != "none" and nics:
            self._build(nics)

    def _build(self, nics: Sequence[Nic]) -> None:
        self.leaves = leaves = hang(nics, self.spec)
        self.kind_of |= dict.fromkeys(leaves.names, "leaf")
        self._nic_up = [
            self._attach(nic, leaves.names[leaf]) for nic, leaf in zip(nics, leaves.of, strict=True)
        ]
        raw, payload = [0.0] * len(leaves.names), [0.0] * len(leaves.names)
        for nic, leaf in zip(nics, leaves.of, strict=True):
            raw[leaf] += nic.bandwidth
            payload[leaf] += nic.bandwidth * nic.efficiency * self._kept
        if self.kind in ("rail_optimized", "fat_tree"):
            if len(leaves.names) > 1:
                self._add_trunks(raw, payload)
            self._say_who_needs_no_uplinks(len({nic.rail for nic in nics}))

    def _say_who_needs_no_uplinks(self, rails: int) -> None:
        thin = f"so oversubscription {self.spec.oversubscription:g} changes"
        if self.spec.oversubscription <= 1:
            return
        if len(self.leaves.names) == 1:
            self.notes.append(f"fabric: all NICs hang on one leaf, {thin} nothing.")
        elif self.kind == "rail_optimized" and len(self.leaves.names) == rails:
            self.notes.append(
                f"fabric: all NICs of a rail hang on one leaf, {thin} only what goes from rail to"
                " rail."
            )

    def _attach(self, nic: Nic, leaf: str) -> int:
        """Add a NIC's two links; a switch's delay counts half at each of its sides."""
        return self.rows.both(
            nic.name,
            leaf,
            kind="network",
            medium=nic.medium,
            bandwidth=nic.bandwidth,
            efficiency=nic.efficiency * self._kept,
            latency=nic.latency + self.spec.cable_latency + self.spec.switch_latency // 2,
        )

    def _add_trunks(self, raw: Sequence[float], payload: Sequence[float]) -> None:
        groups = 1 + self.leaves.group[-1]
        ratio = self.spec.oversubscription / self.spec.uplinks
        if self.spec.ecmp == "hash" or self.spec.spines is not None:
            self.columns = self.spec.spines or self._uplinks()
        if groups > 1 and self.spec.ecmp == "hash":
            self.cores = max(Counter(self.leaves.group).values())
        self.trunk = tuple(bandwidth / ratio for bandwidth in raw)
        self._up = len(self.rows)
        for leaf, name in enumerate(self.leaves.names):
            for column in range(self.columns):
                spine = self._switch("spine", column, self.columns, self._prefix(leaf, groups))
                share = payload[leaf] / raw[leaf]
                self._join(name, spine, self.trunk[leaf] / self.columns, share)
        self._core = len(self.rows)
        if groups > 1:
            self._add_cores(groups, payload, ratio)

    def _add_cores(self, groups: int, payload: Sequence[float], ratio: float) -> None:
        """Join the groups; the oversubscription is between leaf and spine only."""
        for group in range(groups):
            inside = [leaf for leaf, of in enumerate(self.leaves.group) if of == group]
            rate = sum(self.trunk[leaf] for leaf in inside)
            share = sum(payload[leaf] for leaf in inside) / ratio / rate
            for column in range(self.columns):
                spine = self._switch("spine", column, self.columns, f"group{group}/")
                for core in range(self.cores):
                    number = column * self.cores + core
                    above = self._switch("core", number, self.columns * self.cores, "")
                    self._join(spine, above, rate / self.columns / self.cores, share)

    def _prefix(self, leaf: int, groups: int) -> str:
        return f"group{self.leaves.group[leaf]}/" if groups > 1 else ""

    def _uplinks(self) -> int:
        """Return how many uplinks the fullest leaf has, each as fast as a NIC."""
        most = max(Counter(self.leaves.of).values())
        return max(1, round(most / self.spec.oversubscription))

    def _switch(self, kind: str, number: int, of: int, prefix: str) -> str:
        name = f"{prefix}{kind}{number}" if of > 1 else f"{prefix}{kind}"
        self.kind_of[name] = kind
        return name

    def _join(self, a: str, b: str, bandwidth: float, efficiency: float) -> None:
        self.rows.both(
            a,
            b,
            kind="network",
            medium=self._medium,
            bandwidth=bandwidth,
            efficiency=efficiency,
            latency=self.spec.switch_latency + self.spec.cable_latency,
        )

    @cached_property
    def parts(self) -> FabricParts:
        """What it is built of, counted."""
        return fabric_parts(self.spec, self.leaves)

    @cached_property
    def nic_links(self) -> Ints:
        """The ids of all NICs' links to their leaves; each link back is the next."""
        return np.asarray(self._nic_up, dtype=np.int64) + self._first

    @cached_property
    def leaf_of_nic(self) -> Ints:
        """The leaf of every NIC."""
        return np.asarray(self.leaves.of, dtype=np.int64)

    def nic_link(self, nic: int) -> int:
        """Return the id of the link from a NIC to its leaf; the one back is the next."""
        return self._first + self._nic_up[nic]

    def uplinks(self, leaf: int) -> range:
        """Return the ids of all links between a leaf and its spines, both ways."""
        first = self._first + self._up + 2 * leaf * self.columns
        return range(first, first + 2 * self.columns) if self.trunk else range(0)

    def core_links(self, group: int) -> range:
        """Return the ids of all links between the spines of a group and the cores, both ways."""
        count = 2 * self.columns * self.cores
        first = self._first + self._core + group * count
        known = bool(self.trunk) and len(self.rows) > self._core
        return range(first, first + count) if known else range(0)

    def leaf_route(self, a: int, b: int) -> Route | None:
        """Return the route from leaf to leaf by all equal-cost paths, or None if there is none.

        Its shares and hops also count a NIC's own link at either end.
        """
        if self.kind == "rail_only" and a != b:
            return None
        return self._between(a, b, -1, -1)

    def route(self, a: int, b: int, key: int) -> Route | None:
        """Return the route from NIC a to NIC b, or None if there is none.

        With `ecmp: hash`, connection `key` takes the path that its hash picks.
        """
        if not self._nic_up:
            return None
        if self.kind == "rail_only" and self.leaves.of[a] != self.leaves.of[b]:
            return None
        column = core = -1
        if self.spec.ecmp == "hash" and self.leaves.of[a] != self.leaves.of[b]:
            pick = stable_hash(self.spec.seed, a, b, key)
            column, core = pick % self.columns, pick // self.columns % self.cores
        chosen = (a, b, column, core)
        if chosen not in self._routes:
            inner = self._between(self.leaves.of[a], self.leaves.of[b], column, core)
            self._routes[chosen] = self._with_nics(a, b, inner)
        return self._routes[chosen]

    def leaf_routes(self, pairs: Sequence[tuple[int, int]], weight: Floats) -> list[Route | None]:
        """Return `leaf_route` of each pair of leaves; `weight` is what each carries at once."""
        return [self.leaf_route(a, b) for a, b in pairs]

    def _between(self, a: int, b: int, column: int, core: int) -> Route:
        leaves = (a, b, column, core)
        if leaves not in self._inner:
            self._inner[leaves] = self._from_leaf_to_leaf(*leaves)
        return self._inner[leaves]

    def _with_nics(self, a: int, b: int, inner: Route) -> Route:
        up, down = self._nic_up[a], self._nic_up[b] + 1
        return Route(
            (self._first + up, *inner.link, self._first + down),
            inner.share,
            inner.hop,
            inner.latency + self.rows.latency[up] + self.rows.latency[down],
        )

    def _from_leaf_to_leaf(self, a: int, b: int, column: int, core: int) -> Route:
        """Return the route from leaf to leaf; share and hop also count the NICs' own links."""
        columns = range(self.columns) if column < 0 else (column,)
        cores = range(self.cores) if core < 0 else (core,)
        hops: list[list[int]] = []
        if a != b:
            hops = [
                self._leaf_links(a, columns),
                [link + 1 for link in self._leaf_links(b, columns)],
            ]
            group = self.leaves.group
            if group[a] != group[b]:
                up = self._core_links(group[a], columns, cores)
                hops[1:1] = [up, [link + 1 for link in self._core_links(group[b], columns, cores)]]
        sizes = [1, *(len(hop) for hop in hops), 1]
        return Route(
            tuple(self._first + link for hop in hops for link in hop),
            tuple(1.0 / size for size in sizes for _ in range(size)),
            tuple(number for number, size in enumerate(sizes) for _ in range(size)),
            sum(max(self.rows.latency[link] for link in hop) for hop in hops),
        )

    def _leaf_links(self, leaf: int, columns: Sequence[int]) -> list[int]:
        return [self._up + 2 * (leaf * self.columns + column) for column in columns]

    def _core_links(self, group: int, columns: Sequence[int], cores: Sequence[int]) -> list[int]:
        spines = [group * self.columns + column for column in columns]
        return [self._core + 2 * (spine * self.cores + core) for spine in spines for core in cores]


def stable_hash(*words: int) -> int:
    """Return 64 well-mixed bits of some integers, the same in every run (splitmix64)."""
    mask, state = 2**64 - 1, 0
    for word in words:
        state = (state + word + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state
