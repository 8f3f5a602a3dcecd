"""Messages that trickle into fast links: alone, and beside others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.cluster import Links, Route
from commsim.libraries.expansion.traffic import Program, Traffic, arrivals, hops_of
from commsim.libraries.plan import Messages

US = 1e6


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


def independent(routes: list[Route], sizes: list[float]) -> Messages:
    """Return messages of distinct pairs that wait for nothing."""
    count = len(routes)
    return Messages(
        np.arange(count) * 2, np.arange(count) * 2 + 1, np.array(sizes), np.arange(count),
        tuple(routes), np.zeros(count + 1, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip


@settings(max_examples=100)
@given(st.lists(st.floats(1e8, 1e11), min_size=1, max_size=6), st.floats(0, 1e8))
def test_alone_a_message_takes_its_latencies_and_its_narrowest_link(
    speeds: list[float], size: float
) -> None:
    every = links(*speeds)
    way = route(*range(len(speeds)))
    expected = len(speeds) * US + size / min(speeds) * 1e12
    assert arrivals(independent([way], [size]), every)[0] == pytest.approx(expected, rel=1e-9)


def test_what_trickles_leaves_room_for_others() -> None:
    """A takes 10 ms at 1 GB/s; the shared link needs 1 ms for it, and then serves B."""
    every = links(1e9, 1e10, 1e10)
    a, b = route(0, 1), route(2, 1)
    done = arrivals(independent([a, b], [1e7, 1e7]), every)
    assert done[0] == pytest.approx(10_000 * US + 2 * US)
    assert done[1] == pytest.approx(2_000 * US + 2 * US)


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


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.permutations(range(4)), st.integers(1, 4), st.floats(1, 1e7)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.floats(1e8, 1e10), min_size=4, max_size=4),
)
def test_no_link_serves_two_at_once_and_nobody_is_faster_than_alone(
    drawn: list[tuple[list[int], int, float]], speeds: list[float]
) -> None:
    every = links(*speeds)
    routes = [route(*order[:length]) for order, length, _ in drawn]
    messages = independent(routes, [size for _, _, size in drawn])
    log: list[tuple[int, float, float, int]] = []
    traffic = Traffic(log)
    traffic.add(Program(messages, [hops_of(r, every) for r in routes], ()), 0.0)
    done = {message: when for when, _, message in traffic.advance(float("inf"))}
    for link in range(4):
        busy = sorted((start, end) for at, start, end, _ in log if at == link)
        for (_, end), (start, _) in zip(busy, busy[1:], strict=False):
            assert start >= end * (1 - 1e-12)
    for message, (order, length, size) in enumerate(drawn):
        slowest = min(speeds[link] for link in order[:length])
        assert done[message] >= (length * US + size / slowest * 1e12) * (1 - 1e-9)
