"""
Work items: what a rank does in one action of a stage, before it becomes ops.

An item is compute, a collective on a parallel axis, or a ring exchange. Work items follow each
other; one that is `beside` starts together with the item that follows it, and a later one that
`joins` waits for it too. The unit of an item is the part of its stage that it belongs to: the
embedding, a layer, the head.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from commsim.models import GpuWork
from commsim.units import to_picoseconds

__all__ = ["COMPUTE", "EXCHANGE", "WorkItem", "WorkList", "joined", "scaled"]

COMPUTE, EXCHANGE = "compute", "exchange"


class WorkItem(NamedTuple):
    """One thing to do; times in ps, sizes in bytes."""

    unit: int
    name: str
    layer: int
    kind: str = COMPUTE
    duration: int = 0
    flops: float = 0.0
    traffic: float = 0.0
    axis: str = ""
    size: int = 0
    beside: bool = False
    joins: bool = False
    alloc: int = 0
    free: int = 0


class WorkList(msgspec.Struct):
    """Writes items in order."""

    items: list[WorkItem] = msgspec.field(default_factory=list)
    unit: int = 0
    layer: int = -1
    name: str = ""
    _beside: bool = False
    _joins: bool = False

    def at(self, unit: int, layer: int, name: str) -> None:
        """Let the next items belong to a unit."""
        self.unit, self.layer, self.name = unit, layer, name

    def compute(self, work: GpuWork, *, block: str = "") -> None:
        """Add work on the GPU, if it takes any time."""
        duration = to_picoseconds(work.seconds, f"compute of {self.name}")
        if not duration:
            return
        name = f"{self.name} {block}" if block else self.name
        self.items.append(
            WorkItem(
                self.unit,
                name,
                self.layer,
                COMPUTE,
                duration,
                work.flops,
                work.traffic,
                joins=self._joins,
            )
        )
        self._joins = False

    def collective(self, kind: str, axis: str, size: int, *, beside: bool = False) -> None:
        """Add a collective of `size` bytes on the group of an axis, or an exchange on its ring."""
        joins = self._joins and not beside
        self._beside |= beside
        self.items.append(
            WorkItem(
                self.unit,
                f"{kind} {self.name}",
                self.layer,
                kind,
                axis=axis,
                size=size,
                beside=beside,
                joins=joins,
            )
        )
        self._joins = False if joins else self._joins

    def join(self) -> None:
        """Let the next item wait for what ran alongside the one before it."""
        self._joins, self._beside = self._joins or self._beside, False


def joined(items: Iterable[WorkItem], *, across_units: bool) -> tuple[WorkItem, ...]:
    """Return the items with neighbouring compute made one, within a unit or across them all.

    What a joined item takes at its start is the most that its items held at once, and what it
    gives back at its end leaves what they left, so that peaks stay what they were.
    """
    made: list[WorkItem] = []
    for item in items:
        before = made[-1] if made else None
        if (
            before is None
            or not before.kind == item.kind == COMPUTE
            or item.joins
            or not (across_units or before.unit == item.unit)
        ):
            made.append(item)
            continue
        left = before.alloc - before.free
        most = max(before.alloc, left + item.alloc)
        made[-1] = before._replace(
            unit=item.unit,
            name=before.name if across_units else _common(before.name, item.name),
            layer=before.layer if before.layer == item.layer else -1,
            duration=before.duration + item.duration,
            flops=before.flops + item.flops,
            traffic=before.traffic + item.traffic,
            alloc=most,
            free=most - (left + item.alloc - item.free),
        )
    return tuple(made)


def _common(first: str, second: str) -> str:
    """Return the words that two names begin with: "F layer 3" of its attention and its mlp."""
    words = []
    for one, other in zip(first.split(), second.split(), strict=False):
        if one != other:
            break
        words.append(one)
    return " ".join(words)


def scaled(work: GpuWork, factor: float) -> GpuWork:
    """Return `factor` times as much of some work."""
    return GpuWork(work.seconds * factor, work.flops * factor, work.traffic * factor)
