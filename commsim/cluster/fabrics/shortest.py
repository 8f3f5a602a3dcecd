"""
Shortest ways through a graph of switches, all of equal length at once or one of them.

A way goes by layers: layer k holds the links that lead from k to k + 1 switches away. At every
switch, what comes in leaves evenly over the cables that lead closer (as a switch does that sprays
over equal-cost ports), or over one link that a hash picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Layers", "Shortest"]

Layers = list[dict[int, float]]
"""Per layer, the links and the share of the bytes on each; the shares of a layer add up to 1."""

Pick = Callable[[int, int], int]
"""Which of so many equal ways (second) is taken at a switch (first)."""


class Shortest:
    """Shortest ways between numbered switches. `links`: (from, to, cables) of each one-way link."""

    def __init__(self, switches: int, links: Sequence[tuple[int, int, int]]) -> None:
        self._out: list[list[tuple[int, int, int]]] = [[] for _ in range(switches)]
        self._into: list[list[int]] = [[] for _ in range(switches)]
        for link, (a, b, cables) in enumerate(links):
            self._out[a].append((link, b, cables))
            self._into[b].append(a)
        self._far: dict[int, list[int]] = {}

    def far(self, target: int, without: int = -1) -> list[int]:
        """Return how many links each switch is from a target; -1 where no way leads there.

        `without`: a switch that no way may pass.
        """
        if without < 0 and target in self._far:
            return self._far[target]
        distance = [-1] * len(self._out)
        distance[target] = 0
        edge = [target]
        while edge:
            edge = self._closer(edge, distance, without)
        if without < 0:
            self._far[target] = distance
        return distance

    def _closer(self, edge: list[int], distance: list[int], without: int) -> list[int]:
        found = []
        for switch in edge:
            for before in self._into[switch]:
                if distance[before] < 0 and before != without:
                    distance[before] = distance[switch] + 1
                    found.append(before)
        return found

    def way(
        self, source: int, target: int, pick: Pick | None = None, *, without: int = -1
    ) -> Layers | None:
        """Return the shortest ways (that do not pass `without`), or None if there is none."""
        distance = self.far(target, without)
        if distance[source] < 0:
            return None
        layers: Layers = []
        here = {source: 1.0}
        for left in range(distance[source], 0, -1):
            layer: dict[int, float] = {}
            there: dict[int, float] = {}
            for switch, share in here.items():
                for link, to, part in self._next(switch, left, distance, pick):
                    layer[link] = share * part
                    there[to] = there.get(to, 0.0) + share * part
            layers.append(layer)
            here = there
        return layers

    def _next(
        self, switch: int, left: int, distance: Sequence[int], pick: Pick | None
    ) -> list[tuple[int, int, float]]:
        """Return the links that lead closer, where to, and the part of the bytes on each."""
        ways = [(link, to, n) for link, to, n in self._out[switch] if distance[to] == left - 1]
        if pick is not None:
            link, to, _ = ways[pick(switch, len(ways))]
            return [(link, to, 1.0)]
        cables = sum(n for _, _, n in ways)
        return [(link, to, n / cables) for link, to, n in ways]
