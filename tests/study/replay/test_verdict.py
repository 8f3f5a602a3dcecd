"""What a replay begins with: whether to believe it, and what the profiler may have made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.replay import verdict
from commsim.study.replay.self_check import AccountCheck, Miss

MET = AccountCheck((), ())
MISSED = AccountCheck((), (Miss(1, "compute", 2e-3, 1e-3),))
MS = 1_000_000_000


@pytest.mark.parametrize(("host_s", "warned"), [(0.0, False), (1.0, False), (1.1, True)])
def test_waits_for_the_host_beyond_a_tenth_of_the_step_may_be_the_profilers(
    host_s: float, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "steps", lambda step: SimpleNamespace(max=lambda: step))
    metrics: Any = SimpleNamespace(breakdown=SimpleNamespace(host_s=host_s, whole_s=10.0))
    was: Any = 2 * MS
    line = verdict.headline(was, metrics, was, MET)
    assert line.startswith("measured step 2 ms, replayed 2 ms; every rank's step")
    assert ("Profilers slow hosts" in line) == warned
    missed = verdict.headline(was, metrics, was, MISSED)
    assert missed.endswith("DO NOT TRUST THE BREAKDOWN: rank 1: compute 1 ms for 2 ms.")
