"""What a scenario can have more or less of, and the settings that make it so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.cluster import Cluster, cluster_from
from commsim.errors import ScenarioError
from commsim.scenario import ScenarioFile
from commsim.sections import decode
from commsim.study.next_dollar.alternatives import balanced, setting_changes
from commsim.study.next_dollar.resources import Resource, resources_of

TRAINING = "workload.training"


def resources(
    nodes: int = 2, *, micro: int = 2, batch: int = 32, scale: Any = None, **settings: Any
) -> dict[str, Resource]:
    """Resources of nodes of eight H100, of llama3-8b on dp replicas of a node."""
    file, cluster = made(nodes, micro, batch, settings, scale)
    return {one.key: one for one in resources_of(file, cluster, "x")}


def made(nodes: int, micro: int, batch: int, settings: Any, scale: Any = None) -> Any:
    training = {
        "model": {"preset": "llama3-8b"}, "batch": {"global": batch, "micro": micro},
        "parallel": {"dp": nodes, "tp": 8},
    } | settings  # fmt: skip
    data: dict[str, Any] = {
        "cluster": {"preset": "dgx-h100", "nodes": nodes} | ({"scale": scale} if scale else {}),
        "workload": {"training": training},
    }
    return decode(data, ScenarioFile, "x"), Cluster.preset("dgx-h100", nodes=nodes)


def test_hardware_is_scaled_and_times_are_divided() -> None:
    found = resources(scale={"nvlink": 3.0, "nvlink_latency": 3.0})
    assert found["nvlink"].sets(2.0) == ("cluster.scale.nvlink=6",)
    assert found["nvlink_latency"].sets(2.0) == ("cluster.scale.nvlink_latency=1.5",)
    assert found["nic"].sets(1 / 1.1) == ("cluster.scale.nic=0.909090909",)
    assert found["compute"].now.startswith("989")  # of bf16, dense: NVIDIA's data sheet
    assert (found["nvlink"].links, found["nic"].links) == (("nvlink",), ("network",))
    assert all(one.kind == "hardware" for one in list(found.values())[:5])
    assert not {"nic", "network_latency", "uplinks"} & resources(1).keys()


@pytest.mark.parametrize(
    ("nodes", "better", "sets"),
    [
        (2, 2.0, ("cluster.nodes=4", f"{TRAINING}.parallel.dp=4")),
        (2, 0.5, ("cluster.nodes=1", f"{TRAINING}.parallel.dp=1")),
        (1, 0.5, None),
        (2, 1.1, None),
        # 32 sequences on 32 replicas are one each: microbatches of 2 become 1.
        (16, 2.0, ("cluster.nodes=32", f"{TRAINING}.parallel.dp=32", f"{TRAINING}.batch.micro=1")),
    ],
)
def test_nodes_come_with_replicas(nodes: int, better: float, sets: Any) -> None:
    one = resources(nodes)["nodes"]
    assert one.sets(better) == sets
    assert (one.kind, one.now) == ("size", f"{nodes}")


def test_nodes_are_offered_where_the_batch_divides() -> None:
    one = resources(2)["nodes"]
    assert [one.offered(better) for better in (0.5, 2.0, 16.0, 32.0)] == [True, True, True, False]


def test_microbatches_and_buckets_are_settings() -> None:
    found = resources()
    assert found["micro"].sets(2.0) == (f"{TRAINING}.batch.micro=4",)
    assert found["micro"].sets(0.5) == (f"{TRAINING}.batch.micro=1",)
    assert found["micro"].sets(0.25) is None
    assert found["micro"].sets(1.1) is None
    sized = resources(data_parallel={"bucket": "1000B"})["bucket"]
    assert sized.sets(1.1) == (f"{TRAINING}.data_parallel.bucket=1100B",)
    assert sized.kind == found["micro"].kind == "setting"
    assert "bucket" not in resources(1)
    for data in ({"kind": "fsdp"}, {"kind": "zero", "stage": 3}):
        assert "bucket" not in resources(data_parallel=data)


def test_without_a_cluster_there_is_nothing_to_buy() -> None:
    file, _ = made(2, 2, 32, {})
    with pytest.raises(ScenarioError, match="x: has no cluster, so there is nothing to buy"):
        resources_of(file, None, "x")


def titles(nodes: int = 2, micro: int = 2, batch: int = 32, **settings: Any) -> dict[str, Any]:
    file, cluster = made(nodes, micro, batch, settings)
    metrics = SimpleNamespace(ranks=[SimpleNamespace(stage=0, compute_s=1.0)])
    base: Any = SimpleNamespace(cluster=cluster, metrics=metrics)
    return {one.title: one.sets for one in setting_changes(file, base, "x")}


def test_settings_that_cost_nothing() -> None:
    """16 sequences of a replica: microbatches of 4, 8 and 16; tp at most the GPUs of a node."""
    found = titles()
    assert [name for name in found if name.startswith("micro")] == [
        "micro 4",
        "micro 8",
        "micro 16",
    ]
    assert found["micro 4"] == (f"{TRAINING}.batch.micro=4",)
    assert [name for name in found if name.startswith("tp ")] == ["tp 4, dp 4"]
    assert found["tp 4, dp 4"] == (f"{TRAINING}.parallel.tp=4", f"{TRAINING}.parallel.dp=4")
    two = titles(parallel={"dp": 8, "tp": 2})
    divided = f"{TRAINING}.parallel.sequence_parallel"
    assert two["tp 1, dp 16"][2:] == (f"{divided}=false",)
    assert two["tp 4, dp 4"] == (f"{TRAINING}.parallel.tp=4", f"{TRAINING}.parallel.dp=4")
    one = titles(parallel={"dp": 16})
    assert [name for name in one if name.startswith("tp ")] == ["tp 2, dp 8"]
    assert one["tp 2, dp 8"][2:] == (f"{divided}=true",)
    assert not any(name.startswith("tp_overlap") for name in one)


@pytest.mark.parametrize(
    ("layers", "busy", "moved"),
    [
        ([4, 4], [4.0, 4.0], [4, 4]),
        ([4, 4], [5.0, 4.0], [4, 4]),  # moved, the other would take as long
        ([4, 4], [5.1, 4.0], [3, 5]),  # a layer takes 1 where it takes least
        ([6, 2], [6.0, 2.0], [4, 4]),
        ([1, 3], [9.0, 3.0], [1, 3]),  # a stage keeps its last layer
        ([2, 3], [9.0, 3.0], [1, 4]),
        ([0, 4], [1.0, 4.0], [1, 3]),  # an embedding alone
    ],
)
def test_layers_move_one_by_one_while_the_longest_gets_shorter(
    layers: list[int], busy: list[float], moved: list[int]
) -> None:
    assert balanced(layers, busy) == moved


@pytest.mark.parametrize(
    ("oversubscription", "uplinks", "now"), [(2, 1, "2:1"), (2, 4, "0.5:1"), (3, 0.5, "6:1")]
)
def test_uplinks_are_told_with_what_an_oversubscription_leaves(
    oversubscription: float, uplinks: float, now: str
) -> None:
    file, _ = made(2, 2, 32, {})
    section = {
        "preset": "dgx-h100", "nodes": 2, "scale": {"uplinks": uplinks},
        "fabric": {"kind": "fat_tree", "oversubscription": oversubscription, "nodes_per_leaf": 1},
    }  # fmt: skip
    cluster = cluster_from(section, "x")
    found = {one.key: one.now for one in resources_of(file, cluster, "x")}
    assert found["uplinks"] == now
