"""The peak of a link is the highest step of its use over time."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.metrics import links as link_metrics
from commsim.metrics import peak_use, use_over_time, utilization
from commsim.study.run import run


@pytest.mark.parametrize("name", ["quickstart", "dp-pp", "two-libraries"])
def test_the_peak_is_the_highest_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = run(name).timeline
    peaks = peak_use(timeline)
    used = np.flatnonzero(utilization(timeline).bytes > 0)
    for link in used[:: max(1, len(used) // 12)].tolist():
        steps = use_over_time(timeline, np.array([link]), points=10**9)
        assert peaks[link] == pytest.approx(steps.share.max(), rel=1e-9)
    assert np.all(peaks >= utilization(timeline).share * (1 - 1e-9))
    monkeypatch.setattr(link_metrics, "_MOST_PIECES", 100)
    assert peak_use(timeline) == pytest.approx(peaks, rel=1e-9)
