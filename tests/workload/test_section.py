"""The `workload` section: exactly one kind of work."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL, ToyCluster

from commsim.errors import ScenarioError
from commsim.sections import decode
from commsim.workload import WorkloadSection, build_workload, chosen_kind

PIPELINE = {"stages": 2, "microbatches": 1, "forward": "1ms", "backward": "2ms"}
TRAINING = {
    "model": SMALL,
    "batch": {"global": 4, "micro": 1},
    "parallel": {"dp": 2},
    "compute": {"efficiency": 0.5},
}
KINDS: dict[str, Any] = {
    "pipeline": PIPELINE,
    "training": TRAINING,
    "collectives": [{"op": "all_reduce", "bytes": "1MiB"}],
    "program": {"ranks": {"all": ["barrier"]}},
}


def section(data: dict[str, Any]) -> WorkloadSection:
    return decode(data, WorkloadSection, "x.yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_becomes_a_graph_on_two_ranks(kind: str) -> None:
    workload = build_workload(section({kind: KINDS[kind]}), cluster=ToyCluster(2))
    assert workload.kind == kind
    assert workload.graph.lane_rank.tolist() == [0, 1]
    assert (workload.training is not None) == (kind == "training")


@pytest.mark.parametrize("kind", ["graph", "trace"])
def test_files_are_named_but_not_built_here(kind: str) -> None:
    read = section({kind: "some/file"})
    assert chosen_kind(read) == kind
    with pytest.raises(ScenarioError, match=f"workload.{kind}: is a file"):
        build_workload(read)


def test_none_or_two_kinds_are_refused_with_the_choice() -> None:
    choice = "Give exactly one of: training, pipeline, collectives, program, graph, trace."
    with pytest.raises(ScenarioError) as caught:
        build_workload(section({}), where="x.yaml: workload")
    assert str(caught.value) == f"x.yaml: workload: nothing is given. {choice}"
    with pytest.raises(ScenarioError) as caught:
        build_workload(section({"pipeline": PIPELINE, "trace": "t"}), where="x.yaml: workload")
    assert str(caught.value) == f"x.yaml: workload: pipeline and trace are given. {choice}"


def test_the_pace_of_python_is_of_a_captured_graph() -> None:
    assert chosen_kind(section({"graph": "g.npz", "host_overhead": "20us"})) == "graph"
    with pytest.raises(ScenarioError) as caught:
        chosen_kind(section({"trace": "t", "host_overhead": "20us"}))
    assert str(caught.value) == (
        "workload.host_overhead: is of a captured graph. Leave it out for a trace."
    )
    with pytest.raises(ScenarioError, match=r"nothing is given\. Give exactly one of: training"):
        chosen_kind(section({"host_overhead": "20us"}))


def test_training_needs_a_cluster() -> None:
    with pytest.raises(ScenarioError, match="workload.training: needs a cluster"):
        build_workload(section({"training": TRAINING}))


def test_errors_carry_the_whole_path() -> None:
    wrong = {"collectives": [{"op": "all_reduce"}]}
    with pytest.raises(ScenarioError) as caught:
        build_workload(section(wrong), cluster=ToyCluster(2), where="x.yaml: workload")
    assert str(caught.value).startswith("x.yaml: workload.collectives.0: ")
