"""What searched schedules are laid out for: compute, exposed collectives, and messages."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import SMALL, ToyCluster

import commsim as cs
from commsim.cluster import Cluster
from commsim.libraries import Ideal, Request
from commsim.models import compute_model
from commsim.sections import decode
from commsim.workload.schedules import StageTimes
from commsim.workload.training import TrainingSection, plan_training
from commsim.workload.training.stages import divide_layers
from commsim.workload.training.times import Estimate


def times(cluster: Cluster, *, tied: bool = False, **settings: Any) -> StageTimes:
    base = {"model": SMALL, "batch": {"global": 8, "micro": 1}, "compute": {"efficiency": 0.5}}
    section = decode({**base, **settings}, TrainingSection, "x")
    plan = plan_training(section, cluster, where="x")
    model = compute_model(
        cluster.gpu(0), precision=section.precision, section=section.compute, where="x"
    )
    return Estimate(plan.layout, cluster, plan.split).stages(
        tuple(stage.units for stage in plan.stages), plan.schedule.home,
        compiler=plan.compiler(model), boundary=plan.boundary, tied=tied,
    )  # fmt: skip


def test_collectives_that_hold_compute_are_counted_and_others_are_not() -> None:
    """Two layers per stage, two all-reduces each; without overlap the backward has as many."""
    parallel = {"tp": 2, "pp": 2}
    held, free, alone = (
        times(ToyCluster(4), parallel={**parallel, "tp_overlap": "none"}),
        times(ToyCluster(4), parallel={**parallel, "tp_overlap": "full"}),
        times(ToyCluster(2), parallel={"pp": 2}),
    )
    reduce = Ideal().plan(Request("all_reduce", 2 * 16 * 8, (0, 1)), ToyCluster(4)).idle
    assert held.forward[0] - free.forward[0] == 4 * reduce
    assert held.backward[0] - free.backward[0] == 4 * reduce
    assert held.backward[1] - free.backward[1] == 5 * reduce  # and the head
    assert held.weight == free.weight
    assert alone.forward[0] > free.forward[0] - reduce > 0  # half of the work on each of two


def test_a_hop_takes_its_message_and_no_way_back_counts_where_there_is_one_device() -> None:
    cluster = ToyCluster(4, speed=1e9, latency=1000)
    found = times(cluster, parallel={"pp": 4}, batch={"global": 4, "micro": 1})
    assert found.hops == (2 * 16 * 8 * 1000 + 2 * 1000,) * 4
    assert times(ToyCluster(1)).hops == (0,)
    assert found.repeats


def test_pipelines_that_share_a_nic_send_one_after_another() -> None:
    """A DGX-1V has four NICs for eight GPUs: the messages of two pipelines use each."""
    cluster = Cluster.preset("dgx-1v", nodes=2)
    hops = times(
        cluster, parallel={"dp": 8, "pp": 2}, batch={"global": 16, "micro": 1}, precision="fp16"
    ).hops
    message = Request("send_recv", 2 * (2 * 16 * 8), (0, 8))
    assert hops[0] == Ideal().plan(message, cluster).idle


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_table_is_known(tied: bool) -> None:
    assert times(ToyCluster(2), parallel={"pp": 2}, tied=tied).tied == tied


@pytest.mark.parametrize(
    ("layers", "pp", "virtual", "counts"),
    [
        (80, 8, 1, [10] * 8),
        (126, 16, 1, [7, *[8] * 14, 7]),  # the Llama 3 paper
        (61, 16, 1, [3, *[4] * 14, 2]),  # DeepSeek-V3
        (61, 8, 1, [7, *[8] * 6, 6]),
        (126, 8, 2, [7, *[8] * 14, 7]),
        (3, 5, 1, [0, 1, 1, 1, 0]),
        (4, 5, 1, [1, 1, 1, 1, 0]),
    ],
)
def test_layers_that_do_not_divide_leave_the_ends_lighter(
    layers: int, pp: int, virtual: int, counts: list[int]
) -> None:
    """torchtitan counts the embedding and the head as a layer each."""
    parts = divide_layers(layers, pp, virtual, None, where="x")
    assert [len(part) for part in parts] == counts
    assert [layer for part in parts for layer in part] == list(range(layers))


def test_layers_that_do_not_divide_are_said() -> None:
    """Five layers, the embedding and the head are seven items: 4 + 3, which is 3 + 2 layers."""
    training = {
        "model": {"layers": 5, "hidden": 256, "heads": 4, "vocab": 1000, "seq_len": 128},
        "parallel": {"dp": 4, "pp": 2},
        "batch": {"global": 8, "micro": 1},
    }
    scenario = {"cluster": {"preset": "dgx-h100"}, "workload": {"training": training}}
    said = "pipeline: 3 + 2 layers, as embedding and head count as one each"
    assert any(note.startswith(said) for note in cs.run(scenario).notes)
    listed = cs.run(scenario, ["workload.training.parallel.layers_per_stage=[3,2]"])
    assert not any("layers_per_stage lays" in note for note in listed.notes)
    even = cs.run(scenario, ["workload.training.model.layers=6"])
    assert not any("layers_per_stage lays" in note for note in even.notes)
