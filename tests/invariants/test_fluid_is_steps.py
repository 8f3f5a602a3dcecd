"""On an idle cluster a collective takes as long as a flow as message by message, within limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.idle_collectives import LIMITS, case, ratio

import commsim as cs

PAGE = Path(__file__).parents[2] / "docs/background/fluid-and-steps.md"


def hold(seeds: range) -> int:
    """Hold the cases of some seeds to the limits; return how many ran."""
    ran = 0
    for seed in seeds:
        try:
            took, kind = ratio(case(seed))
        except cs.ScenarioError:
            continue  # NICs that meet nowhere
        least, most = LIMITS[kind]
        assert least <= took <= most, f"seed {seed}: {kind}: steps / fluid {took:.4f}"
        ran += 1
    return ran


def test_fluid_is_steps() -> None:
    assert hold(range(12)) > 9


@pytest.mark.long
@pytest.mark.parametrize("first", range(12, 1_000, 52))
def test_fluid_is_steps_in_a_thousand(first: int) -> None:
    assert hold(range(first, first + 52)) > 0.8 * 52


def test_the_page_states_the_limits() -> None:
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    stated = {kind: (float(least), float(most)) for kind, least, most in rows if kind in LIMITS}
    assert stated == {
        kind: (round(least, 2), round(most, 2)) for kind, (least, most) in LIMITS.items()
    }
