"""A training step on 100,000 GPUs: the layouts that `speed.py` times there."""

from __future__ import annotations

from typing import Any

from speed_works import Run, Work

from commsim import Result, run

__all__ = ["LARGE"]

NODES = 12_500  # of eight GPUs
ALIKE = 0.1  # by which a step differs at a tenth of the replicas: only all-reduces grow


def on_100_000_gpus(stages: int) -> Run:
    """Run data parallel replicas of so many stages: one of a GPU each, or of 8 GPUs a stage."""

    def check(found: Any) -> None:
        step = found.metrics.step_time_s
        tenth = _ran(stages, NODES // 10).metrics.step_time_s
        assert 1 - ALIKE < tenth / step < 1 + ALIKE, (tenth, step)

    return Run(lambda: _ran(stages, NODES), 8 * NODES, check)


def _ran(stages: int, nodes: int) -> Result:
    model, width = ("llama3-8b", 1) if stages == 1 else ("llama3.1-405b", 8)
    replicas = 8 * nodes // (width * stages)
    return run(
        {
            "cluster": {"preset": "dgx-h100", "nodes": nodes},
            "workload": {
                "training": {
                    "model": {"preset": model, "seq_len": 4096},
                    "parallel": {"dp": replicas, "tp": width, "pp": stages},
                    "batch": {"global": replicas * 2 * stages, "micro": 1},
                }
            },
        }
    )


LARGE = (
    Work("data parallel, and 3-D in ten stages, 100,000 GPUs", "stages", (1, 10), "GPUs",
         on_100_000_gpus, "its step at a tenth of the replicas, to a tenth"),
)  # fmt: skip
