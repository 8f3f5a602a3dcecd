"""Experts in a step: who sends how much, what is dropped, and what cannot be asked for."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.sections import decode
from commsim.workload import TrainingSection, build_training
from commsim.workload.training import plan_training
from commsim.workload.training.plan import TrainingPlan

EXPERTS = {"experts": 16, "top_k": 4, "expert_ffn": 256}
MODEL = {**SMALL, "hidden": 256, "heads": 8, "seq_len": 512, "experts": EXPERTS}


def section(**settings: Any) -> TrainingSection:
    base = {
        "model": MODEL, "batch": {"global": 16, "micro": 1}, "parallel": {"dp": 16, "ep": 16},
    }  # fmt: skip
    return decode({**base, **settings}, TrainingSection, "x")


def planned(**settings: Any) -> TrainingPlan:
    return plan_training(section(**settings), Cluster.preset("dgx-h100", nodes=2), where="x")


def sent(**parallel: Any) -> list[int]:
    """Return the sizes of the all-to-alls of a layer's forward on rank 0: there and back."""
    made = section(parallel={"dp": 16, "ep": 16, **parallel})
    graph = build_training(made, Cluster.preset("dgx-h100", nodes=2)).graph
    return [
        int(graph.size[op])
        for op in range(len(graph))
        if graph.lane[op] == 0 and graph.names[graph.name[op]] == "all_to_all F layer 0"
    ][:2]


def test_the_nodes_of_an_expert_group() -> None:
    assert planned().split.ep_nodes == 2
    assert planned(parallel={"dp": 16, "ep": 8}).split.ep_nodes == 1
    assert planned(parallel={"dp": 8, "tp": 2, "ep": 8}).split.ep_nodes == 2
    rack = Cluster.preset("gb200-nvl72", nodes=4)
    assert plan_training(section(), rack, where="x").split.ep_nodes == 1


def test_every_copy_or_a_token_once_per_node() -> None:
    """Two nodes hold 8 of 16 experts each: 4 copies meet 1.92 of them in the mean."""
    n = 2 * 512 * 256
    assert sent(dispatcher="alltoall") == [4 * n, 4 * n]
    once = sent(dispatcher="deepep")
    assert once == pytest.approx([1.9231 * n] * 2, rel=1e-4)
    there, back = sent(dispatcher="deepep-fp8")
    assert [2 * there, back] == pytest.approx(once, abs=1)
    assert sent(dispatcher="alltoall", expert_capacity=1.5) == [6 * n, 6 * n]


def test_the_stack_says_who_dispatches() -> None:
    plan = planned(compute={"stack": "nemo"})
    assert (plan.split.dispatcher, plan.section.compute.cuda_graph) == ("deepep", "experts")
    assert "dispatcher deepep, cuda_graph experts" in plan.taken
    assert planned(compute={"stack": "nemo-2025"}).split.dispatcher == "alltoall"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": SMALL, "parallel": {"dp": 16, "expert_capacity": 1.0}}, "has no experts"),
        ({"compute": {"cuda_graph": "full"}}, r"cuda_graph: full: the host must learn"),
        (
            {"parallel": {"dp": 16, "ep": 16, "expert_skew": 2, "expert_capacity": 1.0}},
            r"expert_skew: with expert_capacity every expert takes the same",
        ),
        ({"parallel": {"dp": 16, "dispatcher": "deepep"}}, r"dispatcher: changes nothing"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        planned(**settings)


def test_a_whole_step_is_one_graph_with_a_capacity() -> None:
    parallel = {"dp": 16, "ep": 16, "expert_capacity": 1.0}
    plan = planned(parallel=parallel, compute={"cuda_graph": "full"})
    assert plan.split.capacity == 1.0
