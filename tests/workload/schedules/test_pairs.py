"""1F1B in pairs: the order of Megatron's combined 1F1B, and what it hides."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL, ToyCluster, training

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.libraries import Ideal
from commsim.metrics import measure
from commsim.workload.schedules import execution_order, make_schedule, paired

EXPERTS = {**SMALL, "layers": 4, "experts": {"experts": 4, "top_k": 1, "expert_ffn": 32}}


def words(name: str, devices: int, microbatches: int, virtual: int = 1) -> list[str]:
    made = make_schedule(name, devices, microbatches, where="x", virtual=virtual)
    made = paired(made)
    shown = []
    for device, row in enumerate(made.actions):
        text = []
        for at, action in enumerate(row):
            begins = made.is_paired(device, at)
            text.append(f"({action};" if begins else f"{action}")
            if at and made.is_paired(device, at - 1):
                text[-1] += ")"
        shown.append(" ".join(text))
    return shown


def test_one_more_forward_runs_ahead_and_each_backward_with_the_next_forward() -> None:
    assert words("1f1b", 1, 3) == ["0F0 (0F1; 0B0) (0F2; 0B1) 0B2"]
    assert words("1f1b", 2, 4) == [
        "0F0 0F1 0F2 (0F3; 0B0) 0B1 0B2 0B3",
        "1F0 (1F1; 1B0) (1F2; 1B1) (1F3; 1B2) 1B3",
    ]


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "virtual"),
    [("1f1b", 4, 9, 1), ("1f1b", 4, 2, 1), ("interleaved_1f1b", 4, 8, 3)],
)
def test_every_action_stays_and_can_run(
    name: str, devices: int, microbatches: int, virtual: int
) -> None:
    plain = make_schedule(name, devices, microbatches, where="x", virtual=virtual)
    made = paired(plain)
    for before, after in zip(plain.actions, made.actions, strict=True):
        assert sorted(map(str, before)) == sorted(map(str, after))
    assert len(list(execution_order(made))) == sum(map(len, plain.actions))


def measured(**settings: Any) -> tuple[float, float]:
    cluster = ToyCluster(4, speed=2e9, latency=1000)
    workload = training(
        4, cluster=cluster, model=EXPERTS, batch={"global": 32, "micro": 1}, **settings
    )
    timeline = simulate(workload.graph, cluster, library=Ideal())
    metrics = measure(timeline)
    exchanges = [use for use in metrics.collectives if use.op == "all_to_all"]
    return metrics.step_time_s, sum(use.exposed_s for use in exchanges)


@pytest.mark.parametrize("pp", [1, 2])
def test_tokens_travel_while_the_other_one_computes(pp: int) -> None:
    parallel = {"pp": pp, "dp": 4 // pp, "ep": 4 // pp}
    plain = measured(parallel=parallel)
    pairs = measured(parallel={**parallel, "expert_overlap": True})
    assert pairs[1] < 0.6 * plain[1]
    assert pairs[0] < plain[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parallel": {"dp": 4, "ep": 4, "schedule": "gpipe", "expert_overlap": True}},
         "pairs the forwards and backwards of 1f1b and interleaved_1f1b, not of gpipe"),
        ({"parallel": {"dp": 4, "ep": 4, "expert_overlap": True},
          "data_parallel": {"kind": "fsdp"}}, "which units gathered one by one cannot follow"),
        ({"parallel": {"dp": 4, "expert_overlap": True}}, "changes nothing where ep is 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_paired_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        measured(**settings)
