"""Runs with faults: a healthy one and the draws, one timeline at a time."""

from __future__ import annotations

import importlib
import weakref
from functools import partial
from typing import Any

import numpy as np

from commsim.engine import gc_paused
from commsim.scenario import scenario_from
from commsim.study.run import Result
from commsim.study.run.faulty import with_faults

SCENARIO = {
    "name": "x",
    "cluster": {"preset": "dgx-a100", "nodes": 1},
    "workload": {
        "training": {
            "model": {"preset": "gpt2-124m", "layers": 2, "seq_len": 256},
            "parallel": {"dp": 8},
            "batch": {"global": 8, "micro": 1},
        }
    },
    "faults": {"jitter": [{"spread": 0.05}], "samples": 3},
}


def test_one_timeline_is_there_at_a_time_though_the_collector_is_paused() -> None:
    run_once: Any = importlib.import_module("commsim.study.run.run").run_once
    gone: list[weakref.ref[np.ndarray[Any, Any]]] = []
    left: list[int] = []

    def once(*given: Any, **settings: Any) -> Result:
        left.append(sum(timeline() is not None for timeline in gone))
        result: Result = run_once(*given, **settings)
        gone.append(weakref.ref(result.timeline.start))
        return result

    scenario = scenario_from(SCENARIO, "x")
    with gc_paused():
        result = with_faults(scenario, partial(once))
    assert left == [0] * 5  # healthy, three draws, and the one that is shown
    assert result.extra["faults"]["healthy_step_time_s"] > 0
