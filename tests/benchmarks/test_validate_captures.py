"""Captured steps against recordings of the same scripts on an H200: calls, products, memory, time.

The figures are those of `benchmarks/validate_captures.py`, which the guide to captures quotes.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.paths import ROOT

from commsim import run

FOLDER = ROOT / "tests/data/captured_steps"
ALONE = ("ddp-1b-1", "ddp-7b-1", "fsdp2-1b-1", "fsdp2-1b-1-recompute")
SEVERAL = ("ddp-2", "ddp-4", "fsdp2-1b-2", "fsdp2-4", "pp-2", "tp-pp-4", "tp-pp-8")
WORKSPACES = 2 * 32 * 2**20
"""Bytes of cuBLAS on Hopper that no capture sees: 32 MiB each for forward and backward threads."""


@pytest.fixture(scope="module")
def judged(scripts: Any) -> Any:
    """Return a run by its name, compared once."""
    recorded = scripts("recorded_steps").read_steps(FOLDER / "recorded.json.gz")
    judge = scripts("validate_captures").judge
    known: dict[str, Any] = {}

    def find(name: str) -> Any:
        if name not in known:
            known[name] = judge(name, recorded[name], FOLDER / f"{name}.npz")
        return known[name]

    return find


@pytest.mark.parametrize("name", SEVERAL)
def test_every_rank_makes_the_calls_that_were_recorded(name: str, judged: Any) -> None:
    """Kind, ranks, bytes, type and order, of DDP, FSDP2, pipelines and tensor parallelism."""
    assert judged(name).calls > 0
    assert judged(name).same_calls


@pytest.mark.parametrize("name", [*ALONE, "ddp-tiny-1", *SEVERAL])
def test_products_have_the_recorded_shapes(name: str, judged: Any) -> None:
    assert judged(name).products > 0
    assert judged(name).same_products


@pytest.mark.parametrize("name", ALONE)
def test_a_kernel_for_each_that_was_recorded(name: str, judged: Any) -> None:
    """But memsets, FSDP's lists of pointers (17), an embedding's sort, and steps on the CPU."""
    others = ("memsets", "embedding", "communication")
    for row in judged(name).rows:
        if row.kind not in others:
            assert row.recorded_kernels - row.kernels in (0, 1, 17, -2, -3), row


@pytest.mark.parametrize("name", ALONE)
def test_steps_take_what_was_recorded(name: str, judged: Any) -> None:
    """The most is 7b's 5.1 %: AdamW over bf16 tensors reaches less of the bandwidth than copies."""
    found = judged(name)
    assert found.step == pytest.approx(found.recorded_step, rel=0.052)
    assert found.step_unpaced == pytest.approx(found.step, rel=0.01)  # the GPU sets the pace


def test_python_sets_the_pace_of_a_small_model(judged: Any) -> None:
    found = judged("ddp-tiny-1")
    assert found.step == pytest.approx(found.recorded_step, rel=0.03)
    assert found.step_unpaced < 0.15 * found.recorded_step


@pytest.mark.parametrize("name", [*ALONE, "ddp-tiny-1", *SEVERAL])
def test_memory_is_what_was_recorded_but_for_workspaces(name: str, judged: Any) -> None:
    """Of the last rank, as its stage is captured: within 10 MiB, or 0.1 % of a large one."""
    found = judged(name)
    for recorded, peak in zip(found.recorded_peaks, found.peaks, strict=True):
        assert peak + WORKSPACES == pytest.approx(recorded, rel=0.001, abs=10 * 2**20)


def test_a_run_whose_host_sets_the_pace_says_so() -> None:
    cluster = {"preset": "dgx-h200", "nodes": 1}
    graph = {"graph": str(FOLDER / "ddp-tiny-1.npz")}
    found = run({"cluster": cluster, "workload": graph})
    assert found.metrics.breakdown.host_s > 0.8 * found.metrics.step_time_s
    halved = run({"cluster": cluster, "workload": {**graph, "host_overhead": "12.5us"}})
    assert halved.metrics.step_time_s == pytest.approx(found.metrics.step_time_s / 2, rel=0.02)
    (told,) = (one for one in found.limits if one.kind == "host")
    assert told.halved_s == pytest.approx(found.metrics.step_time_s / 2, rel=0.02)
