"""
No layout is said to use a GPU better than anybody has: ceilings of model FLOPs utilization.

The least that any layout can take, as `advise` finds it before it simulates, bounds the
utilization of all of them. Where that is above the ceiling, layouts are simulated, those with the
least floors first, until one is as fast as any other can be.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from commsim.models import build_model, model_preset, peak_name, stack_names, training_flops
from commsim.scenario import Scenario, scenario_from
from commsim.study.advise import LayoutQueue

CLOSE, LARGE = 1.06, 1.09
"""What may lie above the best published run: any model, and one whose products are larger than in
any published run without tensor parallelism."""


@dataclass(frozen=True)
class Ceiling:
    """The best published utilization, attention counted as causal, of the dense peak."""

    node: str
    precision: str
    share: float
    source: str


CEILINGS = (
    Ceiling("dgx-a100", "bf16", 0.627, "llm-foundry, 3B on 8 GPUs (0.617 at 7B)"),
    Ceiling("dgx-h100", "bf16", 0.556, "NVIDIA dgxc-benchmarking, 8B on 8 GPUs"),
    Ceiling("dgx-h100", "fp8", 0.396, "Megatron-Bridge 26.02, 405B on 1,024: 784 TFLOP/s"),
    Ceiling("dgx-b200", "fp8", 0.373, "Megatron-Bridge 25.09, 405B on 128: 1,676 TFLOP/s"),
)  # fmt: skip


def training(model: str, node: str, nodes: int, precision: str, **settings: object) -> Scenario:
    """Return a training of eight sequences per GPU; its stack is given, or its `data_parallel`."""
    section = {
        "model": {"preset": model, "seq_len": min(model_preset(model).shape.max_seq, 8192)},
        "batch": {"global": 64 * nodes, "micro": 1},
        "precision": precision,
        **settings,
    }
    cluster = {"preset": node, "nodes": nodes}
    made = {"name": model, "cluster": cluster, "workload": {"training": section}}
    return scenario_from(made, model)


def utilization(
    given: Scenario, precision: str, *, usual: bool = False, above: float = 1.0
) -> float:
    """Return what no layout (none of the usual ones) that fits gets above, of the dense peak.

    If that is more than `above`, return what the fastest gets in a simulation.
    """
    assert given.file.workload.training is not None
    section = given.file.workload.training
    queue = LayoutQueue(given, usual=usual)
    model = build_model(section.model)
    batch = section.batch.global_
    flops = training_flops(model.shape, batch=batch, seq=model.seq_len, causal=True)
    peak = queue.cluster.gpu(0).tflops[peak_name(precision)] * 1e12
    whole = flops / (queue.cluster.world_size * peak)
    seconds, fastest = queue.floor(), float("inf")
    assert seconds is not None
    while seconds is not None and seconds < fastest and whole / seconds > above:
        if (ran := queue.run_next()) is not None:
            fastest = min(fastest, ran.metrics.step_time_s)
        seconds = queue.floor()
    least = fastest if seconds is None else min(fastest, seconds)
    return whole / least


@pytest.mark.share(0.5)
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("ceiling", CEILINGS, ids=lambda one: f"{one.node}-{one.precision}")
def test_no_layout_of_8b_gets_above_what_was_measured(ceiling: Ceiling, kind: str) -> None:
    given = training("llama3-8b", ceiling.node, 1, ceiling.precision, data_parallel={"kind": kind})
    found = utilization(given, ceiling.precision)
    assert 0.6 * ceiling.share < found < CLOSE * ceiling.share, ceiling.source


@pytest.mark.parametrize("ceiling", CEILINGS, ids=lambda one: f"{one.node}-{one.precision}")
def test_nor_on_the_stack_with_the_most_fused(ceiling: Ceiling) -> None:
    """Which was fitted on Blackwell only."""
    given = training(
        "mistral-7b", ceiling.node, 1, ceiling.precision, compute={"stack": "nemo-26.06"}
    )
    found = utilization(given, ceiling.precision, usual=True)
    assert 0.6 * ceiling.share < found < CLOSE * ceiling.share, ceiling.source


MODELS = {
    "llama3-8b": 1, "mistral-7b": 2, "llama3-70b": 8, "gpt3-175b": 16, "llama3.1-405b": 64,
    "megatron-1008b": 128, "mpt-30b": 4, "qwen2.5-32b": 4, "mixtral-8x7b": 4,
    "nemotron4-340b": 64, "gpt2-1.5b": 1, "megatron-18.4b": 4,
}  # fmt: skip
"""Nodes on which models fit."""


@pytest.mark.long
@pytest.mark.parametrize("stack", stack_names())
@pytest.mark.parametrize("ceiling", CEILINGS, ids=lambda one: f"{one.node}-{one.precision}")
@pytest.mark.parametrize("model", MODELS)
def test_no_usual_layout_of_any_model_on_any_stack_gets_above_the_ceiling(
    model: str, ceiling: Ceiling, stack: str
) -> None:
    given = training(
        model, ceiling.node, MODELS[model], ceiling.precision, compute={"stack": stack}
    )
    most = (LARGE if model == "mpt-30b" else CLOSE) * ceiling.share
    assert utilization(given, ceiling.precision, usual=True, above=most) <= most, ceiling.source
