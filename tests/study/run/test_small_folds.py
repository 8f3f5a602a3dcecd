"""Folding holds on a node or two as well, where a run shows every rank unless told otherwise."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from commsim.scenario import scenario_from
from commsim.study.run import run

MODEL = {"layers": 4, "hidden": 1024, "heads": 8, "vocab": 8192, "seq_len": 512}
CASES = [
    pytest.param(1, {"dp": 8}, {"kind": "fsdp"}, 8, id="fsdp-8"),
    pytest.param(1, {"dp": 2, "pp": 2, "tp": 2}, {"kind": "ddp"}, 4, id="3d-8"),
    pytest.param(2, {"dp": 4, "pp": 2, "tp": 2}, {"kind": "zero", "stage": 1}, 8, id="zero-1-16"),
]


@pytest.mark.parametrize(("nodes", "parallel", "data", "fewer"), CASES)
def test_eight_and_sixteen_gpus_fold(
    nodes: int, parallel: Any, data: Any, fewer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same step to the bit, by as many times fewer operations as ranks do the same."""
    monkeypatch.setattr(sys.modules["commsim.study.run.run"], "_SHOWN_WHOLE", 0)
    training = {
        "model": MODEL, "parallel": parallel, "data_parallel": data,
        "batch": {"global": 32, "micro": 1},
    }  # fmt: skip
    folded, whole = (
        run(
            scenario_from(
                {
                    "cluster": {"preset": "dgx-h100", "nodes": nodes},
                    "engine": {"fold": fold},
                    "workload": {"training": training},
                },
                "small",
            )
        )
        for fold in ("auto", "off")
    )
    assert folded.metrics.step_time_s == whole.metrics.step_time_s
    assert len(folded.timeline.graph) * fewer == len(whole.timeline.graph)
