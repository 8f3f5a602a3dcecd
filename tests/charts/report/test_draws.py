"""The histogram of fault draws: all of them, each once, and only where there are several."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

import commsim as cs
from commsim.charts import FaultDraws
from commsim.charts.report.draws import draws_section

PIPELINE = {
    "stages": 2,
    "microbatches": 2,
    "schedule": "gpipe",
    "forward": "1ms",
    "backward": "2ms",
}


def body(healthy: float, *steps: float) -> str:
    facts: Any = replace(cs.run({"workload": {"pipeline": PIPELINE}}).facts())
    made = draws_section(replace(facts, draws=FaultDraws(healthy, steps)))
    return "" if made is None else made.body


def test_every_draw_is_in_one_bar() -> None:
    shown = body(1.0, *(1 + 0.01 * (at % 7) for at in range(50)), 2.0)
    counts = [int(count) for count in re.findall(r": (\d+) draws", shown)]
    assert sum(counts) == 51
    assert "healthy 1 s" in shown
    assert "p99" in shown


def test_one_draw_and_none_have_no_histogram() -> None:
    assert body(1.0, 1.2) == ""


def test_draws_that_all_take_the_same_are_one_bar() -> None:
    shown = body(1.0, 1.0, 1.0, 1.0)
    assert re.findall(r": (\d+) draws", shown) == ["3"]
