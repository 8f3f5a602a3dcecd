"""
Links as columns, and routes as tuples of link ids: what hot code works on.
"""

from __future__ import annotations

import msgspec

from commsim.arrays import Floats, Ints
from commsim.cluster.nodes import Wire

__all__ = ["NOWHERE", "LinkRows", "Links", "Route"]


class Route(msgspec.Struct, frozen=True):
    """A way through the cluster: `link[i]` carries `share[i]` of the bytes in hop `hop[i]`.

    Entries of one hop are parallel links (equal-cost paths): their shares sum to 1. `latency`
    (ps) is the sum over hops of the largest link latency of the hop.
    """

    link: tuple[int, ...]
    share: tuple[float, ...]
    hop: tuple[int, ...]
    latency: int

    def __add__(self, other: Route) -> Route:
        """Join two segments: `other` begins where this one ends."""
        first = self.hop[-1] + 1 if self.hop else 0
        return Route(
            self.link + other.link,
            self.share + other.share,
            self.hop + tuple([hop + first for hop in other.hop]),
            self.latency + other.latency,
        )


NOWHERE = Route((), (), (), 0)


class Links(msgspec.Struct, frozen=True, eq=False):
    """All links of a cluster as columns; a link's id is its place in them. Each is one-way.

    `bandwidth` is raw bytes/s, `efficiency` the payload share that is really reached,
    `capacity` their product; `latency` is in ps. `kinds`: nvlink, c2c, pcie, cpu, memory, network;
    `media`: infiniband, ethernet, slingshot, or "" off the network. `source` and `target` name
    the ends. Only memory (a socket's) is used both ways.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    media: tuple[str, ...]
    bandwidth: Floats
    efficiency: Floats
    capacity: Floats
    latency: Ints
    source: tuple[str, ...]
    target: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Links({len(self)})"


class LinkRows(msgspec.Struct):
    """Links while they are being collected, row by row."""

    source: list[str] = msgspec.field(default_factory=list)
    target: list[str] = msgspec.field(default_factory=list)
    kind: list[str] = msgspec.field(default_factory=list)
    medium: list[str] = msgspec.field(default_factory=list)
    bandwidth: list[float] = msgspec.field(default_factory=list)
    efficiency: list[float] = msgspec.field(default_factory=list)
    latency: list[int] = msgspec.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.source)

    def one(self, a: str, b: str, kind: str, wire: Wire) -> int:
        """Add one link, used in both directions; return its id."""
        self.source.append(a)
        self.target.append(b)
        self.kind.append(kind)
        self.medium.append("")
        self.bandwidth.append(wire.bandwidth)
        self.efficiency.append(wire.efficiency)
        self.latency.append(wire.latency)
        return len(self.source) - 1

    def both(
        self,
        a: str,
        b: str,
        *,
        kind: str,
        bandwidth: float,
        efficiency: float,
        latency: int,
        medium: str = "",
    ) -> int:
        """Add the links a -> b and b -> a; return the id of the first (the second is next)."""
        self.source += (a, b)
        self.target += (b, a)
        self.kind += (kind, kind)
        self.medium += (medium, medium)
        self.bandwidth += (bandwidth, bandwidth)
        self.efficiency += (efficiency, efficiency)
        self.latency += (latency, latency)
        return len(self.source) - 2
