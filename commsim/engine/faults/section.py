"""
What a user writes under `faults`.

    faults:
      samples: 100
      slow_gpus: [{rank: 17, factor: 1.3}, {share: 0.01, factor: 1.1}]
      slow_links: [{link: node3/nic2, left: 0.5}]
      dead_nics: [{node: 3, nic: 2}]
      jitter: [{spread: 0.03}]
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from commsim.sections import Section
from commsim.units import Duration

__all__ = ["DeadNicSection", "FaultsSection", "JitterSection", "SlowGpuSection", "SlowLinkSection"]

Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Longer = Annotated[float, msgspec.Meta(gt=0, le=1000)]


class SlowGpuSection(Section, frozen=True, kw_only=True):
    """A GPU (`rank`), so many at random (`count`), or each with a chance (`share`).

    Its compute takes `factor` times as long. `start` and `end`, counted from the beginning of the
    measured step, bound it; without them it lasts.
    """

    factor: Longer
    rank: Natural | None = None
    count: Count | None = None
    share: Share | None = None
    start: Duration | None = None
    end: Duration | None = None


class SlowLinkSection(Section, frozen=True, kw_only=True):
    """A link by the name that reports give it, or all of a NIC's, a GPU's or a switch's (`link`).

    Or NICs at random: so many (`count`), or each with a chance (`share`). The share `left` of its
    bandwidth stays. `start` and `end` bound it as for a GPU; `down` and `every` repeat it: slow
    for so long, each time so long after it last began.
    """

    left: Share
    link: str | None = None
    count: Count | None = None
    share: Share | None = None
    start: Duration | None = None
    end: Duration | None = None
    down: Duration | None = None
    every: Duration | None = None


class DeadNicSection(Section, frozen=True, kw_only=True):
    """A NIC that is gone: `nic` of `node`, so many at random, or each with a chance."""

    node: Natural | None = None
    nic: Natural | None = None
    count: Count | None = None
    share: Share | None = None


class JitterSection(Section, frozen=True, kw_only=True):
    """Noise on the time of each compute op, of all ranks or of `ranks`.

    lognormal and normal have mean 1 and standard deviation `spread`; exponential adds a tail of
    that mean. `trace` takes the spread of a recorded run instead: each op's time over the median
    of its name.
    """

    spread: Share | None = None
    distribution: Literal["lognormal", "normal", "exponential"] = "lognormal"
    ranks: tuple[Natural, ...] | None = None
    trace: str | None = None


class FaultsSection(Section, frozen=True, kw_only=True):
    """What goes wrong: `samples` runs, each with what `seed` and its number draw.

    Faults of one place at one time multiply.
    """

    seed: Natural = 0
    samples: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    slow_gpus: tuple[SlowGpuSection, ...] = ()
    slow_links: tuple[SlowLinkSection, ...] = ()
    dead_nics: tuple[DeadNicSection, ...] = ()
    jitter: tuple[JitterSection, ...] = ()
