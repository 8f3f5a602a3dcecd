"""
The `jobs` of a scenario: several pieces of work on one cluster, each on nodes or ranks of its own.

    jobs:
    - {name: big, nodes: 6, workload: {training: ...}}
    - {name: small, nodes: 2, placement: spread, start: 20ms, workload: {collectives: ...}}
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from commsim.sections import Section
from commsim.units import Duration
from commsim.workload import WorkloadSection

__all__ = ["JobSection"]

Natural = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class JobSection(Section, frozen=True, kw_only=True):
    """One job. It takes so many whole `nodes`, or those listed, or `ranks`; in that order.

    `placement` says which nodes a count gets, of those that jobs before it have left: the first
    (packed), evenly over all (spread), or by `seed` (random). It begins at `start` and does its
    work `repeat` times; a training has so many steps, and at least two. Left out, a training goes
    on until the other jobs have ended, and other work is done once.
    """

    name: str
    workload: WorkloadSection
    nodes: Count | tuple[Natural, ...] | None = None
    ranks: tuple[Natural, ...] | None = None
    placement: Literal["packed", "spread", "random"] = "packed"
    seed: Natural = 0
    start: Duration = Duration(0)
    repeat: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
