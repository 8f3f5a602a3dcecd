"""
The `library` section of a scenario, and the library it names.
"""

from __future__ import annotations

from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.ideal import Ideal
from commsim.libraries.library import Library
from commsim.sections import Section

__all__ = ["LibrarySection", "make_library"]

_KNOWN = ("ideal",)
_LATER = ("nccl", "gloo")


class LibrarySection(Section, frozen=True):
    """Which library communicates, and how.

    `algo`: an algorithm of the ideal library, for the ops that have it; left out, the usual one
    of each op. `channels`: parallel rings or trees (0: one per NIC). `pieces`: into how many a
    pipelined buffer is cut (0: the number that minimises the time).
    """

    name: str = "ideal"
    algo: str | None = None
    channels: int = 0
    pieces: int = 0


def make_library(section: LibrarySection) -> Library:
    """Return the library that a section describes.

    Raises:
        ScenarioError: an unknown library or algorithm, or one that is not built yet.
    """
    if section.name in _LATER:
        raise ScenarioError(
            f"library.name: {section.name!r} is not built yet. Available: {', '.join(_KNOWN)}."
        )
    if section.name not in _KNOWN:
        raise ScenarioError(
            f"library.name: unknown library {section.name!r}.{did_you_mean(section.name, _KNOWN)}"
            f" Available: {', '.join(_KNOWN)}."
        )
    for field in ("channels", "pieces"):
        if getattr(section, field) < 0:
            raise ScenarioError(f"library.{field}: must not be negative; 0 chooses by itself.")
    return Ideal(section.algo, channels=section.channels, pieces=section.pieces)
