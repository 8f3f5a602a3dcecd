"""Copies between GPU and host memory are flows: they take their time and share their links."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.star import US, Star

from commsim.cluster import Route
from commsim.engine import copies as host_copies
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import CopyDirection, Graph, GraphBuilder
from commsim.libraries import Ideal

MB = 10**6


class HostStar(Star):
    """A star whose GPUs reach host memory by the links that they send and receive on."""

    def to_host(self, rank: int) -> Route:
        return Route((2 * rank,), (1.0,), (0,), int(self.links.latency[2 * rank]))

    def from_host(self, rank: int) -> Route:
        return Route((2 * rank + 1,), (1.0,), (0,), int(self.links.latency[2 * rank + 1]))


def copies(*ways: CopyDirection, streams: tuple[str, ...] = ("copy", "copy")) -> Graph:
    build = GraphBuilder()
    lane = build.lane(0)
    for way, stream in zip(ways, streams, strict=False):
        build.host_copy(lane, 2 * MB, way=way, stream=stream)
    return build.build()


def ends(graph: Graph, cluster: Star, network: str = "fluid") -> list[int]:
    timeline = simulate(graph, cluster, library=Ideal(), network=network)
    return [int(end) for end in timeline.end]


@pytest.mark.parametrize("network", ["fluid", "steps"])
@pytest.mark.parametrize("way", [CopyDirection.TO_HOST, CopyDirection.FROM_HOST])
def test_a_copy_alone_takes_latency_and_bytes(way: CopyDirection, network: str) -> None:
    cluster = HostStar(2, [1e9, 4e9, 1e9, 1e9])
    speed = 1e9 if way == CopyDirection.TO_HOST else 4e9
    assert ends(copies(way), cluster, network) == [US + round(2 * MB / speed * 1e12)]


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_one_stream_copies_one_after_another_and_two_ways_do_not_meet(network: str) -> None:
    one = US + 2000 * US
    both = (CopyDirection.TO_HOST, CopyDirection.FROM_HOST)
    assert ends(copies(*both), HostStar(2), network) == [one, 2 * one]
    assert ends(copies(*both, streams=("d2h", "h2d")), HostStar(2), network) == [one, one]


def test_copies_over_one_link_take_turns() -> None:
    """Message by message each goes in eight parts, so that both end with the link's last."""
    ways = (CopyDirection.TO_HOST, CopyDirection.TO_HOST)
    both = copies(*ways, streams=("one", "other"))
    assert ends(both, HostStar(2)) == [4000 * US] * 2
    assert ends(both, HostStar(2), "steps") == [US + 3750 * US, US + 4000 * US]


def test_copies_and_messages_share_a_link() -> None:
    """Two flows of 2 MB on a link of 1 GB/s take 4 ms together, 2 ms each alone."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(2)]
    world = build.group("world", range(2))
    build.host_copy(lanes[0], 2 * MB, way=CopyDirection.TO_HOST)
    build.send(lanes[0], 1, 2 * MB, group=world, stream="s")
    build.recv(lanes[1], 0, 2 * MB, group=world, stream="s")
    for network in ("fluid", "steps"):
        timeline = simulate(build.build(), HostStar(2), library=Ideal(), network=network)
        assert timeline.end.max() == pytest.approx(4e-3 * 1e12, rel=2e-3)
    fluid = simulate(build.build(), HostStar(2), library=Ideal())
    assert fluid.end.min() > 3.9e9
    assert fluid.links.link_bytes()[0] == pytest.approx(4 * MB)


def test_the_bytes_are_on_the_record_and_the_op_is_named() -> None:
    graph = copies(CopyDirection.TO_HOST)
    for network in ("fluid", "steps"):
        timeline = simulate(graph, HostStar(2), library=Ideal(), network=network)
        assert timeline.links.link_bytes().tolist() == pytest.approx([2 * MB, 0, 0, 0])
        assert set(timeline.links.op.tolist()) == {0}


def test_a_copy_needs_a_cluster_a_size_and_a_way() -> None:
    with pytest.raises(ScenarioError, match="a copy over links needs a"):
        simulate(copies(CopyDirection.TO_HOST), None, library=Ideal())
    build = GraphBuilder()
    lane = build.lane(0)
    with pytest.raises(ScenarioError, match="give a size"):
        build.host_copy(lane, -1, way=CopyDirection.TO_HOST)
    with pytest.raises(ScenarioError, match="and its way"):
        build.host_copy(lane, 1, way=CopyDirection.NONE)


def test_a_copy_of_nothing_takes_its_latency() -> None:
    build = GraphBuilder()
    build.host_copy(build.lane(0), 0, way=CopyDirection.TO_HOST)
    assert ends(build.build(), HostStar(2)) == [US]


def test_a_copy_takes_the_latency_of_its_route_and_its_bytes_of_the_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At half a ps a byte: 7 + 500 of 1,000 bytes."""
    monkeypatch.setattr(host_copies, "per_byte", lambda route, links: 0.5)
    monkeypatch.setattr(host_copies, "coupled", lambda routes, sizes, idle, links: (sizes, idle))
    none: Any = None
    found: Any = host_copies.copy_phase(Route((0,), (1.0,), (0,), 7), 1000, none)
    assert found == ([1000], 507)


@pytest.mark.parametrize(
    ("size", "parts"),
    [(0, 1), (1, 1), (1 << 18, 1), ((1 << 18) + 1, 2), (1 << 22, 16), (9 << 20, 16)],
)
def test_a_copy_goes_in_parts_of_a_quarter_of_a_mib_sixteen_at_most(size: int, parts: int) -> None:
    """Two over one link take turns by part: the first ends one part before the second."""
    build = GraphBuilder()
    lane = build.lane(0)
    for stream in ("one", "other"):
        build.host_copy(lane, size, way=CopyDirection.TO_HOST, stream=stream)
    both = size * 2000  # ps at 1 GB/s
    first, last = ends(build.build(), HostStar(2), "steps")
    assert first == US + round(both - both / 2 / parts)
    assert last == US + both
