"""Recompute of some layers: every so many-th, or the first ones of each stage."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import ToyCluster, training

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.libraries import Ideal
from commsim.workload import Workload

LAYERS = 4  # of the small model


def built(n: int = 1, **settings: Any) -> Workload:
    return training(n, **settings)


def computed(work: Workload) -> float:
    """Return the FLOPs that rank 0 runs in all steps."""
    return float(work.graph.flops[work.graph.lane == 0].sum())


def hardware(work: Workload) -> float:
    """Return the FLOPs that the facts count."""
    assert work.training is not None
    return work.training.hardware_flops


def peak(work: Workload, n: int = 1) -> int:
    """Return the most bytes of activations on rank 0."""
    timeline = simulate(work.graph, ToyCluster(n), library=Ideal())
    return int(timeline.memory.held.max())


@pytest.mark.parametrize(("setting", "value", "layers"), [
    ("recompute_every", 1, 4), ("recompute_every", 2, 2), ("recompute_every", 3, 1),
    ("recompute_every", 5, 0), ("recompute_first", 1, 1), ("recompute_first", 3, 3),
    ("recompute_first", 9, 4),
])  # fmt: skip
def test_so_many_layers_run_again(setting: str, value: int, layers: int) -> None:
    """Each adds what a layer of full recompute adds; the facts count them too."""
    none, full = built(recompute="none"), built(recompute="full")
    some = built(recompute="full", **{setting: value})
    whole = computed(full) - computed(none)
    assert computed(some) - computed(none) == pytest.approx(whole * layers / LAYERS)
    counted, found = hardware(full) - hardware(none), hardware(some) - hardware(none)
    assert found == pytest.approx(counted * layers / LAYERS)


def test_a_layer_that_is_kept_keeps_what_it_keeps_without_recompute() -> None:
    """With the last layer run again its work space comes on top of three that are kept."""
    none, full, some = (
        peak(built(recompute=how, **more))
        for how, more in (("none", {}), ("full", {}), ("full", {"recompute_every": 4}))
    )
    assert full < some <= none


def test_each_stage_recomputes_its_first_layers() -> None:
    half = built(2, parallel={"pp": 2}, recompute="full", recompute_first=1)
    none = built(2, parallel={"pp": 2}, recompute="none")
    full = built(2, parallel={"pp": 2}, recompute="full")
    for lane in (0, 1):
        again = [
            float(work.graph.flops[work.graph.lane == lane].sum()) for work in (none, half, full)
        ]
        assert again[1] - again[0] == pytest.approx((again[2] - again[0]) / 2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"recompute_every": 2}, "recompute_every: changes nothing, as recompute is none"),
        (
            {"recompute": "full", "recompute_every": 2, "recompute_first": 1},
            "recompute_every: and recompute_first: give one of them",
        ),
    ],
)
def test_what_says_nothing_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        built(**settings)
