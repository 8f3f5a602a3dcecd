"""
The ends of a cluster's links as numbers: what questions about all of its wires begin with.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from commsim.arrays import Bools, Ints
from commsim.cluster.routes import Links

__all__ = ["LinkEnds", "link_ends"]


class LinkEnds(msgspec.Struct, frozen=True, eq=False):
    """Devices by number, as they first appear among the links' sources, then targets.

    Link i leads from device `source[i]` to `target[i]` and is of `kind[i]`. `number` has the names
    in this order; `type[d]` says what a device is ("gpu", "nic", "leaf"), without its number.
    """

    number: Mapping[str, int]
    source: Ints
    target: Ints
    kind: npt.NDArray[np.object_]  # of few strings that all share: a million links have 8 MB
    type: npt.NDArray[np.object_]

    def of_type(self, *types: str) -> Bools:
        """Return the devices that are of one of these types."""
        found: Bools = np.isin(self.type, types)
        return found

    def named(self, prefix: str) -> Bools:
        """Return the devices whose names begin with `prefix`."""
        return np.array([name.startswith(prefix) for name in self.number], dtype=np.bool_)


def link_ends(links: Links, switches: Mapping[str, str]) -> LinkEnds:
    """Return the ends of all links; `switches` says what the fabric's devices are."""
    number = {name: at for at, name in enumerate(dict.fromkeys((*links.source, *links.target)))}
    source, target = (
        np.fromiter(map(number.__getitem__, names), np.int64, len(links))
        for names in (links.source, links.target)
    )
    tails = (name.rpartition("/")[2].rstrip("0123456789") for name in number)
    types = [switches.get(name, tail) for name, tail in zip(number, tails, strict=True)]
    return LinkEnds(number, source, target, _shared(links.kinds), _shared(types))


def _shared(words: Iterable[str]) -> npt.NDArray[np.object_]:
    """Return words as an array in which equal ones are one string."""
    return np.array([sys.intern(word) for word in words], dtype=np.object_)
