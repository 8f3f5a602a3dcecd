"""Half ways: up to the switch that adds, and from the switch that hands out."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster, Links, Route
from commsim.collectives import program
from commsim.errors import ScenarioError
from commsim.libraries.routing import Router, switch_routes
from commsim.libraries.routing.switches import _part, _until_switch


def halves(algorithm: str, n: int, ranks: list[int], cluster: Cluster, **more: Any) -> Any:
    made = program("all_reduce", algorithm, n, **more)
    return switch_routes(made, ranks, Router(cluster)), made


def test_half_of_an_nvlink_route_is_one_hop_to_the_switch_or_from_it() -> None:
    cluster = Cluster.preset("dgx-h100")
    found, made = halves("nvls", 4, [3, 1, 2, 0], cluster, pieces=2)
    assert set(found) == {(a, 4) for a in range(4)} | {(4, a) for a in range(4)}
    assert made.n == 4
    names, latency = cluster.links.names, cluster.links.latency
    for place, rank in enumerate([3, 1, 2, 0]):
        up, down = found[place, 4], found[4, place]
        assert [names[link] for link in up.link] == [f"node0/gpu{rank}->nvswitch"]
        assert [names[link] for link in down.link] == [f"node0/nvswitch->gpu{rank}"]
        for way in (up, down):
            assert (way.share, way.hop) == ((1.0,), (0,))
            assert way.latency == latency[way.link[0]]


def test_half_of_a_way_through_the_network_ends_at_the_leaf_of_the_own_nic() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=3)
    found, _ = halves("sharp", 3, [2, 10, 18], cluster, pieces=2)
    links = cluster.links
    for place, nic in enumerate((2, 10, 18)):
        up, down = found[place, 3], found[3, place]
        assert up.link[-1] == cluster.fabric.nic_link(nic)
        assert down.link[0] == cluster.fabric.nic_link(nic) + 1
        assert links.target[up.link[-1]] == links.source[down.link[0]]
        for way in (up, down):
            assert list(way.hop) == list(range(len(way.link)))
            assert way.latency == sum(int(links.latency[link]) for link in way.link)
            for a, b in pairwise(way.link):
                assert links.target[a] == links.source[b]
        whole = Router(cluster).route((2, 10, 18)[place], (2, 10, 18)[place - 1])
        assert len(up.link) + len(down.link) == len(whole.link)


def test_some_hops_of_a_route_with_parallel_links() -> None:
    words = ("",) * 5
    links = Links(words, words, words, np.ones(5), np.ones(5), np.ones(5),
                  np.array([10, 20, 50, 40, 80]), words, words)  # fmt: skip
    route = Route((0, 1, 2, 3, 4), (1.0, 0.25, 0.75, 1.0, 1.0), (0, 1, 1, 2, 3), 180)
    assert _part(route, 0, 4, links) == route
    assert _part(route, 1, 3, links) == Route((1, 2, 3), (0.25, 0.75, 1.0), (0, 0, 1), 90)
    assert _part(route, 3, 4, links) == Route((4,), (1.0,), (0,), 80)
    assert _part(route, 2, 2, links) == Route((), (), (), 0)


def test_a_fabric_whose_switches_do_not_add() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2, fabric={"sharp": False})
    with pytest.raises(ScenarioError, match="sharp: false"):
        halves("sharp", 2, [0, 8], cluster, pieces=1)


def test_a_rank_alone_on_its_switch() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    with pytest.raises(ScenarioError, match="different NVLink domains"):
        halves("nvls", 2, [0, 8], cluster, pieces=1)
    with pytest.raises(ScenarioError, match="nothing to add"):
        halves("sharp", 2, [0, 1], cluster, pieces=1)


def test_links_between_gpus_are_no_switch() -> None:
    mesh = Cluster.preset("dgx-1v", nodes=2)
    near, far = (Router(mesh).route(0, rank) for rank in (1, 8))
    with pytest.raises(ScenarioError, match="nvls: needs an NVSwitch between the GPUs"):
        _until_switch(near, mesh, True, "nvls")
    with pytest.raises(ScenarioError, match="sharp: needs a network switch"):
        _until_switch(near, mesh, False, "sharp")
    up = _until_switch(far, mesh, False, "sharp")
    assert mesh.links.kinds[up.link[-1]] == "network"
    assert all(mesh.links.kinds[link] != "network" for link in up.link[:-1])
    with pytest.raises(ScenarioError, match="nvls: needs an NVSwitch"):
        _until_switch(far, mesh, True, "nvls")
