"""The busiest link of transfers, on link use made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.hand_made import link_use, timeline
from msgspec.structs import replace

from commsim.graph import GraphBuilder
from commsim.metrics.bottleneck import bottlenecks, copy_resource, link_resource
from commsim.timeline import LinkUse, Timeline

PS = 10**12
BANDWIDTH = [10.0, 40.0, 100.0, 20.0]
"""Bytes/s of a NIC, an NVLink, a PCIe link and a switch of the network."""
KINDS = ["network", "nvlink", "pcie", "network"]
NAMES = ("node0/nic0->leaf0", "node0/gpu0->nvswitch", "node0/pcie0", "leaf0->spine0")


def use(
    loads: list[dict[int, float]], segments: list[tuple[int, int, int, float]], ops: list[int]
) -> LinkUse:
    """Rates are flows (of one byte per unit of load) per ps."""
    return replace(link_use(BANDWIDTH, loads, segments, ops=ops, kinds=KINDS), names=NAMES)


def two_all_reduces(links: LinkUse) -> Timeline:
    """Two all-reduces of ranks 0 and 1: ops 0 and 1, ops 2 and 3."""
    build = GraphBuilder()
    world = build.group("world", range(2))
    lanes = [build.lane(rank) for rank in range(2)]
    for _ in range(2):
        for lane in lanes:
            build.collective(lane, world, "all_reduce", 8, stream="comm")
    times = [(0, 100), (0, 100), (100, 200), (100, 200)]
    return timeline(build, times, links=links)


def of(made: Timeline, begin: list[int], end: list[int]) -> list[tuple[Any, ...]]:
    found = bottlenecks(made, np.arange(len(begin)), np.array(begin), np.array(end))
    rows = zip(found.link.tolist(), found.used.tolist(), found.other.tolist(), strict=True)
    return [(link, pytest.approx(used), pytest.approx(other)) for link, used, other in rows]


def test_the_fullest_link_of_a_transfer_under_everybodys_traffic() -> None:
    """Flow 0 loads the NIC with 1 and NVLink with 2 bytes, flow 1 NVLink with 3 and PCIe with 1.

    At 4 flows/s the first fills 4 of 10 and 8 of 40 bytes/s, the second at 8 flows/s 24 of 40
    and 8 of 100: together NVLink is at 32 of 40 while both move, between 20 and 60.
    """
    made = two_all_reduces(
        use(
            [{0: 1.0, 1: 2.0}, {1: 3.0, 2: 1.0}],
            [(0, 0, 60, 4 / PS), (1, 20, 160, 8 / PS)],
            [0, 2],
        )
    )
    # the middle of 0 to 60 is 30, that of 20 to 160 is 90, when the first has ended
    assert of(made, [0, 0], [100, 200]) == [(1, 0.8, 0.4), (1, 0.6, 0.08)]
    # cut at 24 its middle is 12, before the second comes; cut to 20 to 40 that is at 30
    assert of(made, [0, 20], [24, 40]) == [(0, 0.4, 0.2), (1, 0.8, 0.08)]
    # nothing moves in a window that ends where the traffic begins
    assert of(made, [60, 160], [100, 200]) == [(-1, 0.0, 0.0), (-1, 0.0, 0.0)]


def test_the_longest_stretch_decides() -> None:
    loads = [{0: 1.0, 1: 1.0}]
    segments = [(0, 0, 10, 10 / PS), (0, 10, 40, 2 / PS), (0, 40, 60, 5 / PS)]
    made = two_all_reduces(use(loads, segments, [0, 0, 0]))
    assert of(made, [0], [100]) == [(0, 0.2, 0.05)]
    assert of(made, [0], [12]) == [(0, 1.0, 0.25)]
    assert of(made, [35], [100]) == [(0, 0.5, 0.125)]


def test_more_than_full_is_full_and_switches_go_with_the_nics() -> None:
    loads = [{0: 1.0, 3: 1.0}]
    made = two_all_reduces(use(loads, [(0, 0, 100, 11 / PS)], [0]))
    # the switch is of the network too, so it is not told as another kind of link
    assert of(made, [0], [100]) == [(0, 1.0, 0.0)]
    narrow = [{0: 1.0, 3: 4.0}]
    made = two_all_reduces(use(narrow, [(0, 0, 100, 2 / PS)], [0]))
    # from a switch on, NICs are another kind
    assert of(made, [0], [100]) == [(3, 0.4, 0.2)]


def test_traffic_of_nobody_is_traffic() -> None:
    loads = [{0: 1.0}, {0: 1.0}]
    made = two_all_reduces(use(loads, [(0, 0, 100, 2 / PS), (1, 0, 100, 5 / PS)], [0, -1]))
    assert of(made, [0, 100], [100, 200]) == [(0, 0.7, 0.0), (-1, 0.0, 0.0)]


def test_equal_links_are_the_first() -> None:
    loads = [{3: 2.0 - 1e-12, 0: 1.0}]
    made = two_all_reduces(use(loads, [(0, 0, 100, 5 / PS)], [0]))
    assert of(made, [0], [100])[0][0] == 0


def test_links_between_switches_are_the_fabric() -> None:
    assert [link_resource(*each) for each in zip(NAMES, KINDS, strict=True)] == [
        "network", "nvlink", "pcie", "fabric",
    ]  # fmt: skip


def test_what_holds_copies_back() -> None:
    """Two copies and a collective: bytes over bandwidth decide, and of copies only."""
    build = GraphBuilder()
    lane = build.lane(0)
    world = build.group("world", range(1))
    build.copy(lane, 10, name="out", size=100)
    build.copy(lane, 10, name="in", size=100)
    build.collective(lane, world, "all_reduce", 8, stream="comm")
    times = [(0, 50), (50, 100), (0, 100)]

    def resource(segments: list[tuple[int, int, int, float]], ops: list[int]) -> str:
        loads = [{2: 1.0}, {1: 1.0}, {0: 1.0}]
        return copy_resource(timeline(build, times, links=use(loads, segments, ops)))

    # 50 ps at 4 over PCIe of 100 bytes/s: 2 s; 10 ps at 7 over NVLink of 40: 1.75 s
    assert resource([(0, 0, 50, 4.0), (1, 50, 60, 7.0), (2, 0, 100, 99.0)], [0, 1, 2]) == "pcie"
    # 20 ps over NVLink: 3.5 s
    assert resource([(0, 0, 50, 4.0), (1, 50, 70, 7.0), (2, 0, 100, 99.0)], [0, 1, 2]) == "nvlink"
    # a fast one of 10 ps moves more than a slow one of 50: 4 s against 2.5 s
    assert resource([(0, 0, 10, 40.0), (1, 10, 60, 2.0)], [0, 1]) == "pcie"
    # what nobody knows and what is no copy does not count
    assert resource([(0, 0, 50, 4.0), (1, 0, 90, 9.0)], [0, -1]) == "pcie"
    assert resource([(2, 0, 100, 99.0)], [2]) == ""
    assert resource([], []) == ""


def test_copies_over_several_links_weigh_bytes_by_progress() -> None:
    """30 bytes a unit on PCIe at 1 for 10 ps are 3 s of 100 bytes/s, 1 on NVLink at 10 is 2.5."""
    build = GraphBuilder()
    lane = build.lane(0)
    build.copy(lane, 10, name="out", size=100)
    build.copy(lane, 10, name="in", size=100)
    segments = [(0, 0, 10, 1.0), (1, 0, 10, 10.0)]
    links = use([{2: 30.0}, {1: 1.0}], segments, [0, 1])
    assert copy_resource(timeline(build, [(0, 10), (0, 10)], links=links)) == "pcie"
    links = use([{2: 24.0}, {1: 1.0}], segments, [0, 1])
    assert copy_resource(timeline(build, [(0, 10), (0, 10)], links=links)) == "nvlink"


def test_each_transfer_meets_what_moves_at_its_own_moment() -> None:
    """Stretches of 0 to 40, 50 to 60 and 70 to 100, read at 20, 55 and 85; and one of a ps at 0."""
    loads = [{0: 1.0}] * 3
    segments = [(0, 0, 40, 2 / PS), (1, 50, 60, 3 / PS), (2, 70, 100, 5 / PS)]
    made = two_all_reduces(use(loads, segments, [0, 0, 2]))
    begin, end = np.array([0, 45, 65, 0]), np.array([45, 65, 100, 1])
    found = bottlenecks(made, np.array([0, 0, 1, 0]), begin, end)
    assert found.link.tolist() == [0, 0, 0, 0]
    assert found.used.tolist() == pytest.approx([0.2, 0.3, 0.5, 0.2])
