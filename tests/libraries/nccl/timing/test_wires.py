"""What the timing model sees of real machines."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.shapes import Algorithm, Choice, Protocol
from commsim.libraries.nccl.timing.constants import TRANSPORTS
from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind, NicWay, Runs
from commsim.libraries.nccl.timing.wires import _window

RING = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


def group(
    preset: str, *, nodes: int = 1, gpus: int = 8, env: dict[str, Any] | None = None
) -> NcclGroup:
    """Return the first GPUs of each node as a group."""
    cluster = Cluster.preset(preset, nodes=nodes)
    members = [int(first) + g for first in cluster.first_rank for g in range(gpus)]
    return NcclGroup(Site(cluster, knobs=knobs_of(env or {})), members)


def ring(preset: str, **given: Any) -> Runs:
    """Return an all-gather of 1 GiB by a ring."""
    made = group(preset, **given, env=RING)
    return made.runs("all_gather", [1 << 30], [made.choose("all_gather", 1 << 30)])


@pytest.mark.parametrize(
    ("preset", "gpus", "generation", "port"),
    [
        ("dgx-2", 12, 0, 150e9 * 0.9412), ("dgx-a100", 8, 1, 300e9 * 0.9412),
        ("polaris", 4, 1, 300e9 * 0.9412), ("dgx-h100", 8, 2, 450e9 * 0.881),
        ("dgx-b200", 8, 3, 900e9 * 0.881),
    ],
)  # fmt: skip
def test_a_ring_takes_the_whole_nvlink_of_each_gpu(preset, gpus, generation, port):
    found = ring(preset, gpus=gpus)
    assert (found.link[0], found.generation[0]) == (LinkKind.NVLINK, generation)
    assert (gpus - 1) / gpus / found.local[0] == pytest.approx(port, rel=0.01)
    assert found.net[0] == found.leaving[0] == 0


def test_two_gpus_of_a_mesh_have_the_links_between_them():
    assert 1 / 2 / ring("snellius-h100", gpus=2).local[0] == pytest.approx(150e9 * 0.881)


def test_gpus_without_peer_access_go_through_host_memory():
    found = ring("pcie-rtx5090", gpus=4)
    assert found.link[0] == LinkKind.SHM
    assert 3 / 4 / found.local[0] <= 63.1e9


def test_gpus_under_one_switch_go_by_pcie():
    assert group("pcie-a100", gpus=4).wires.link == LinkKind.PCIE
    off = group("pcie-a100", gpus=4, env={"NCCL_P2P_DISABLE": 1})
    assert off.wires.link == LinkKind.SHM


def test_a_pair_behind_two_sockets_of_amd_reads_its_neighbours_memory():
    level = {"NCCL_P2P_LEVEL": "PXB"}
    overrides = {"gpu": {"count": 2}, "pcie": {"p2p": True}}
    cluster = Cluster.preset("pcie-rtx5090", overrides=overrides)
    spec = cluster.node_spec(0)
    pair = NcclGroup(Site(cluster), range(2))
    assert spec.cpu.vendor == "amd"
    assert pair.wires.link == LinkKind.PCIE
    assert NcclGroup(Site(cluster, knobs=knobs_of(level)), range(2)).wires.link == LinkKind.SHM


@pytest.mark.parametrize(
    ("preset", "gpus", "rate", "transport"),
    [
        ("dgx-h100", 8, 8 * 50e9 * 0.97, "ib"), ("dgx-h100", 2, 2 * 50e9 * 0.97, "ib"),
        ("aws-p4d", 8, 4 * 12.5e9 * 0.85, "efa_v1"), ("gcp-a3-mega", 8, 8 * 25e9 * 0.97, "tcpxo"),
    ],
)  # fmt: skip
def test_a_ring_takes_the_nics_of_the_gpus_in_use(preset, gpus, rate, transport):
    found = ring(preset, nodes=2, gpus=gpus)
    n = 2 * gpus
    assert (n - 1) / n / found.net[0] == pytest.approx(rate, rel=0.03)
    assert found.leaving[0] == pytest.approx((n - 1) / n)
    assert TRANSPORTS[int(found.transport[0])] == transport


def test_the_way_to_a_nic_follows_gpudirect():
    assert group("dgx-h100", nodes=2).wires.way == NicWay.DIRECT
    assert group("alps", nodes=2, gpus=4).wires.way == NicWay.DIRECT
    assert group("polaris", nodes=2, gpus=4).wires.way == NicWay.STAGED
    asked = {"NCCL_NET_GDR_LEVEL": "PHB"}
    assert group("polaris", nodes=2, gpus=4, env=asked).wires.way == NicWay.ROOT
    assert group("t4-ethernet", nodes=2, gpus=1).wires.way == NicWay.STAGED


def test_a_rack_of_nvlink_is_one_domain():
    found = ring("gb200-nvl72", nodes=18, gpus=4)
    assert (found.ranks[0], found.domains[0], found.net[0]) == (72, 1, 0)


def test_grouped_sends_have_shapes_of_their_own():
    made = group("dgx-h100")
    shapes = {
        op: made.runs(op, [1024]).shape[0]
        for op in ("all_to_all", "send_recv", "gather", "scatter")
    }
    assert list(shapes.values()) == [
        ChunkShape.EXCHANGE,
        ChunkShape.PAIR,
        ChunkShape.FAN,
        ChunkShape.FAN,
    ]


def test_gpus_under_one_switch_share_the_way_to_host_memory():
    found = ring("pcie-rtx2080ti", gpus=2)
    assert found.link[0] == LinkKind.SHM
    assert 1 / 2 / found.local[0] <= 15.76e9


def test_routes_have_the_latencies_of_their_links():
    found = ring("dgx-h100", nodes=2)
    assert found.hop[0] == pytest.approx(0.8e-6)
    least = 2 * 300e-9 + 230e-9 + 2 * 50e-9
    assert least < found.reach[0] <= found.longest[0] < 3 * least


def test_windows_are_those_of_nccls_chunks():
    small, large = (
        ring_of.runs("all_reduce", [1 << 30], [ring_of.choose("all_reduce", 1 << 30)]).window[0]
        for ring_of in (
            group("dgx-h100", nodes=2, env=RING | {"NCCL_BUFFSIZE": size})
            for size in (1 << 20, 1 << 22)
        )
    )
    assert large == 4 * small


@pytest.mark.parametrize(("protocol", "shape", "window"), [
    # LL: 8 bytes of a thread's 16, LL128: 15 on average; Simple a tree's chunk or a ring's slice
    (Protocol.LL, ChunkShape.RING, 8 * 384), (Protocol.LL, ChunkShape.TREE, 8 * 384),
    (Protocol.LL128, ChunkShape.RING, 15 * 384), (Protocol.LL128, ChunkShape.TREE, 15 * 384),
    (Protocol.Simple, ChunkShape.RING, 1000), (Protocol.Simple, ChunkShape.CHAIN, 1000),
    (Protocol.Simple, ChunkShape.TREE, 4000),
])  # fmt: skip
def test_what_arrives_before_the_next_rank_goes_on(protocol, shape, window):
    choice = Choice("all_reduce", 1 << 20, Algorithm.Ring, protocol, 8, 8, 384, 4000, 1000, 0.0)
    assert _window(shape, choice) == window


def test_runs_of_collectives_by_their_choices():
    made = group("dgx-h100", nodes=2)
    for algorithm, op, shape in (
        (Algorithm.Ring, "all_reduce", ChunkShape.RING),
        (Algorithm.Ring, "broadcast", ChunkShape.CHAIN),
        (Algorithm.Ring, "reduce", ChunkShape.CHAIN),
        (Algorithm.Tree, "all_reduce", ChunkShape.TREE),
        (Algorithm.NVLS, "all_reduce", ChunkShape.COLLNET),
        (Algorithm.NVLSTree, "all_reduce", ChunkShape.NVLS_TREE),
    ):
        choice = Choice(op, 1 << 20, algorithm, Protocol.Simple, 6, 8, 384, 4000, 1000, 0.0)
        found = made.runs(op, [1 << 20], [choice], root=0)
        assert (found.shape[0], found.channels[0], found.peer_channels[0]) == (shape, 6, 1)
        assert found.loop[0] == 6 * 8 * 4000  # eight heads of NVLS
        assert found.rounds[0] == (2 if op == "all_reduce" else 1)
        assert (found.ranks[0], found.domains[0]) == (16, 2)
        assert not found.repeated[0]
        assert not found.old[0]


def test_runs_of_sends_by_their_messages():
    made = group("dgx-h100", nodes=2)
    for op, each in (("all_to_all", 1 << 16), ("send_recv", 1 << 20)):
        found = made.runs(op, [1 << 20])
        message = made.pairwise.message(each, remote=True)
        assert found.channels[0] == made.pairwise.channels
        assert found.peer_channels[0] == message.channels
        assert (found.window[0], found.loop[0]) == (message.chunk, 0)
        assert found.protocol[0] == message.protocol
    alone = group("dgx-h100")
    near = alone.pairwise.message(1 << 17, remote=False)
    assert alone.runs("all_to_all", [1 << 20]).window[0] == near.chunk
