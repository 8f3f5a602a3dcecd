"""What the timing model sees of real machines."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.libraries.nccl.communicator.communicator import communicator_of
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.timing.runs import LinkKind, Shape, Way
from commsim.libraries.nccl.timing.wires import Wires, runs_of, wires_of


def wires(
    preset: str, *, nodes: int = 1, gpus: int = 8, env: dict[str, Any] | None = None
) -> Wires:
    """Return the wires of the first GPUs of each node."""
    cluster = Cluster.preset(preset, nodes=nodes)
    members = [int(first) + g for first in cluster.first_rank for g in range(gpus)]
    knobs = knobs_of(env or {})
    return wires_of(cluster, members, communicator_of(cluster, members, env=knobs), knobs)


@pytest.mark.parametrize(
    ("preset", "gpus", "generation", "port"),
    [
        ("dgx-2", 12, 0, 150e9), ("dgx-1v", 8, 0, 150e9), ("dgx-a100", 8, 1, 300e9),
        ("polaris", 4, 1, 300e9), ("dgx-h100", 8, 2, 450e9), ("snellius-h100", 4, 2, 450e9),
        ("dgx-b200", 8, 3, 900e9),
    ],
)  # fmt: skip
def test_nvlink_ports_by_generation(preset, gpus, generation, port):
    found = wires(preset, gpus=gpus)
    assert (found.link, found.generation) == (LinkKind.NVLINK, generation)
    assert found.port == pytest.approx(port)
    assert found.nics == 0


def test_half_of_a_mesh_has_half_of_the_links():
    assert wires("snellius-h100", gpus=2).port == pytest.approx(150e9)


def test_gpus_without_peer_access_go_through_host_memory():
    found = wires("pcie-rtx5090", gpus=4)
    assert found.link == LinkKind.SHM
    assert found.port == pytest.approx(63e9, rel=0.01)


def test_gpus_under_one_switch_go_by_pcie():
    assert wires("pcie-a100", gpus=4).link == LinkKind.PCIE
    near = {"NCCL_P2P_LEVEL": "PIX"}
    assert wires("pcie-a100", gpus=4, env=near).link == LinkKind.PCIE
    off = wires("pcie-a100", gpus=4, env={"NCCL_P2P_DISABLE": 1})
    assert off.link == LinkKind.SHM


@pytest.mark.parametrize(
    ("preset", "gpus", "nics", "rate", "transport"),
    [
        ("dgx-h100", 8, 8, 50e9, "ib"), ("dgx-h100", 2, 2, 50e9, "ib"),
        ("aws-p4d", 8, 4, 12.5e9, "efa_v1"), ("gcp-a3-mega", 8, 8, 25e9, "tcpxo"),
        ("polaris", 4, 2, 25e9, "slingshot"), ("oci-a100-40gb", 8, 16, 12.5e9, "roce"),
    ],
)  # fmt: skip
def test_nics_of_the_gpus_in_use(preset, gpus, nics, rate, transport):
    found = wires(preset, nodes=2, gpus=gpus)
    assert (found.nics, found.nic_rate, found.transport) == (nics, rate, transport)


def test_the_way_to_a_nic_follows_gpudirect():
    assert wires("dgx-h100", nodes=2).way == Way.DIRECT
    assert wires("alps", nodes=2, gpus=4).way == Way.DIRECT
    assert wires("polaris", nodes=2, gpus=4).way == Way.STAGED
    asked = {"NCCL_NET_GDR_LEVEL": "PHB"}
    assert wires("polaris", nodes=2, gpus=4, env=asked).way == Way.ROOT
    assert wires("t4-ethernet", nodes=2, gpus=1).way == Way.STAGED


def test_a_rack_of_nvlink_is_one_domain():
    found = wires("gb200-nvl72", nodes=18, gpus=4)
    assert (found.ranks, found.domains, found.nics) == (72, 1, 0)


def test_grouped_sends_have_shapes_of_their_own():
    found = wires("dgx-h100")
    shapes = {
        op: runs_of(found, op, [1024], None, channels=8).shape[0]
        for op in ("all_to_all", "send_recv", "gather", "scatter")
    }
    assert list(shapes.values()) == [Shape.EXCHANGE, Shape.PAIR, Shape.FAN, Shape.FAN]


def test_gpus_under_one_switch_share_the_way_to_host_memory():
    alone, pair = wires("pcie-rtx2080ti", gpus=1), wires("pcie-rtx2080ti", gpus=2)
    assert pair.link == LinkKind.SHM
    assert pair.port == pytest.approx(15.75e9 / 2, rel=0.01)
    assert alone.port == pytest.approx(15.75e9, rel=0.01)


def test_the_largest_part_of_a_group_stands_for_it():
    cluster = Cluster.preset("snellius-h100", nodes=2)
    members = [0, 4, 5, 6, 7]
    found = wires_of(cluster, members, communicator_of(cluster, members))
    assert (found.ranks, found.domains, found.nics) == (5, 2, 4)
    assert found.port == pytest.approx(450e9)
