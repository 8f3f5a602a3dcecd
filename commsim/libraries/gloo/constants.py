"""
What Gloo's software costs: threads, wake-ups, additions. The figures are in `constants.yaml`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from commsim.sections import Section, decode
from commsim.units import Bandwidth, Duration, Size
from commsim.yaml_file import read_own_yaml

__all__ = ["GlooConstants", "Medium", "constants"]

_FILE = Path(__file__).with_name("constants.yaml")


class Medium(Section, frozen=True):
    """TCP over one medium: bytes/s per process and direction, and ps per message.

    A message of more than `packet` bytes takes `again` ps on top.
    """

    rate: Bandwidth
    latency: Duration
    packet: Size
    again: Duration
    sources: dict[str, str] = {}


class GlooConstants(Section, frozen=True):
    """All constants: `reduce_rate` in bytes/s of result, overheads in ps per op and per copy."""

    media: dict[str, Medium]
    reduce_rate: Bandwidth
    op_overhead: Duration
    copy_overhead: Duration
    sources: dict[str, str] = {}

    def of(self, medium: str) -> Medium:
        """Return the costs of a medium; those of ethernet for one that is not in the table."""
        return self.media.get(medium, self.media["ethernet"])


@lru_cache(maxsize=1)
def constants() -> GlooConstants:
    """Return the constants of the table."""
    return decode(read_own_yaml(_FILE), GlooConstants, _FILE.name)
