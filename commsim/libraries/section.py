"""
The `library` section of a scenario, and the library it names.
"""

from __future__ import annotations

from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.ideal import Ideal
from commsim.libraries.library import Library
from commsim.sections import Section

__all__ = ["LIBRARIES", "LibrarySection", "make_library"]

LIBRARIES = ("ideal", "gloo")
_LATER = ("nccl",)
_SETTINGS = {"ideal": ("algo", "channels", "pieces"), "gloo": ("algo", "interface")}


class LibrarySection(Section, frozen=True):
    """Which library communicates, and how.

    `algo`: an algorithm of the library, for the ops that have it; left out, the usual one of each
    op. ideal: `channels`: parallel rings or trees (0: one per NIC). `pieces`: into how many a
    pipelined buffer is cut (0: the number that minimises the time). gloo: `interface`: the NIC of
    each node that its host name stands for.
    """

    name: str = "ideal"
    algo: str | None = None
    channels: int = 0
    pieces: int = 0
    interface: int = 0


def make_library(section: LibrarySection) -> Library:
    """Return the library that a section describes.

    Raises:
        ScenarioError: an unknown library or algorithm, one that is not built yet, or a setting
            that means nothing to it.
    """
    name = section.name
    if name in _LATER:
        raise ScenarioError(
            f"library.name: {name!r} is not built yet. Available: {', '.join(LIBRARIES)}."
        )
    if name not in LIBRARIES:
        raise ScenarioError(
            f"library.name: unknown library {name!r}.{did_you_mean(name, LIBRARIES)}"
            f" Available: {', '.join(LIBRARIES)}."
        )
    for field in ("channels", "pieces", "interface"):
        value = getattr(section, field)
        if value < 0:
            raise ScenarioError(f"library.{field}: must not be negative; 0 chooses by itself.")
        if value and field not in _SETTINGS[name]:
            raise ScenarioError(f"library.{field}: means nothing to library {name}. Leave it out.")
    if name == "gloo":
        from commsim.libraries.gloo import Gloo

        return Gloo(section.algo, interface=section.interface)
    return Ideal(section.algo, channels=section.channels, pieces=section.pieces)
