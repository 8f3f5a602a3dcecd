"""Routes between ranks, and what is said where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.star import Star

from commsim.cluster import Cluster, Route
from commsim.errors import TopologyError
from commsim.libraries.routing import Router


@pytest.mark.parametrize(
    ("pxn", "target", "rail", "why"),
    [
        (True, 14, 3, "no NVLink joins rank 0 to a GPU on rail 3"),
        (False, 10, 1, "NCCL_PXN_DISABLE"),
    ],
)
def test_rails_that_meet_nowhere_are_named(pxn: bool, target: int, rail: int, why: str) -> None:
    """Two GPUs of a DGX-1 share a NIC; NVLink joins a GPU to four of its seven peers."""
    router = Router(Cluster.preset("dgx-1v", nodes=2, fabric={"kind": "rail_only"}), pxn=pxn)
    assert router.route(0, 8).link  # on the same rail
    says = f"rank 0 cannot reach rank {target}: their NICs are on rails 0 and {rail},"
    with pytest.raises(TopologyError, match=says) as found:
        router.route(0, target)
    assert why in str(found.value)


H100 = Cluster.preset("dgx-h100", nodes=2)


def names(route: Route) -> list[str]:
    return [H100.links.names[link] for link in route.link]


def test_the_named_nics_and_the_gpu_that_hands_over() -> None:
    router = Router(H100)
    own = router.by_nics(0, 9, out=0, into=8)
    assert own == router.by_nics(0, 9, out=0, into=8, relay=0)
    assert names(own)[0].startswith("node0/gpu0->pcie")
    assert H100.fabric.nic_link(0) in own.link
    assert H100.fabric.nic_link(8) + 1 in own.link
    relayed = router.by_nics(0, 9, out=3, into=11, relay=3)
    assert names(relayed)[:2] == ["node0/gpu0->nvswitch", "node0/nvswitch->gpu3"]
    assert names(relayed)[2].startswith("node0/gpu3->")
    assert H100.fabric.nic_link(3) in relayed.link
    assert names(relayed)[-1].endswith("->gpu1")
    hop = H100.local_route(0, 3)
    assert hop is not None
    assert relayed.latency == hop.latency + router.by_nics(3, 9, out=3, into=11).latency
    rails = Router(Cluster.preset("dgx-h100", nodes=2, fabric={"kind": "rail_only"}))
    with pytest.raises(TopologyError, match="rank 0 cannot reach rank 9 from NIC 0 to NIC 9"):
        rails.by_nics(0, 9, out=0, into=9)


def test_the_slowest_link_on_the_way_is_the_speed() -> None:
    router = Router(H100)
    capacity = H100.links.capacity
    assert router.speed(0, 1) == min(capacity[link] for link in router.route(0, 1).link)
    split = Router(Cluster.preset("dgx-h100", nodes=4, fabric={"kind": "fat_tree", "spines": 4,
                                                             "nodes_per_leaf": 1}))  # fmt: skip
    route = split.route(0, 8)
    shares = dict(zip(route.link, route.share, strict=True))
    assert min(shares.values()) == 0.25
    links = split.cluster.links.capacity
    assert split.speed(0, 8) == pytest.approx(min(links[i] / part for i, part in shares.items()))
    assert split.route(0, 8) is route


@pytest.mark.parametrize("pxn", [True, False])
def test_across_rails_data_crosses_nvlink_first_if_it_may(pxn: bool) -> None:
    """Rank 9 hangs on rail 1: GPU 1 of the node sends."""
    router = Router(H100, pxn=pxn)
    own, other = H100.fabric.nic_link(0), H100.fabric.nic_link(1)
    assert (other in router.route(0, 9).link) is pxn
    assert (own in router.route(0, 9).link) is not pxn
    assert own in router.route(0, 8).link
    assert [H100.links.kinds[link] for link in router.route(0, 9).link].count("nvlink") == 2 * pxn


class Apart(Star):
    """GPUs that no link joins, each on a node of its own without a NIC."""

    def local_route(self, a: int, b: int) -> Any:
        return None


def test_a_rank_without_a_nic_cannot_leave_its_node() -> None:
    with pytest.raises(TopologyError, match="rank 1 has no NIC to leave its node by"):
        Router(Apart(2)).route(1, 0)
