"""
The facts of a report: a run with its metrics, its memory and its waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.cluster import Cluster
from commsim.metrics import Limit, Metrics, Wait
from commsim.timeline import Timeline

__all__ = ["ReportFacts", "ReportSection", "Residents", "resident_bytes"]


class Residents(msgspec.Struct, frozen=True, eq=False):
    """Bytes per lane: what it holds all through the step, and what its GPU has (0: unknown)."""

    held: Ints
    capacity: Ints


def resident_bytes(held: Sequence[int], capacity: Sequence[int]) -> Residents:
    """Return the residents of lanes that hold `held` and have `capacity` bytes."""
    return Residents(np.array(held, np.int64), np.array(capacity, np.int64))


class FaultDraws(msgspec.Struct, frozen=True):
    """The step (s) of each draw of faults, and that without any."""

    healthy: float
    steps: tuple[float, ...]


class ReportFacts(msgspec.Struct, frozen=True, eq=False):
    """A run to report on.

    `headline` is what it comes to in a sentence, `limits` what the step would be shorter without,
    `waits` who waits for whom;
    `command` runs it again; `resident` is the lanes' memory besides activations; `measured` what a
    replay is held against; `draws` the steps of all draws of faults;
    `span_name` what `metrics.step_time_s` is of.
    """

    name: str
    timeline: Timeline
    metrics: Metrics
    notes: tuple[str, ...] = ()
    headline: str = ""
    limits: tuple[Limit, ...] = ()
    waits: tuple[Wait, ...] = ()
    command: str = ""
    cluster: Cluster | None = None
    resident: Residents | None = None
    measured: tuple[Timeline, Metrics] | None = None
    draws: FaultDraws | None = None
    span_name: str = "step time"


class ReportSection(msgspec.Struct, frozen=True):
    """A part of the page: its anchor, heading, a line below it (plain text), and HTML.

    `wide` ones take the whole width if there is room for two next to each other.
    """

    key: str
    title: str
    lead: str
    body: str
    wide: bool = False
