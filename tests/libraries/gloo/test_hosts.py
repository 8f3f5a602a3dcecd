"""The ways of Gloo's bytes: threads of processes as links, interfaces, and what waking up costs."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.host_star import US, HostStar, costs
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, TopologyError
from commsim.libraries.gloo.constants import Medium, constants
from commsim.libraries.gloo.hosts import PREAMBLE, Hosts, Wakes
from commsim.units import Bandwidth, Duration, Size


def medium(latency: int, again: int, packet: int) -> Medium:
    return Medium(
        rate=Bandwidth(1e9), latency=Duration(latency), packet=Size(packet), again=Duration(again)
    )


def test_a_message_beyond_a_packet_wakes_its_receiver_again() -> None:
    """A packet has room for what the 48 bytes ahead of each message leave."""
    wakes = Wakes.of([medium(10, 5, 100), medium(20, 7, 1000)])
    assert wakes.room.tolist() == [100 - PREAMBLE, 1000 - PREAMBLE]
    assert wakes.for_bytes(np.array([52.0, 952.0])).tolist() == [10, 20]
    assert wakes.for_bytes(np.array([53.0, 953.0])).tolist() == [15, 27]
    turned = wakes[np.array([1, 0, 1])]
    assert turned.for_bytes(np.array([0.0, 53.0, 953.0])).tolist() == [20, 15, 27]
    assert PREAMBLE == 6 * 8  # words


def test_two_threads_of_each_process_are_links_after_the_clusters() -> None:
    cluster = HostStar(3)
    links = Hosts(cluster, costs()).links
    own = len(cluster.links)
    assert len(links) == own + 6
    assert links.names[own:] == tuple(
        f"rank{rank}/tcp-{way}" for rank in range(3) for way in ("out", "in")
    )
    assert links.source[own:] == links.target[own:]
    assert links.source[own:] == ("rank0", "rank0", "rank1", "rank1", "rank2", "rank2")
    assert set(links.kinds[own:]) == {"tcp"}
    assert set(links.media[own:]) == {""}
    assert links.capacity[own:].tolist() == links.bandwidth[own:].tolist() == [1e12] * 6
    assert links.efficiency[own:].tolist() == [1.0] * 6
    assert links.latency[own:].tolist() == [0] * 6
    assert links.names[:own] == cluster.links.names


def test_bytes_leave_by_the_thread_out_and_enter_by_the_thread_in() -> None:
    cluster = HostStar(3)
    hosts = Hosts(cluster, costs())
    own = len(cluster.links)
    way = hosts.route(2, 1)
    assert (way.link, way.hop) == ((own + 4, 4, 3, own + 3), (0, 1, 2, 3))
    assert (way.share, way.latency) == ((1.0,) * 4, 2 * US)
    assert hosts.route(2, 1) is way
    assert hosts.build(2, 1) == way
    assert hosts.control(2, 1) == 2 * US + 10 * US


def test_nodes_talk_by_one_interface_and_processes_of_a_node_by_none() -> None:
    cluster = Cluster.preset("cpu-ethernet", nodes=2)
    each = cluster.world_size // 2
    hosts = Hosts(cluster, constants())
    near = [cluster.links.kinds[link] for link in hosts.route(0, 1).link[1:-1]]
    assert "network" not in near
    far = hosts.route(0, each).link[1:-1]
    assert cluster.fabric.nic_link(0) in far
    wires = constants()
    assert hosts.medium(0, each) == wires.of(cluster.nics[0].medium)
    assert hosts.medium(0, 0) == wires.of("loopback")


def test_an_interface_that_is_not_there() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    second = Hosts(cluster, constants(), interface=7)
    assert cluster.fabric.nic_link(7) in second.route(0, 8).link
    assert cluster.fabric.nic_link(0) not in second.route(0, 8).link
    with pytest.raises(ScenarioError, match="interface: 8: node 0 has NICs 0 to 7"):
        Hosts(cluster, constants(), interface=8).route(0, 8)
    alone = HostStar(2)
    alone.nics = ()
    with pytest.raises(TopologyError, match="node 0 has no NIC to leave it by"):
        Hosts(alone, costs()).route(0, 1)
    second_only = HostStar(2)
    second_only.nics = second_only.nics[1:]
    with pytest.raises(TopologyError, match="node 0 has no NIC"):
        Hosts(second_only, costs()).route(1, 0)
    lost = HostStar(2)
    lost.nics = (lost.nics[0], replace(lost.nics[1], index=1))
    with pytest.raises(ScenarioError, match="interface: 0: node 1 has NICs 0 to 0"):
        Hosts(lost, costs()).route(0, 1)
