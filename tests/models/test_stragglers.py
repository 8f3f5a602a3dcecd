"""All wait for the slowest GPU: by how much, and what that does not touch."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.models import ComputeSection, Split, compute_model, model_preset
from commsim.models.stragglers import slowest

SHAPE, SPLIT = model_preset("llama3-8b").shape, Split(1, 8192)


@pytest.mark.parametrize("gpus", [1, 2, 8, 128])
def test_the_slowest_of_normal_speeds_is_where_draws_have_it(gpus: int) -> None:
    drawn = np.random.default_rng(1).normal(1.0, 0.02, (20_000, gpus)).max(axis=1).mean()
    assert slowest(gpus, 0.02) == pytest.approx(drawn, abs=0.002)


def test_more_gpus_wait_longer() -> None:
    found = [slowest(n, 0.015) for n in (1, 2, 8, 64, 512, 4096)]
    assert found == sorted(found)
    assert found[0] == 1.0
    assert slowest(4096, 0.0) == 1.0


def forward(gpus: int, **settings: float) -> float:
    section = ComputeSection(**settings)  # type: ignore[arg-type]
    model = compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16", section=section, gpus=gpus)
    return sum(block.forward.seconds for block in model.layer(SHAPE, SPLIT))


def test_layers_take_as_long_as_on_the_slowest_gpu() -> None:
    assert forward(512, spread=0.02) / forward(1) == pytest.approx(slowest(512, 0.02), rel=0.005)
    assert forward(512, spread=0.0) == forward(1)
    assert forward(512, spread=0.01) > forward(8, spread=0.01) > forward(1, spread=0.01)


def test_a_flat_efficiency_is_taken_as_it_is() -> None:
    assert forward(512, efficiency=0.4) == forward(1, efficiency=0.4)


def test_the_notes_say_by_how_much() -> None:
    model = compute_model(
        gpu_spec("H100-SXM5-80GB"), precision="bf16", gpus=128, section=ComputeSection(spread=0.01)
    )
    share = model.slowest - 1
    assert f"the slowest of 128 GPUs takes {share:.1%} longer" in model.notes[0]
    alone = compute_model(gpu_spec("H100-SXM5-80GB"), precision="bf16")
    assert "slowest" not in alone.notes[0]
