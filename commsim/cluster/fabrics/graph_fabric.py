"""
A fabric that is a graph of switches: torus, dragonfly+, or any that a user lists.

Between two NICs lie their own links and the shortest ways between their switches: all of them
(`ecmp: even`), the one that a hash picks (`hash`), or also detours over other switches where these
make the fullest link emptier (`adaptive`: among all that one collective sends at once, and for a
message alone where a link is slower than the NIC). Cables side by side are one link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from commsim.arrays import Floats
from commsim.cluster.fabrics.adaptive import Candidates, mixture
from commsim.cluster.fabrics.bill import FabricParts
from commsim.cluster.fabrics.dragonfly import dragonfly_wiring
from commsim.cluster.fabrics.fabric import Fabric, stable_hash
from commsim.cluster.fabrics.fabric_graph import graph_wiring
from commsim.cluster.fabrics.fabric_section import FabricSpec
from commsim.cluster.fabrics.leaves import Leaves, Nic
from commsim.cluster.fabrics.shortest import Layers, Shortest
from commsim.cluster.fabrics.torus import torus_wiring
from commsim.cluster.fabrics.wiring import Wiring, wiring_parts
from commsim.cluster.routes import Route

__all__ = ["WIRINGS", "GraphFabric"]

WIRINGS: dict[str, Callable[[FabricSpec, Sequence[Nic]], Wiring]] = {
    "torus": torus_wiring,
    "dragonfly_plus": dragonfly_wiring,
    "graph": graph_wiring,
}

_PATHS = 256  # that hashes tell apart between two NICs
_DETOURS = 16  # switches that a detour may lead over, at most
_CANDIDATES = 20_000  # ways weighed at once
Pair = tuple[int, int]


class GraphFabric(Fabric):
    """The fabric of a cluster whose switches form a graph."""

    is_tree = False

    def _build(self, nics: Sequence[Nic]) -> None:
        self._wiring = wiring = WIRINGS[self.kind](self.spec, nics)
        self.dims = wiring.dims
        names = list(wiring.kind_of)
        number = {name: at for at, name in enumerate(names)}
        used = list(dict.fromkeys(wiring.leaf_of))
        place = {name: at for at, name in enumerate(used)}
        of = tuple(place[leaf] for leaf in wiring.leaf_of)
        self.leaves = Leaves(tuple(used), of, (0,) * len(used))
        self.kind_of |= wiring.kind_of
        self._switch_of = [number[name] for name in used]
        self._nic_up = [self._attach(n, leaf) for n, leaf in zip(nics, wiring.leaf_of, strict=True)]
        self._nic_rate = max(nic.bandwidth * nic.efficiency * self._kept for nic in nics)
        self._up = len(self.rows)
        share = sum(n.bandwidth * n.efficiency for n in nics) / sum(n.bandwidth for n in nics)
        ends = []
        for link in wiring.links:
            self._cable(link.a, link.b, link.bandwidth * link.count, share, link.latency)
            a, b = number[link.a], number[link.b]
            ends += [(a, b, link.count), (b, a, link.count)]
        self._ways = Shortest(len(names), ends)
        self._capacity = np.array(self.rows.bandwidth[self._up :]) * share * self._kept
        self._candidates: dict[Pair, tuple[int, list[Layers]]] = {}
        self._alone: dict[Pair, Route | None] = {}
        if self.spec.ecmp == "hash" and any(link.count > 1 for link in wiring.links):
            self.notes.append("fabric: ecmp hash picks switches; cables side by side share evenly.")

    def _cable(self, a: str, b: str, rate: float, share: float, latency: int | None) -> None:
        """Add the links of cables between two switches, each with half of both switches' delay."""
        own = self.spec.cable_latency if latency is None else latency
        self.rows.both(
            a,
            b,
            kind="network",
            medium=self._medium,
            bandwidth=rate * self.spec.uplinks,
            efficiency=share * self._kept,
            latency=self.spec.switch_latency + own,
        )

    @cached_property
    def parts(self) -> FabricParts:
        """What it is built of, counted."""
        return wiring_parts(self._wiring, self.spec)

    def leaf_route(self, a: int, b: int) -> Route | None:
        """Return the way from leaf to leaf, or None if there is none. As the base does."""
        if self.spec.ecmp != "adaptive":
            return self._shortest(a, b, -1)
        if (a, b) not in self._alone:
            self._alone[a, b] = self._adaptive([(a, b)], np.ones(1))[0]
        return self._alone[a, b]

    def leaf_routes(self, pairs: Sequence[Pair], weight: Floats) -> list[Route | None]:
        """Return the way of each pair of leaves; adaptive ways know of each other's weight."""
        if self.spec.ecmp != "adaptive":
            return [self._shortest(a, b, -1) for a, b in pairs]
        return self._adaptive(pairs, weight)

    def route(self, a: int, b: int, key: int) -> Route | None:
        """Return the way from NIC a to NIC b, or None if there is none. As the base does."""
        leaves = self.leaves.of[a], self.leaves.of[b]
        pick = -1
        if self.spec.ecmp == "hash" and leaves[0] != leaves[1]:
            pick = stable_hash(self.spec.seed, a, b, key) % _PATHS
        chosen = (a, b, pick, -1)
        if chosen not in self._routes:
            inner = self._shortest(*leaves, pick) if pick >= 0 else self.leaf_route(*leaves)
            if inner is None:
                return None
            self._routes[chosen] = self._with_nics(a, b, inner)
        return self._routes[chosen]

    def _shortest(self, a: int, b: int, pick: int) -> Route | None:
        key = (a, b, pick, -1)
        if key not in self._inner:
            layers = self._layers(a, b, pick)
            if layers is None:
                return None
            self._inner[key] = self._route_of(layers)
        return self._inner[key]

    def _layers(self, a: int, b: int, pick: int = -1) -> Layers | None:
        source, target = self._switch_of[a], self._switch_of[b]
        if pick < 0:
            return self._ways.way(source, target)
        seed = self.spec.seed
        return self._ways.way(source, target, lambda at, n: stable_hash(seed, pick, at) % n)

    def _route_of(self, layers: Layers) -> Route:
        """Return the route of layers of links; shares and hops also count the NICs' own links."""
        first = self._first + self._up
        entries = [
            (link, share, hop) for hop, one in enumerate(layers) for link, share in one.items()
        ]
        latency = self.rows.latency
        return Route(
            tuple(first + link for link, _, _ in entries),
            (1.0, *(share for _, share, _ in entries), 1.0),
            (0, *(hop + 1 for _, _, hop in entries), len(layers) + 1),
            sum(max(latency[self._up + link] for link in layer) for layer in layers),
        )

    def _adaptive(self, pairs: Sequence[Pair], weight: Floats) -> list[Route | None]:
        found: list[Route | None] = [self._shortest(a, b, -1) for a, b in pairs]
        rows = [at for at, (a, b) in enumerate(pairs) if a != b and found[at] is not None]
        if not rows:
            return found
        most = max(1, min(_DETOURS, _CANDIDATES // len(rows)))
        ways = [self._detours(*pairs[at], most) for at in rows]
        mine = np.asarray(weight, dtype=np.float64)[rows]
        parts = mixture(_columns(ways), mine, self._capacity, self._floor(pairs, rows, mine))
        at = 0
        for row, own in zip(rows, ways, strict=True):
            part = parts[at : at + len(own)]
            at += len(own)
            if part[0] < 1:
                found[row] = self._route_of(_mixed(own, part.tolist()))
        return found

    def _floor(self, pairs: Sequence[Pair], rows: Sequence[int], weight: Floats) -> float:
        """Return the seconds that the NICs of the busiest leaf need at the least."""
        hanging = np.bincount(self.leaves.of) if len(rows) > 1 else np.ones(len(self.leaves.names))
        ends = np.array([pairs[row] for row in rows]).T
        loads = [np.bincount(end, weight, len(hanging)) / hanging for end in ends]
        most = max(float(load.max()) for load in loads)
        return most / float(self._nic_rate)

    def _detours(self, a: int, b: int, most: int) -> list[Layers]:
        """Return the shortest ways of two leaves, then those over one more switch by length."""
        kept = self._candidates.get((a, b))
        if kept is not None and kept[0] >= most:
            return kept[1][: 1 + most]
        source, target = self._switch_of[a], self._switch_of[b]
        here, there = self._ways.far(source), self._ways.far(target)
        over = [
            (here[m] + there[m], stable_hash(a, b, m), m)
            for m in range(len(here))
            if m not in (source, target) and min(here[m], there[m]) > 0
        ]
        direct = self._ways.way(source, target)
        assert direct is not None
        found = [direct]
        for _, _, middle in sorted(over):
            if len(found) > most:
                break
            way = self._over(source, middle, target)
            if way is not None and len(way) > len(direct) and way not in found:
                found.append(way)
        self._candidates[a, b] = most, found
        return found

    def _over(self, source: int, middle: int, target: int) -> Layers | None:
        """Return the way over a switch between that passes neither end, nor a link both ways."""
        to = self._ways.way(source, middle, without=target)
        on = self._ways.way(middle, target, without=source)
        if to is None or on is None:
            return None
        back = {link ^ 1 for layer in to for link in layer}  # the two ways of a cable are a pair
        return None if any(link in back for layer in on for link in layer) else to + on


def _columns(ways: Sequence[Sequence[Layers]]) -> Candidates:
    """Return the ways of pairs as columns."""
    flat = [(pair, way) for pair, own in enumerate(ways) for way in own]
    rows = [
        (number, link, share)
        for number, (_, way) in enumerate(flat)
        for layer in way
        for link, share in layer.items()
    ]
    way, link, share = zip(*rows, strict=True)
    return Candidates(
        np.array([pair for pair, _ in flat], dtype=np.int64),
        np.array(way, dtype=np.int64),
        np.array(link, dtype=np.int64),
        np.array(share, dtype=np.float64),
    )


def _mixed(ways: Sequence[Layers], parts: Sequence[float]) -> Layers:
    """Return several ways as one: layer by layer, each with its part of the bytes."""
    layers: Layers = []
    for way, part in zip(ways, parts, strict=True):
        if part <= 1e-6:
            continue
        layers += [{} for _ in range(len(way) - len(layers))]
        for mixed, layer in zip(layers, way, strict=False):
            for link, share in layer.items():
                mixed[link] = mixed.get(link, 0.0) + share * part
    return layers
