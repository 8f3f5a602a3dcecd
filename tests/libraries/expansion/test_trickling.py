"""Messages that trickle into fast links: alone, and beside others."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Links, Route
from commsim.libraries.expansion.traffic import (
    LinkService,
    RunningProgram,
    Traffic,
    arrivals,
    hops_of,
)
from commsim.libraries.plan import RoutedProgram

US = 10**6


def links(*speeds: float) -> Links:
    """Return links of some speeds in bytes/s, 1 us each."""
    count = len(speeds)
    capacity = np.array(speeds)
    return Links(
        names=tuple(f"link{i}" for i in range(count)),
        kinds=("network",) * count,
        media=("",) * count,
        bandwidth=capacity,
        efficiency=np.ones(count),
        capacity=capacity,
        latency=np.full(count, 10**6),
        source=("",) * count,
        target=("",) * count,
    )


def route(*path: int) -> Route:
    return Route(path, (1.0,) * len(path), tuple(range(len(path))), len(path) * 10**6)


def independent(routes: list[Route], sizes: list[float]) -> RoutedProgram:
    """Return messages of distinct pairs that wait for nothing."""
    count = len(routes)
    return RoutedProgram(
        np.arange(count) * 2, np.arange(count) * 2 + 1, np.array(sizes), np.arange(count),
        tuple(routes), np.zeros(count + 1, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip


@examples(100)
@given(st.lists(st.floats(1e8, 1e11), min_size=1, max_size=6), st.floats(0, 1e8))
def test_alone_a_message_takes_its_latencies_and_its_narrowest_link(
    speeds: list[float], size: float
) -> None:
    every = links(*speeds)
    way = route(*range(len(speeds)))
    expected = len(speeds) * US + size / min(speeds) * 1e12
    assert arrivals(independent([way], [size]), every)[0] == pytest.approx(expected, rel=1e-9)


def test_what_trickles_leaves_room_for_others() -> None:
    """A trickles in at 1 GB/s for 10 ms; B has the other 9 GB/s of the shared link at once."""
    every = links(1e9, 1e10, 1e10)
    a, b = route(0, 1), route(2, 1)
    done = arrivals(independent([a, b], [1e7, 1e7]), every)
    assert done[0] == pytest.approx(10_000 * US + 2 * US)
    assert done[1] == pytest.approx(10_000 / 9 * US + 2 * US)


def test_a_link_is_never_idle_while_something_waits_for_it() -> None:
    """B needs the shared link for 9.5 ms, A for one: both are through after 10.5 ms."""
    every = links(1e9, 1e10, 1e10)
    a, b = route(0, 1), route(2, 1)
    done = arrivals(independent([a, b], [1e7, 9.5e7]), every)
    assert done[0] == pytest.approx(10_000 * US + 2 * US)
    assert done[1] == pytest.approx(10_500 * US + 2 * US)


def test_equals_queue_in_order() -> None:
    every = links(1e9)
    done = arrivals(independent([route(0)] * 3, [1e6, 1e6, 1e6]), every)
    assert done.tolist() == pytest.approx([1000 * US * k + US for k in (1, 2, 3)])


@pytest.mark.parametrize("count", [2, 3, 5, 16, 24])
def test_a_permutation_through_a_trunk_of_the_same_capacity_does_not_queue(count: int) -> None:
    """Senders of 1 GB/s each share a trunk of `count` GB/s, in two parallel links."""
    every = links(*[1e9] * count, count * 1e9 / 3, count * 2e9 / 3, *[1e9] * count)
    ways = [
        Route((i, count, count + 1, count + 2 + i), (1.0, 1 / 3, 2 / 3, 1.0), (0, 1, 1, 2), 3 * US)
        for i in range(count)
    ]
    done = arrivals(independent(ways, [1e6] * count), every)
    assert done == pytest.approx(np.full(count, 1000 * US + 3 * US), rel=1e-9)


@pytest.mark.parametrize(("senders", "trunk"), [(3, 2.5), (4, 1.0), (7, 3.0)])
def test_an_oversubscribed_trunk_is_full_until_all_has_passed(senders: int, trunk: float) -> None:
    every = links(*[1e9] * senders, trunk * 1e9)
    done = arrivals(
        independent([route(i, senders) for i in range(senders)], [1e6] * senders), every
    )
    assert done.max() == pytest.approx(senders / trunk * 1000 * US + 2 * US, rel=1e-9)


Drawn = list[tuple[list[int], int, float]]
MESSAGES = st.lists(
    st.tuples(st.permutations(range(4)), st.integers(1, 4), st.floats(1, 1e7)),
    min_size=1,
    max_size=12,
)
SPEEDS = st.lists(st.floats(1e8, 1e10), min_size=4, max_size=4)


@examples(60)
@given(MESSAGES, SPEEDS)
def test_no_link_is_over_its_rate_and_nobody_is_faster_than_alone(
    drawn: Drawn, speeds: list[float]
) -> None:
    every = links(*speeds)
    routes = [route(*order[:length]) for order, length, _ in drawn]
    messages = independent(routes, [size for _, _, size in drawn])
    log: list[LinkService] = []
    traffic = Traffic(log)
    traffic.add(RunningProgram(messages, [hops_of(r, every) for r in routes], ()), 0.0)
    done = {message: when for when, _, message in traffic.advance(float("inf"))}
    for link in range(4):
        services = [(begin, end, share) for at, begin, end, share, _ in log if at == link]
        for edge in {begin for begin, _, _ in services}:
            assert sum(share for begin, end, share in services if begin <= edge < end) <= 1 + 1e-6
        served = sum((end - begin) * share for begin, end, share in services)
        through = sum(size for order, length, size in drawn if link in order[:length])
        assert served == pytest.approx(through / speeds[link] * 1e12, rel=1e-6)
    for message, (order, length, size) in enumerate(drawn):
        slowest = min(speeds[link] for link in order[:length])
        assert done[message] >= (length * US + size / slowest * 1e12) * (1 - 1e-9)
