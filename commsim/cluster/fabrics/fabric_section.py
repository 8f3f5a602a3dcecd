"""
What a user writes about the network between nodes, and what it comes to.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from commsim.cluster.nodes import merged
from commsim.errors import ScenarioError
from commsim.sections import Section
from commsim.units import Bandwidth, Duration

__all__ = ["FabricLinkSection", "FabricSection", "FabricSpec", "fabric_spec", "inherited"]

Kind = Literal[
    "none",
    "single_switch",
    "rail_optimized",
    "rail_only",
    "fat_tree",
    "torus",
    "dragonfly_plus",
    "graph",
]
Ecmp = Literal["even", "hash", "adaptive"]

_RADIX = 64
_MAX_SPINES = 4096
_KINDS = (
    "Give kind: single_switch, rail_optimized, rail_only, fat_tree, torus, dragonfly_plus or graph."
)
# Nanoseconds through a switch if nothing is stated, and where the figure is from.
_SWITCH = {
    "infiniband": (130, "documented: Quantum QM8790 brief, 'sub-130 ns'"),
    "ethernet": (600, "general: Tomahawk class, 450 to 900 ns"),
    "slingshot": (350, "general: Rosetta, 300 to 400 ns, the value of arXiv 2008.08886"),
}
_TREE = ("oversubscription", "ecmp", "seed", "radix", "nodes_per_leaf", "spines")
_DRAGONFLY = ("leaves_per_group", "global_links")
_GRAPH = ("switches", "links")
_SHAPED = ("dims", *_DRAGONFLY, "link_bandwidth", *_GRAPH)
_IDLE: dict[str, tuple[str, ...]] = {
    "none": (
        *_TREE, *_SHAPED, "planes", "sharp", "switch_latency", "cable_latency", "congestion",
    ),
    "single_switch": (*_TREE, *_SHAPED),
    "rail_only": (*_TREE, *_SHAPED),
    "rail_optimized": _SHAPED,
    "fat_tree": _SHAPED,
    "torus": ("oversubscription", "spines", "planes", *_DRAGONFLY, *_GRAPH),
    "dragonfly_plus": ("dims", "planes", *_GRAPH),
    "graph": (
        "oversubscription", "spines", "nodes_per_leaf", "planes", "dims", *_DRAGONFLY,
        "link_bandwidth",
    ),
}  # fmt: skip
_HARMLESS: dict[str, Any] = {"oversubscription": 1.0, "ecmp": "even", "seed": 0}


class FabricLinkSection(Section, frozen=True):
    """Links of a `graph`: each end named first with each named second, `count` cables between two.

    An end is a switch, `node3` (all its NICs) or `node3/nic0`; `leaf0..3` stands for four, `node*`
    for every node. `bandwidth` is one cable's per direction; a NIC's link has the NIC's own.
    `latency`: of the cable, instead of `cable_latency`.
    """

    between: tuple[str, str]
    bandwidth: Bandwidth | None = None
    count: int = 1
    latency: Duration | None = None


class FabricSection(Section, frozen=True):
    """The network between nodes.

    `oversubscription`: bandwidth of a leaf's NICs over that of its uplinks. `radix`: ports per
    switch; decides how many nodes share a leaf (or a pod of rail leaves) at most, over which they
    are spread equally, and whether a core level is needed. `nodes_per_leaf` says it directly (for
    rail_optimized: nodes per pod), and fills one after the other.
    `spines`: uplinks per leaf that are told apart. `cable_latency`: of each network link.
    `congestion`: share of the NICs' rate that each doubling of the nodes costs. 0 by default: with
    adaptive routing and congestion control set up, nccl-tests measured 389 of 400 GB/s flat from
    2 to 64 nodes of 8 NICs; 0.09 is what 4 and 16 MareNostrum nodes, spread over racks, differ by
    (90 and 75 of 100 GB/s).
    `ecmp`: `even` over equal-cost paths, `hash` one of them per connection, `adaptive` also over
    detours where shortest paths are fuller. `planes`: equal networks side by side, over which each
    NIC splits its ports. `sharp`: false where InfiniBand's switches do not add up.
    `dims`: routers of a torus per dimension. `leaves_per_group`, `global_links` (between each two
    groups): of a dragonfly_plus. `link_bandwidth`: of one link of a torus, or between groups; a
    NIC's if not stated. `switches`, `links`: of a graph.
    """

    kind: Kind | None = None
    oversubscription: float | None = None
    ecmp: Ecmp | None = None
    seed: int | None = None
    radix: int | None = None
    nodes_per_leaf: int | None = None
    spines: int | None = None
    switch_latency: Duration | None = None
    cable_latency: Duration | None = None
    congestion: float | None = None
    planes: int | None = None
    sharp: bool | None = None
    dims: tuple[int, ...] | None = None
    leaves_per_group: int | None = None
    global_links: int | None = None
    link_bandwidth: Bandwidth | None = None
    switches: tuple[str, ...] | None = None
    links: tuple[FabricLinkSection, ...] | None = None
    sources: dict[str, str] = {}


class FabricSpec(msgspec.Struct, frozen=True):
    """A fabric's settings, all there and checked; latencies in ps.

    `uplinks` is a factor on the bandwidth between switches that `oversubscription` leaves.
    """

    kind: Kind
    oversubscription: float
    ecmp: Ecmp
    seed: int
    radix: int
    nodes_per_leaf: int | None
    spines: int | None
    switch_latency: int
    cable_latency: int
    congestion: float
    notes: tuple[str, ...]
    where: str = "fabric"
    uplinks: float = 1.0
    planes: int = 1
    sharp: bool = True
    dims: tuple[int, ...] = ()
    leaves_per_group: int | None = None
    global_links: int | None = None
    link_bandwidth: float | None = None
    switches: tuple[str, ...] = ()
    links: tuple[FabricLinkSection, ...] = ()

    @property
    def ports(self) -> int:
        """Ports of a switch: each of the `radix` is split into one for each of the `planes`."""
        return self.radix * self.planes

    def scaled(self, *, uplinks: float, latency: float) -> FabricSpec:
        """Return the fabric with factors on its uplinks and on its latencies."""
        return replace(
            self,
            uplinks=uplinks,
            switch_latency=round(self.switch_latency * latency),
            cable_latency=round(self.cable_latency * latency),
        )


def inherited(base: FabricSection, own: FabricSection | None) -> FabricSection:
    """Return a preset's fabric with the stated settings over it.

    Where the stated kind is another one, only what still means something is inherited.
    """
    if own is None:
        return base
    if own.kind is not None and own.kind != base.kind:
        gone = ("nodes_per_leaf", *_IDLE.get(own.kind, ()))
        base = msgspec.structs.replace(base, **dict.fromkeys(gone))
    return merged(base, own) or base


def fabric_spec(section: FabricSection, *, nodes: int, medium: str, where: str) -> FabricSpec:
    """Return the settings of a fabric that joins `nodes` nodes by NICs of one `medium`.

    Raises:
        ScenarioError: an impossible value, or a setting that would change nothing.
    """
    kind: Kind = section.kind or ("single_switch" if nodes > 1 else "none")
    if kind == "none" and nodes > 1:
        raise ScenarioError(f"{where}.kind: none joins no nodes, and there are {nodes}. {_KINDS}")
    _check(section, where)
    _refuse_idle(section, kind, where)
    notes = []
    if section.kind is None and nodes > 1:
        notes.append("fabric: kind single_switch taken by default.")
    latency = section.switch_latency
    if latency is None and kind != "none" and medium:
        nanoseconds, source = _SWITCH[medium]
        latency = Duration(nanoseconds * 1000)
        notes.append(f"fabric: switch_latency {nanoseconds} ns taken by default ({source}).")
    return FabricSpec(
        kind=kind,
        oversubscription=section.oversubscription or 1.0,
        ecmp=section.ecmp or "even",
        seed=section.seed or 0,
        radix=section.radix or _RADIX,
        nodes_per_leaf=section.nodes_per_leaf,
        spines=section.spines,
        switch_latency=int(latency or 0),
        cable_latency=int(section.cable_latency or 0),
        congestion=section.congestion or 0.0,
        notes=tuple(notes),
        where=where,
        planes=section.planes or 1,
        sharp=_sharp(section, medium, where),
        dims=section.dims or (),
        leaves_per_group=section.leaves_per_group,
        global_links=section.global_links,
        link_bandwidth=None if section.link_bandwidth is None else float(section.link_bandwidth),
        switches=section.switches or (),
        links=section.links or (),
    )


def _sharp(section: FabricSection, medium: str, where: str) -> bool:
    if section.sharp and medium != "infiniband":
        raise ScenarioError(
            f"{where}.sharp: true, but the NICs are {medium or 'missing'}: SHARP is InfiniBand's."
            " Leave it out, or give InfiniBand NICs."
        )
    return section.sharp is not False


def _check(section: FabricSection, where: str) -> None:
    ratio = section.oversubscription
    if ratio is not None and not ratio >= 1:
        raise ScenarioError(
            f"{where}.oversubscription: {ratio:g} is below 1. Give the bandwidth of a leaf's NICs"
            " over that of its uplinks: 1 for none, 2 for 2:1."
        )
    if ratio is not None and ratio > 1e6:
        raise ScenarioError(f"{where}.oversubscription: {ratio:g} is above a million.")
    at_least = {"radix": 2} | dict.fromkeys(
        ("nodes_per_leaf", "spines", "planes", "leaves_per_group", "global_links"), 1
    )
    for field, least in at_least.items():
        value = getattr(section, field)
        if value is not None and value < least:
            raise ScenarioError(f"{where}.{field}: {value} is too few. Give {least} or more.")
    if section.link_bandwidth is not None and section.link_bandwidth <= 0:
        raise ScenarioError(f"{where}.link_bandwidth: is not above zero.")
    if not 0 <= (section.congestion or 0.0) < 1:
        raise ScenarioError(
            f"{where}.congestion: {section.congestion:g} is no share of the rate. Give 0 (a tuned"
            " fabric) or more, below 1."
        )
    if (section.spines or 0) > _MAX_SPINES:
        raise ScenarioError(
            f"{where}.spines: {section.spines} is more than commsim tells apart ({_MAX_SPINES})."
        )


def _refuse_idle(section: FabricSection, kind: Kind, where: str) -> None:
    """Refuse settings that change nothing in this kind of fabric: they mislead."""
    for field in _IDLE.get(kind, ()):
        value = getattr(section, field)
        if value is not None and value != _HARMLESS.get(field):
            raise ScenarioError(
                f"{where}.{field}: means nothing with kind: {kind}. Leave it out, or change kind."
            )
