"""Groups of equal placement share one search and differ in NICs alone."""

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator import Communicators, NicTable, communicator_of
from commsim.libraries.nccl.communicator.placement import _by_appearance
from commsim.libraries.nccl.env import knobs_of


@pytest.mark.parametrize("disabled", [False, True], ids=["p2p", "NCCL_P2P_DISABLE"])
@pytest.mark.parametrize("stride", [2, 4, 8])
def test_a_group_found_by_its_equal_has_the_nics_of_its_own_search(
    disabled: bool, stride: int
) -> None:
    """Without P2P, NCCL sees several nodes in one: NICs still move with the node they are in."""
    cluster = Cluster.preset("dgx-h100", nodes=4)
    knobs = knobs_of({"NCCL_P2P_DISABLE": "1"} if disabled else {})
    known = Communicators(cluster, version="2.27.3", knobs=knobs)
    first = tuple(range(0, 16, stride))
    known.of(first)
    for shift in (8, 16):
        moved = tuple(rank + shift for rank in first)
        found = known.of(moved)
        own = communicator_of(cluster, moved, version="2.27.3", env=knobs)
        assert own.nets
        assert found.nets.keys() == own.nets.keys()
        for name, ends in own.nets.items():
            np.testing.assert_array_equal(found.nets[name].nics, ends.nics)
            np.testing.assert_array_equal(found.nets[name].relays, ends.relays)


def test_values_are_numbered_as_they_appear() -> None:
    assert _by_appearance(np.array([5, 2, 5, 9, 2])).tolist() == [0, 1, 0, 2, 1]
    assert _by_appearance(np.array([7])).tolist() == [0]


def searched(cluster: Cluster, groups: list[list[int]], **env: str) -> int:
    """Return how many searches the communicators of these groups take."""
    known = Communicators(cluster, version="2.27.3", knobs=knobs_of(env))
    for group in groups:
        known.of(group)
    return len(known._known)


@pytest.mark.parametrize(
    ("groups", "searches"),
    [
        ([[0, 8], [16, 24], [8, 0]], 1),  # any two nodes, in any order
        ([[0, 8], [1, 9]], 2),  # other places in the node
        ([[0, 1], [8, 9]], 1),
        ([[0, 1], [0, 8]], 2),  # one node or two
        ([[0, 1], [1, 0]], 2),
        ([[0, 8, 1], [0, 1, 8]], 2),
        ([[0, 8], [0, 8, 16]], 2),
    ],
)
def test_groups_of_equal_places_are_searched_once(groups: list[list[int]], searches: int) -> None:
    assert searched(Cluster.preset("dgx-h100", nodes=4), groups) == searches


def test_trays_of_a_rack_differ_by_their_place() -> None:
    """Their NICs are counted from the first tray of the NVLink domain."""
    cluster = Cluster.preset("gb200-nvl72", nodes=4)
    assert searched(cluster, [[0, 4], [8, 12]]) == 2
    assert searched(cluster, [[0, 4], [0, 4]]) == 1


@pytest.mark.parametrize("gpus", [[], [-1], [0, 16]])
def test_a_group_that_cannot_be_is_refused(gpus: list[int]) -> None:
    known = Communicators(Cluster.preset("dgx-h100", nodes=2), version="2.27", knobs=knobs_of({}))
    with pytest.raises(ScenarioError, match=r"counted from 0 to 15"):
        known.of(gpus)
    assert known.of([15]).n_ranks == 1


def table(preset: str, nodes: int, **overrides: object) -> NicTable:
    return NicTable(Cluster.preset(preset, nodes=nodes, overrides=overrides or None))


def test_each_gpu_uses_the_nics_dealt_to_it() -> None:
    """DGX H100: a NIC for each GPU; DGX-1V: one for two."""
    one = table("dgx-h100", 2)
    assert one.own.tolist() == [[nic] for nic in range(16)]
    assert one.count.tolist() == [1] * 16
    assert one.node.tolist() == [0] * 8 + [1] * 8
    assert table("dgx-1v", 2).own.tolist() == [[gpu // 2] for gpu in range(16)]


def test_rows_of_fewer_nics_are_filled_up() -> None:
    """Three NICs of one GPU, one of the other, one GPU on the second kind of node."""
    kinds = []
    for gpus, own in ((2, [[0, 1, 2], [3]]), (1, [[0]])):
        count = max(max(row) for row in own) + 1
        kinds.append({
            "gpu": {"count": gpus, "spec": "A100-PCIe-40GB"}, "pcie": {"generation": 4},
            "nic": {"count": count, "bandwidth": "100Gbps", "medium": "infiniband",
                    "gpu_to_nic": own},
        })  # fmt: skip
    cluster = cluster_from(
        {"nodes": [{"count": 2, "node": kinds[0]}, {"count": 1, "node": kinds[1]}],
         "fabric": {"kind": "single_switch"}}, "test",
    )  # fmt: skip
    found = NicTable(cluster)
    assert found.own.tolist() == [[0, 1, 2], [3, -1, -1], [4, 5, 6], [7, -1, -1], [8, -1, -1]]
    assert found.count.tolist() == [3, 1, 3, 1, 1]
    assert found.node.tolist() == [0] * 4 + [1] * 4 + [2]


def test_a_node_without_nics_has_empty_rows() -> None:
    node = {"gpu": {"count": 2, "spec": "A100-PCIe-40GB"}, "pcie": {"generation": 4}}
    found = NicTable(cluster_from({"node": node}, "test"))
    assert found.own.tolist() == [[-1], [-1]]
    assert found.count.tolist() == [0, 0]
