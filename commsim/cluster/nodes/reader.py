"""
Reading a node's sections: demand what must be there, and remember which defaults were taken.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from commsim.cluster.files import HERE, read_mapping
from commsim.cluster.nodes.node import (
    C2cSection,
    CpuSection,
    NicSection,
    NodeSection,
    NvlinkSection,
    merged,
)
from commsim.cluster.nodes.place import NodePlace
from commsim.cluster.nodes.spec import MAX_GPUS, Wire
from commsim.sections import Section, decode

__all__ = ["Reader", "defaults"]

S = TypeVar("S", bound=Section)
T = TypeVar("T")


class Defaults(NodeSection, frozen=True):
    """What a node takes if its description says nothing; NVLink by generation."""

    nvlink4: NvlinkSection | None = None


@cache
def defaults() -> Defaults:
    """Return what a node takes if its description says nothing."""
    return decode(read_mapping(HERE / "defaults.yaml"), Defaults, "defaults.yaml")


class Reader:
    """Checks values of the node at `place`; `taken` collects the defaults that it used."""

    def __init__(self, place: NodePlace) -> None:
        self.place = place
        self.taken: list[str] = []

    def filled(self, own: S, default: S | None, part: str, fields: tuple[str, ...]) -> S:
        """Return `own` with the default of each of `fields` that it leaves out."""
        missing = [name for name in fields if getattr(own, name) is None]
        self.taken += [f"{part}.{name}" for name in missing]
        patch = type(own)(**{name: getattr(default, name) for name in missing})
        return merged(own, patch) or own

    def need(self, value: T | None, field: str) -> T:
        """Return a value that must be there."""
        if value is None:
            raise self.place.error(field, "is missing. State it.")
        return value

    def count(self, value: int | None, field: str) -> int:
        """Return a count from 1 to MAX_GPUS."""
        value = self.need(value, field)
        if value < 1:
            raise self.place.error(field, f"{value} is not a count. Give 1 or more.")
        if value > MAX_GPUS:
            raise self.place.error(field, f"{value} is more than commsim can hold ({MAX_GPUS}).")
        return value

    def share(self, value: float | None, field: str) -> float:
        """Return a share above 0 and up to 1."""
        value = self.need(value, field)
        if not 0 < value <= 1:
            hint = f" Did you mean {value / 100:g}?" if 1 < value <= 100 else ""
            raise self.place.error(field, f"{value:g} is not a share above 0 and up to 1.{hint}")
        return value

    def wire(self, section: CpuSection | C2cSection | NicSection, part: str) -> Wire:
        """Return the link that a part of the node describes."""
        return Wire(
            float(self.need(section.bandwidth, f"{part}.bandwidth")),
            self.share(section.efficiency, f"{part}.efficiency"),
            int(self.need(section.latency, f"{part}.latency")),
        )
