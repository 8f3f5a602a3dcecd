"""What a program that is laid onto routes does to links: phases, joins and leaves, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.cluster import NOWHERE, Links, Route
from commsim.libraries.expansion.expand import (
    busiest,
    coupled,
    part_of,
    per_byte,
    split_by_kind,
    whole,
)
from commsim.libraries.plan import PlanPart, RoutedProgram

NS = 1000
KINDS = ("nvlink", "nvlink", "network", "nvlink")


def links(*, latency: int = 0) -> Links:
    """Return links a, b (1 TB/s, so a byte is 1 ps), c (0.5) and d (1), the third a network."""
    speed = np.array([1e12, 1e12, 0.5e12, 1e12])
    return Links(
        ("a", "b", "c", "d"), KINDS, ("",) * 4, speed, np.ones(4), speed,
        np.full(4, latency, np.int64), ("",) * 4, ("",) * 4,
    )  # fmt: skip


def route(*way: int, latency: int = 0) -> Route:
    return Route(way, (1.0,) * len(way), tuple(range(len(way))), latency * len(way))


def messages(
    ends: list[tuple[int, int]], size: list[float], routes: list[Route], needs: list[list[int]]
) -> RoutedProgram:
    """Return messages that each have a route of their own."""
    source, target = np.array(ends).T
    ptr = np.concatenate(([0], np.cumsum([len(some) for some in needs])))
    dep = np.array([one for some in needs for one in some], np.int64)
    return RoutedProgram(
        source, target, np.array(size), np.arange(len(ends)), tuple(routes), ptr, dep
    )


def relay(second: list[int], *, size: tuple[float, float] = (1000.0, 3000.0)) -> RoutedProgram:
    """Return a message from 0 to 1 over a, and one from 1 to 2 over b."""
    return messages(
        [(0, 1), (1, 2)], list(size), [route(0, latency=NS), route(1, latency=NS)], [[], second]
    )


def phased(program: RoutedProgram, *, together: bool = False) -> PlanPart:
    return part_of(program, np.arange(2), 4, links(latency=NS), together=together)


def test_phases_follow_one_another() -> None:
    """A nanosecond of wire and one of latency, then three and one; member 3 has no part."""
    part = phased(relay([0]))
    assert [flow.idle for flow in part.phases] == [2 * NS, 4 * NS]
    assert [flow.link.tolist() for flow in part.phases] == [[0], [1]]
    assert [flow.load.tolist() for flow in part.phases] == [[1000.0], [3000.0]]
    assert part.joins.tolist() == [0, 0, 2 * NS, 0]
    assert part.leaves.tolist() == [NS, 5 * NS, 6 * NS, -1]
    all_there = phased(relay([0]), together=True)
    assert all_there.joins.tolist() == [0, 0, 0, 0]
    assert all_there.leaves.tolist() == part.leaves.tolist()


def test_phases_that_overlap_are_one_flow() -> None:
    part = phased(relay([]))  # the second takes 4 ns from the start: 2 after the first, for 3 ns
    (flow,) = part.phases
    assert (flow.idle, flow.link.tolist(), flow.load.tolist()) == (4 * NS, [0, 1], [1000.0, 3000.0])
    assert part.leaves.tolist() == [NS, 3 * NS, 4 * NS, -1]
    assert part.joins.tolist() == [0, 0, 0, 0]
    (flow,) = phased(relay([], size=(1000.0, 1000.0))).phases  # both end at once
    assert flow.idle == 2 * NS


@pytest.mark.parametrize("size", [(0.0, 0.0), (1000.0, 0.0)])
def test_a_phase_takes_some_time(size: tuple[float, float]) -> None:
    """Two empty messages arrive at once: no phase follows the other."""
    part = phased(relay([], size=size))
    assert len(part.phases) == 1
    assert part.idle == (2 * NS if size[0] else NS)


def test_a_phase_may_be_as_short_as_its_bytes() -> None:
    """Without latency the second message takes exactly what its link needs for it."""
    program = messages([(0, 1), (1, 2)], [1000.0, 3000.0], [route(0), route(1)], [[], [0]])
    part = part_of(program, np.arange(2), 3, links(), together=False)
    assert [flow.idle for flow in part.phases] == [NS, 3 * NS]


@pytest.mark.parametrize(("picoseconds", "found"), [
    (10.0, 10), (10.0009, 10), (10.002, 11), (9.5, 10), (0.0, 0), (0.0005, 0),
    (1e13 + 0.5, 10**13), (1e15 + 200, 10**15 + 100),
])  # fmt: skip
def test_whole_picoseconds_are_rounded_up_but_for_noise(picoseconds: float, found: int) -> None:
    assert whole(picoseconds) == found


def test_flows_add_bytes_and_connections_link_by_link() -> None:
    split = Route((0, 1, 2), (1.0, 0.25, 0.75), (0, 1, 1), 0)
    flow = coupled([split, route(2, 0), route(3)], [100.0, 10.0, 0.0], 7, links())
    assert flow.idle == 7
    assert flow.link.tolist() == [0, 1, 2]  # a token of no bytes uses none
    assert flow.load.tolist() == [110.0, 25.0, 85.0]
    assert flow.conns.tolist() == [2.0, 0.25, 1.75]


def test_the_narrowest_hop_and_the_busiest_link() -> None:
    split = Route((0, 1, 2), (1.0, 0.25, 0.75), (0, 1, 1), 0)
    assert per_byte(split, links()) == pytest.approx(1.5)  # 0.75 of a byte at 0.5 TB/s
    assert per_byte(route(0, 1), links()) == pytest.approx(1.0)
    assert per_byte(NOWHERE, links()) == 0.0
    program = messages(
        [(0, 1), (1, 2), (2, 0)], [100.0, 30.0, 10.0], [route(0), route(0, 2), route(2)], [[]] * 3
    )
    assert busiest(program, links()) == pytest.approx(130.0)


def near_and_far(far: Route, size: float = 1000.0) -> tuple[PlanPart, ...]:
    """Return the parts of a message over a and one of the same size over `far`."""
    program = messages([(0, 1), (0, 2)], [1000.0, size], [route(0), far], [[], []])
    return split_by_kind(program, 4, links())


def test_what_stays_near_ends_before_what_crosses_the_network() -> None:
    near, far = near_and_far(route(1, 2))
    assert (near.idle, near.phases[0].link.tolist()) == (NS, [0])
    assert (far.idle, far.phases[0].link.tolist()) == (2 * NS, [1, 2])
    assert near.leaves.tolist() == [NS, NS, -1, -1]
    assert far.leaves.tolist() == [2 * NS, -1, 2 * NS, -1]
    assert near.joins.tolist() == far.joins.tolist() == [0] * 4


def test_kinds_that_fill_a_link_together_are_one_part() -> None:
    (part,) = near_and_far(route(0, 2))  # a has both: 2 ns, in which neither has it alone
    assert part.idle == 3 * NS
    assert part.phases[0].link.tolist() == [0, 2]
    assert part.leaves.tolist() == [3 * NS, NS, 3 * NS, -1]


def test_a_single_kind_is_one_part() -> None:
    assert len(near_and_far(route(1))) == 1
    program = messages([(0, 1), (0, 2)], [1000.0, 1000.0], [route(2), route(1, 2)], [[], []])
    assert len(split_by_kind(program, 3, links())) == 1
