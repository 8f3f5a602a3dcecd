"""
What a fabric is built of: switches and cables, by the fabric's own leaves, radix and uplinks.

The simulation merges spines that equal-cost paths use alike; here they are counted as boxes. A
leaf has a port for each NIC and, above it, uplinks as fast as a NIC: so many as its NICs over the
oversubscription. Each of several planes has a port of each NIC, and switches of its own. A spine
has `radix` ports; if groups of spines hang on cores, half of them. Rails with so few nodes that
their leaves have ports left share boxes; if all have room in one, there is nothing above it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from commsim.cluster.fabrics.fabric_section import FabricSpec
from commsim.cluster.fabrics.leaves import Leaves

__all__ = ["FabricParts", "fabric_parts"]

_BY_RAIL = ("rail_optimized", "rail_only")
_WITH_SPINES = ("rail_optimized", "fat_tree")


class FabricParts(msgspec.Struct, frozen=True):
    """Counts of what the fabric is built of. `wrong` says why its settings can be built by none."""

    leaves: int = 0
    spines: int = 0
    cores: int = 0
    nic_cables: int = 0
    trunk_cables: int = 0
    wrong: str = ""

    @property
    def switches(self) -> int:
        """All switches."""
        return self.leaves + self.spines + self.cores

    @property
    def cables(self) -> int:
        """All cables: from NICs to leaves, and between switches."""
        return self.nic_cables + self.trunk_cables

    @property
    def optics(self) -> int:
        """The transceivers: one at each end of a cable."""
        return 2 * self.cables

    @property
    def told(self) -> str:
        """The counts in words."""
        levels = (("leaf", self.leaves), ("spine", self.spines), ("core", self.cores))
        told = " + ".join(f"{count:,} {name}" for name, count in levels if count)
        return f"{self.switches:,} switches ({told}), {self.cables:,} cables"


def fabric_parts(spec: FabricSpec, leaves: Leaves) -> FabricParts:
    """Return what joins the NICs that hang on `leaves`."""
    nics = Counter(leaves.of)
    if not nics:
        return FabricParts()
    with_spines = spec.kind in _WITH_SPINES and len(leaves.names) > 1
    uplinks = [
        math.ceil(nics[leaf] / spec.oversubscription - 1e-9) if with_spines else 0
        for leaf in range(len(leaves.names))
    ]
    boxes = len(leaves.names)
    if spec.kind in _BY_RAIL and sum(nics.values()) <= spec.ports:
        boxes, uplinks = 1, [0] * len(leaves.names)
    fullest = max(nics[leaf] + uplinks[leaf] for leaf in range(len(leaves.names)))
    if spec.kind in _BY_RAIL and boxes > 1 and fullest <= spec.ports:
        boxes = sum(
            math.ceil(count / (spec.ports // fullest)) for count in Counter(leaves.group).values()
        )
    spines, cores = _above(uplinks, leaves.group, spec.ports)
    planes = spec.planes
    groups = 1 + max(leaves.group)
    wrong = ""
    if fullest > spec.ports:
        wrong = (
            f"a leaf of this {spec.kind} needs {fullest:,} ports, and a switch has radix"
            f" {spec.radix}{f' x {planes} planes' if planes > 1 else ''}. Give another radix or"
            " nodes_per_leaf, or kind: fat_tree."
        )
    return FabricParts(
        leaves=boxes * planes,
        spines=spines * planes,
        cores=cores * planes,
        nic_cables=sum(nics.values()) * planes,
        trunk_cables=sum(uplinks) * (2 if groups > 1 else 1) * planes,
        wrong=wrong,
    )


def _above(uplinks: Sequence[int], group: Sequence[int], radix: int) -> tuple[int, int]:
    """Return how many spines and cores the uplinks of all leaves need."""
    groups = 1 + max(group)
    if groups == 1:
        return math.ceil(sum(uplinks) / radix), 0
    spines = 0
    for number in range(groups):
        inside = sum(up for up, of in zip(uplinks, group, strict=True) if of == number)
        spines += math.ceil(inside / (radix // 2))
    return spines, math.ceil(sum(uplinks) / radix)
