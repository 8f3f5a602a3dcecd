"""Channels that share links: what each takes alone and together, by hand."""

from __future__ import annotations

import numpy as np
from helpers.star import US, Star

from commsim.cluster import Route
from commsim.libraries.ideal.shared_links import Spans, side_by_side
from commsim.libraries.plan import PlanPart, PlanPhase, RoutedProgram
from commsim.libraries.routing import Router


def phase(idle: int, **load: float) -> PlanPhase:
    """Return a phase with so many bytes on links a, b, c."""
    link = np.array(["abc".index(name) for name in load])
    return PlanPhase(idle, link, np.array(list(load.values())), np.ones(len(load)))


def part(*phases: PlanPhase) -> PlanPart:
    idle = sum(each.idle for each in phases)
    return PlanPart(phases, np.array([0, 7, 0, idle]), np.array([-1, 0, 10, idle]))


CAPACITY = np.array([1e12, 2e12, 1e12])  # a byte takes 1 ps on a and c, half of one on b


def spans(**ways: tuple[float, float]) -> Spans:
    """Return the ways to and from links a, b, c that a part uses."""
    before, after = np.full((2, 3), np.inf)
    for name, (first, last) in ways.items():
        at = "abc".index(name)
        before[at], after[at] = first, last
    return Spans(before, after)


def test_parts_take_the_busiest_link_of_all_and_the_ways_to_it_and_from_it() -> None:
    first = part(phase(40, a=30.0, b=20.0), phase(60, a=10.0))
    other = part(phase(45, a=40.0))
    apart = part(phase(25, c=20.0))
    ways = [spans(a=(5, 9), b=(0, 90)), spans(a=(30, 5)), spans(c=(70, 70))]
    one, two, three = side_by_side([first, other, apart], CAPACITY, ways.__getitem__)
    # link a has 80 bytes in all, the first of them after 5 ps, and the last need 5 more
    assert (one.idle, two.idle) == (100, 90)
    assert one is first
    assert two.phases[0].load.tolist() == [40.0]
    assert three is apart
    ways[0] = spans(a=(30, 9))
    longer, two, _ = side_by_side([first, other, apart], CAPACITY, ways.__getitem__)
    assert [each.idle for each in longer.phases] == [46, 69]
    assert (longer.joins.tolist(), longer.leaves.tolist()) == ([0, 9, 0, 115], [-1, 0, 12, 115])
    assert two.idle == 115


def test_of_the_links_that_are_shared_the_slowest_counts() -> None:
    parts = [part(phase(40, a=30.0, b=10.0)), part(phase(50, a=30.0, b=10.0))]
    ways = spans(a=(5, 5), b=(5, 5))
    found = side_by_side(parts, CAPACITY, lambda _: ways)
    assert [each.idle for each in found] == [70, 70]  # a; b is done after 20


def test_members_stay_within_a_part_that_is_stretched() -> None:
    """29 / 7 of 7 is more than 29 in floating point; those who take no part stay out."""
    short = PlanPart((phase(7, a=7.0),), np.array([0, 0, 7]), np.array([-1, 3, 7]))
    longer, _ = side_by_side([short, part(phase(22, a=22.0))], CAPACITY, lambda _: spans(a=(0, 0)))
    assert longer.idle == 29
    assert (longer.joins.tolist(), longer.leaves.tolist()) == ([0, 0, 29], [-1, 13, 29])


def test_links_of_others_do_not_count() -> None:
    """B carries the bytes of the second part alone, A those of the first: nobody is asked."""
    first, other = part(phase(10, a=10.0)), part(phase(50, b=100.0))
    assert side_by_side([first, other], CAPACITY, [].__getitem__) == [first, other]


def test_the_ways_to_and_from_the_links_of_a_chain() -> None:
    """0 sends to 1, then 1 to 2: four links of a microsecond each."""
    cluster = Star(4)
    router, none = Router(cluster), np.zeros(2)
    chain = RoutedProgram(
        np.array([0, 1]), np.array([1, 2]), none, np.array([0, 1]),
        (router.route(0, 1), router.route(1, 2)), np.array([0, 0, 1]), np.array([0]),
    )  # fmt: skip
    found = Spans.of(chain, cluster.links)
    way = [0, 3, 2, 5]  # out of 0, into 1, out of 1, into 2
    assert found.before[way].tolist() == [0, US, 2 * US, 3 * US]
    assert found.after[way].tolist() == [4 * US, 3 * US, 2 * US, US]
    others = np.setdiff1d(np.arange(8), way)
    assert np.isinf(found.before[others]).all()
    assert np.isinf(found.after[others]).all()


def test_of_the_ways_over_a_link_the_shortest_count() -> None:
    """0 sends to 1, and 2 to 0, which sends to 1 again: late to get there, with nothing behind."""
    cluster = Star(3)
    router, none = Router(cluster), np.zeros(4)
    sends = RoutedProgram(
        np.array([0, 1, 2, 0]), np.array([1, 2, 0, 1]), none, np.array([0, 1, 2, 0]),
        (router.route(0, 1), router.route(1, 2), router.route(2, 0)),
        np.array([0, 0, 1, 2, 3]), np.array([0, 1, 2]),
    )  # fmt: skip
    found = Spans.of(sends, cluster.links)
    assert (found.before[0], found.after[0]) == (0, 2 * US)
    assert (found.before[2], found.after[2]) == (2 * US, 6 * US)


def test_after_a_link_comes_the_longest_of_what_waits_for_it() -> None:
    """0 sends to 1, which sends to 2, which sends to 4, and to 3, which sends to nobody."""
    cluster = Star(5)
    router, none = Router(cluster), np.zeros(4)
    sends = RoutedProgram(
        np.array([0, 1, 1, 2]), np.array([1, 2, 3, 4]), none, np.array([0, 1, 2, 3]),
        (router.route(0, 1), router.route(1, 2), router.route(1, 3), router.route(2, 4)),
        np.array([0, 0, 1, 2, 3]), np.array([0, 0, 1]),
    )  # fmt: skip
    assert Spans.of(sends, cluster.links).after[0] == 6 * US


def test_of_parallel_links_the_slowest_is_waited_for() -> None:
    """Links 0 and 1 share the first hop of a route, and link 2 comes behind them."""
    cluster = Star(2, latency=[3 * US, US, 2 * US, US])
    route = Route((0, 1, 2), (0.5, 0.5, 1.0), (0, 0, 1), 5 * US)
    one, none = np.zeros(1, np.int64), np.zeros(0, np.int64)
    sent = RoutedProgram(one, one + 1, np.zeros(1), one, (route,), np.zeros(2, np.int64), none)
    found = Spans.of(sent, cluster.links)
    assert found.before[:3].tolist() == [0, 0, 3 * US]
    assert found.after[:3].tolist() == [5 * US, 5 * US, 2 * US]


def test_links_of_a_ring_are_busy_from_the_first_step_to_the_last() -> None:
    ring = np.array([0, 2, 3])
    found = Spans.of_ring(Router(Star(4)).columns(ring, np.roll(ring, -1)), 8)
    none = np.inf  # nobody sends to GPU 1
    assert found.before.tolist() == [0, 0, none, none, 0, 0, 0, 0]
    assert found.after.tolist() == [2 * US, 2 * US, none, none, 2 * US, 2 * US, 2 * US, 2 * US]
