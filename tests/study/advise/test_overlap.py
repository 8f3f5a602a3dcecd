"""Communication beside compute takes SMs from it: how much longer a device takes for both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.advise.floor import Floor
from commsim.study.advise.shards import Share


def end(compute, moves, finish, communicates, sms, memory):
    """Return when a device ends that computes for so long, `moves` of it limited by memory."""
    floor: Any = SimpleNamespace(
        _compute=lambda device: (compute, moves), _held=lambda: Share(sms, memory)
    )
    return Floor._overlapping_end(floor, 0, finish, communicates)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_a_step_that_stretches_overlaps_less(share):
    """T = F - (F - c s/(1+s)) ...: while c lasts, 1/(1+s) of the pace is left."""
    compute, communicates = 1_000_000, 400_000
    whole = end(compute, 0, compute, communicates, share, 0.0)
    beside = communicates - (whole - compute)  # what of it is left beyond the stretch
    assert whole - compute == pytest.approx(beside * share, abs=2)


def test_idle_time_hides_it_first_and_then_what_is_slowed_least():
    assert end(700, 0, 1000, 300, 0.5, 0.5) == 1000
    assert end(500, 500, 1000, 500, 0.25, 1.0) == 1100
    assert end(500, 500, 1000, 1000, 0.25, 1.0) == 1350
    assert end(500, 500, 1000, 9000, 1.0, 0.25) == 1350  # no more than all compute is slowed
