"""The ideal library on switches that add, on two levels, and with algorithms from files."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.paths import TESTS

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal, Plan, Request
from commsim.study.bench.bench import bench

FILES = TESTS / "data" / "msccl"
RING = str(FILES / "ring_all_reduce.xml")
GIB = 2**30


def plan(
    algorithm: str, cluster: Cluster, *, op: str = "all_reduce", size: int = GIB,
    ranks: tuple[int, ...] = (), root: int = -1,
) -> Plan:  # fmt: skip
    ranks = ranks or tuple(range(cluster.world_size))
    return Ideal(algorithm).plan(Request(op, size, ranks, root=root), cluster)


def end_of(algorithm: str, cluster: Cluster, network: str, *, op: str, size: int) -> int:
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    for rank in range(cluster.world_size):
        build.collective(build.lane(rank), world, op, size, stream="c")
    library = Ideal(algorithm, pieces=16)
    return simulate(build.build(), cluster, library=library, network=network).end_time


def loads(found: Plan, cluster: Cluster, kind: str) -> np.ndarray:
    """Return the bytes on each used link of a kind."""
    total = np.zeros(len(cluster.links))
    for part in found.parts:
        for phase in part.phases:
            np.add.at(total, phase.link, phase.load)
    chosen = np.array([k == kind for k in cluster.links.kinds]) & (total > 0)
    return total[chosen]


def test_nvls_loads_every_port_with_the_buffer_and_an_eighth() -> None:
    cluster = Cluster.preset("dgx-h100")
    found = plan("nvls", cluster)
    ports = loads(found, cluster, "nvlink")
    assert len(ports) == 16
    assert ports == pytest.approx(np.full(16, GIB * 9 / 8))
    ring = plan("ring", cluster)
    assert 1.3 < ring.idle / found.idle < 1.75


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [1024, 1 << 24])
def test_fluid_and_steps_agree_on_switches_that_add(op: str, size: int) -> None:
    cluster = Cluster.preset("dgx-h100")
    fluid, steps = (end_of("nvls", cluster, net, op=op, size=size) for net in ("fluid", "steps"))
    assert fluid == pytest.approx(steps, rel=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "within"),
    [("nvls_tree", 0.02), ("collnet_direct", 0.02), ("collnet_chain", 0.12)],
)
def test_fluid_and_steps_agree_across_nodes(algorithm: str, within: float) -> None:
    """The eight chains share NVLink, where messages queue and flows do not."""
    cluster = Cluster.preset("dgx-h100", nodes=2)
    fluid, steps = (
        end_of(algorithm, cluster, net, op="all_reduce", size=1 << 22) for net in ("fluid", "steps")
    )
    assert fluid == pytest.approx(steps, rel=within)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("algorithm", ["hierarchical", "nvls_tree", "collnet_direct"])
def test_every_gpu_leaves_by_its_own_nic(algorithm: str) -> None:
    """Across two nodes each of the 16 NICs sends and gets S/8 (a network that adds: the same)."""
    cluster = Cluster.preset("dgx-h100", nodes=2)
    wires = loads(plan(algorithm, cluster), cluster, "network")
    assert len(wires) == 32
    assert wires == pytest.approx(np.full(32, GIB / 8))


def test_a_network_that_adds_beats_one_that_does_not() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=8)
    rail = tuple(range(0, 64, 8))
    added, ring = (plan(a, cluster, ranks=rail).idle for a in ("sharp", "ring"))
    assert ring / added == pytest.approx(2 * 7 / 8, rel=0.03)


def test_each_message_of_a_pairwise_exchange_waits_for_its_turn() -> None:
    cluster = Cluster.preset("dgx-h100")
    free, turns = (plan(a, cluster, op="all_to_all", size=64).idle for a in ("direct", "pairwise"))
    assert turns == pytest.approx(7 * free, rel=0.1)


@pytest.mark.parametrize(
    ("algorithm", "preset", "nodes", "message"),
    [
        ("nvls", "dgx-h100", 2, "different NVLink domains. Use nvls_tree"),
        ("nvls", "dgx-a100", 1, "neither adds nor multicasts"),
        ("sharp", "dgx-h100", 2, "hang on the switches leaf0 and leaf1"),
        ("sharp", "dgx-h100", 1, "the network has nothing to add"),
    ],
)
def test_what_the_hardware_cannot_do_is_refused(
    algorithm: str, preset: str, nodes: int, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        plan(algorithm, Cluster.preset(preset, nodes=nodes))


def test_two_levels_need_nodes_of_one_size() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    with pytest.raises(ScenarioError, match="2 on one and 3 on another"):
        plan("hierarchical", cluster, ranks=(0, 1, 8, 9, 10))


def test_a_file_takes_what_the_same_ring_takes() -> None:
    cluster = Cluster.preset("dgx-h100")
    four = (0, 1, 2, 3)
    custom, ring = (plan(a, cluster, ranks=four) for a in (RING, "ring"))
    assert custom.algorithm == "ring_two_channels"
    assert custom.channels == 2
    assert custom.idle == pytest.approx(ring.idle, rel=0.002)
    assert loads(custom, cluster, "nvlink") == pytest.approx(loads(ring, cluster, "nvlink"))


def test_a_file_runs_message_by_message_as_well() -> None:
    result = [
        bench(
            Cluster.preset("dgx-h100"), "all_reduce", [1 << 20], algo=RING, library="ideal",
            network=network, gpus_per_node=4,
        ).results[0].time_us
        for network in ("fluid", "steps")
    ]  # fmt: skip
    assert result[0] == pytest.approx(result[1], rel=1e-6)


def test_a_file_that_does_not_fit_an_op_is_left_out_and_that_is_said() -> None:
    cluster = Cluster.preset("dgx-h100")
    wrong_op = plan(RING, cluster, op="all_gather", ranks=(0, 1, 2, 3))
    assert wrong_op.algorithm == "ring"
    assert wrong_op.notes == (f"{RING} is an all_reduce of 4 GPUs: not used for all_gather of 4.",)
    wrong_size = plan(RING, cluster)
    assert "not used for all_reduce of 8" in wrong_size.notes[0]
    pairs = plan(str(FILES / "all_pairs_all_reduce.xml"), cluster, ranks=(0, 1, 2, 3))
    assert "meant for 8 to 262,144 bytes" in pairs.notes[0]


def test_bench_wants_files_that_fit() -> None:
    cluster = Cluster.preset("dgx-h100")
    with pytest.raises(ScenarioError, match="is for 4 GPUs, and this bench has 8"):
        bench(cluster, "all_reduce", [1 << 20], algo=RING, library="ideal")
    with pytest.raises(ScenarioError, match="is an all_reduce, not all_gather"):
        bench(
            cluster, "all_gather", [1 << 20], algo=RING, library="ideal", gpus_per_node=4
        )  # fmt: skip
    asked = ["nvls", "ring"]
    rows = bench(cluster, "all_reduce", [1 << 20], algo=asked, library="ideal").results
    assert [row.algo for row in rows] == ["nvls", "ring"]


def test_a_wrong_file_is_refused_before_anything_runs() -> None:
    with pytest.raises(ScenarioError, match="the contribution of rank 2 is missing"):
        Ideal(str(FILES / "broken_all_reduce.xml"))
