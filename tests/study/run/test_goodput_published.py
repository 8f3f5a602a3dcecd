"""
Effective training time as published with its inputs, within 3 points.

Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA 2025,
arXiv 2410.21680): failures of nodes of 8 A100, and shares of time that model and jobs come to.
Restarts take 5 to 20 minutes there; the fastest is what is taken here.
"""

from __future__ import annotations

import pytest

import commsim as cs
from commsim.scenario import GoodputSection
from commsim.sections import decode
from commsim.study.run.goodput import Recovery, best_interval, goodput_of, progress

DAY, MINUTE = 86400.0, 60.0
OF_A_NODE = 6.50 / 1000  # a day, RSC-1
RESTART = 5 * MINUTE


def of(gpus: int, *, blocked: float = 0.0) -> Recovery:
    """Return a job on nodes of 8, whose checkpoints keep it from work for so long."""
    return Recovery(gpus / 8 * OF_A_NODE / DAY, blocked=blocked, safe_after=0.0, recover=RESTART)


def test_failures_scale_as_published() -> None:
    """A failure each 1.8 h on 16,384 GPUs, each 0.23 h on 131,072."""
    assert 1 / of(16_384).rate / 3600 == pytest.approx(1.8, rel=0.03)
    assert 1 / of(131_072).rate / 3600 == pytest.approx(0.23, rel=0.03)


def test_checkpoints_each_five_minutes_keep_93_percent_of_16_thousand_gpus() -> None:
    assert progress(of(16_000), 5 * MINUTE) == pytest.approx(0.93, abs=0.03)


def test_12_thousand_gpus_keep_90_percent_if_a_checkpoint_takes_10_seconds() -> None:
    one = of(12_000, blocked=10.0)
    assert progress(one, best_interval(one)) == pytest.approx(0.90, abs=0.03)


@pytest.mark.parametrize("gpus", [2048, 4096])
def test_jobs_of_a_few_thousand_keep_over_90_percent_with_a_checkpoint_an_hour(gpus: int) -> None:
    assert 0.9 < progress(of(gpus), 60 * MINUTE) < 0.97


def test_a_section_with_these_inputs_says_the_same() -> None:
    found = goodput_of(
        decode(
            {
                "storage": "2TB/s",
                "interval": "300s",
                "detect": "0s",
                "restart": "300s",
                "rates": {
                    "gpu": 0, "nic": 0, "link": 0, "software": 0,
                    "node": OF_A_NODE / 24 * 1e6,
                },
            },
            GoodputSection,
            "goodput",
        ),
        cs.Cluster.preset("dgx-a100", nodes=2000),
        parameters=70_000_000_000,
        precision="bf16",
        replicas=2000,
        step_time_s=5.0,
    )  # fmt: skip
    assert found.goodput == pytest.approx(0.93, abs=0.03)
    assert found.goodput == pytest.approx(progress(of(16_000), 5 * MINUTE), abs=0.005)
