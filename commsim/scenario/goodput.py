"""
The `goodput` of a scenario: what fails how often, and what is done about it.

    goodput: {storage: 200GB/s, checkpoint: async, detect: 60s, restart: 300s, spares: 16}
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from commsim.sections import Section
from commsim.units import Bandwidth, Duration, Size

__all__ = ["FailureRates", "GoodputSection"]

Rate = Annotated[float, msgspec.Meta(ge=0)]
Natural = Annotated[int, msgspec.Meta(ge=0)]
_MINUTE = 60 * 10**12


class FailureRates(Section, frozen=True, kw_only=True):
    """How often each component interrupts the job, per component and 1e6 hours.

    The defaults are those of Llama 3's 54 days on 16,384 H100 (see the guide): 419 unexpected
    interruptions. `link` is a NIC's cable and its share of the switches; `software` counts per
    node.
    """

    gpu: Rate = 12.62
    nic: Rate = 0.33
    link: Rate = 1.65
    node: Rate = 17.33
    software: Rate = 23.74


class GoodputSection(Section, frozen=True, kw_only=True):
    """Failures and what is done about them, for a training that goes on for months.

    `checkpoint`: sync (all wait until it is stored), async (all wait until it is in host memory) or
    memory (in the host memory of another node, over the NICs; `storage` then is not needed).
    `interval` between two, by default the best one. `state` bytes of a checkpoint, by default
    those of the memory model. `detect`: from a failure to the decision to restart; `restart`: from
    there to loading. `repair`: how long a broken node is away, by default replaced as the job
    restarts; `spares`: nodes that stand by meanwhile. `elastic`: without a spare the job goes on
    with fewer replicas.
    """

    checkpoint: Literal["sync", "async", "memory"] = "async"
    interval: Duration | None = None
    storage: Bandwidth | None = None
    state: Size | None = None
    detect: Duration = Duration(_MINUTE)
    restart: Duration = Duration(5 * _MINUTE)
    spares: Natural = 0
    repair: Duration = Duration(0)
    elastic: bool = False
    rates: FailureRates = FailureRates()
