"""Results and timelines that pages are made of in tests."""

from __future__ import annotations

from functools import cache

from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.metrics.measure import RankTimes
from commsim.study.run import Result, run
from commsim.timeline import Timeline
from helpers.star import Star

__all__ = ["HOSTILE", "MS", "four_ranks", "hostile", "ranks", "scenario"]

MS = 10**9
HOSTILE = "<script>alert('x')</script>&amp;"


@cache
def scenario(name: str) -> Result:
    return run(name)


@cache
def four_ranks() -> Result:
    return run("ddp", ["engine.fold=off"])


def hostile(name: str = HOSTILE) -> Timeline:
    """Return two ranks whose every name is `name`."""
    build = GraphBuilder()
    world = build.group(name, range(2))
    for lane in range(2):
        build.lane(lane)
        build.compute(lane, MS * (lane + 1), name=name)
        build.collective(lane, world, "all_reduce", 2**20, stream=name, name=name)
    return simulate(build.build(), Star(2), library=Ideal("ring"))


def ranks(
    *seconds: float, multiplicity: int = 1, stage: int | None = None
) -> tuple[RankTimes, ...]:
    return tuple(
        RankTimes(rank, multiplicity, stage, one, 1.0 - one, 0.0, 0.0, 0.0, 0.0, 1.0 - one)
        for rank, one in enumerate(seconds)
    )
