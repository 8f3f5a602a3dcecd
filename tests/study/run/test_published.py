"""Published training steps of thirteen sources, as their readers would write them down."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from helpers.paths import ROOT
from helpers.share import later, share

from commsim.scenario import scenario_from
from commsim.study.run.run import run

PUBLISHED = yaml.safe_load((ROOT / "tests/data/training/published.yaml").read_text())
CASES = [
    pytest.param(
        one,
        id=one["source"].split(",")[0],
        marks=[pytest.mark.xfail(reason=one["missed"], strict=True)] if "missed" in one else [],
    )
    for one in PUBLISHED
    if "large" not in one
]
LARGE = [pytest.param(one, id=one["source"].split(",")[0]) for one in PUBLISHED if "large" in one]


def test_thirteen_sources_are_met() -> None:
    assert len({one["source"].split(",")[0] for one in PUBLISHED if "missed" not in one}) == 13


@pytest.mark.parametrize("published", [*share(CASES, 0.4), *map(later, LARGE)])
def test_a_published_step_is_predicted_within_an_eighth(published: dict[str, Any]) -> None:
    """Within 12 per cent, without any setting that was chosen for the row; and it fits."""
    result = run(scenario_from(published["scenario"], "published", default_name="published"))
    assert result.metrics.memory_gib is not None
    assert result.metrics.memory_gib["fits"]
    assert float(result.metrics.step_time_s) == pytest.approx(published["seconds"], rel=0.12)
