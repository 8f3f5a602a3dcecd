"""
How fast training steps are simulated and layouts judged: CPU seconds, best of a few.

    pytest benchmarks/test_speed_training.py -m benchmark --benchmark-enable -s

Figures of the issue: Llama 3 405B on 16,384 GPUs under 10 s and 2 GiB; a 64-GPU layout of a 7B
model under 1 s; `advise` for 7B on 64 GPUs at least 10 layouts a second on 4 cores. Nothing here
fails for being slow.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest

from commsim.scenario import Scenario, scenario_from
from commsim.study.advise import advise
from commsim.study.run import run

pytestmark = [pytest.mark.benchmark(timer=time.process_time, min_rounds=2)]

LAYOUTS: dict[str, dict[str, Any]] = {
    "dp64 zero-1": {"parallel": {"dp": 64}},
    "dp64 fsdp": {"parallel": {"dp": 64}, "data_parallel": {"kind": "fsdp"}},
    "dp8 tp8": {"parallel": {"dp": 8, "tp": 8, "sequence_parallel": True}},
    "dp8 tp4 pp2": {"parallel": {"dp": 8, "tp": 4, "pp": 2, "sequence_parallel": True}},
    "dp8 tp2 pp4": {"parallel": {"dp": 8, "tp": 2, "pp": 4, "sequence_parallel": True}},
    "dp16 pp4": {"parallel": {"dp": 16, "pp": 4}},
    "dp8 pp8 v4": {
        "parallel": {"dp": 8, "pp": 8, "schedule": "interleaved_1f1b", "virtual_stages": 4}
    },
}


def layout(**settings: Any) -> Scenario:
    """Return Llama 2 7B on 64 H100, 128 sequences per step."""
    training = {
        "model": {"preset": "llama2-7b", "seq_len": 4096},
        "data_parallel": {"kind": "zero", "stage": 1},
        "batch": {"global": 128, "micro": 1},
        **settings,
    }
    cluster = {"preset": "dgx-h100", "nodes": 8}
    return scenario_from({"cluster": cluster, "workload": {"training": training}}, "benchmark")


def test_llama3_405b(benchmark: Any) -> None:
    benchmark.pedantic(run, ("llama3-405b",), rounds=2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\nllama3-405b: peak memory {peak:.2f} GiB")


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_a_layout_of_64_gpus(benchmark: Any, name: str) -> None:
    benchmark(run, layout(**LAYOUTS[name]))


def test_advise_7b_on_64_gpus(benchmark: Any) -> None:
    """Wall time, four processes; CPU time of the processes is not the timer's."""
    start = time.perf_counter()
    advice = benchmark.pedantic(advise, (layout(parallel={"dp": 64}),), {"processes": 4}, rounds=1)
    took = time.perf_counter() - start
    print(
        f"\nadvise: {advice.considered} layouts, {advice.simulated} of them simulated, in"
        f" {took:.1f} s wall: {advice.considered / took:.0f} a second"
    )
