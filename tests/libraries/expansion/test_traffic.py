"""Messages over FIFO links: what software adds to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.star import US, Star

from commsim.cluster import NOWHERE, Cluster, Links, Route
from commsim.libraries.expansion.traffic import (
    LinkService,
    RunningProgram,
    Traffic,
    arrivals,
    hops_of,
)
from commsim.libraries.plan import Delays, RoutedProgram
from commsim.libraries.routing import Router


def test_a_sender_hands_out_at_its_own_pace() -> None:
    """Two messages of one connection, each 5 ns of the sender's work and 1 ns of wire."""
    cluster = Cluster.preset("dgx-h100")
    route = cluster.local_route(0, 1)
    assert route is not None
    size = 1e-9 * float(cluster.links.capacity[route.link[0]])
    zeros = np.zeros(2)
    delays = Delays(zeros, zeros, np.zeros(0), np.full(2, 5000.0))
    messages = RoutedProgram(
        np.zeros(2, np.int64), np.ones(2, np.int64), np.full(2, size), np.zeros(2, np.int64),
        (route,), np.zeros(3, np.int64), np.zeros(0, np.int64), delays,
    )  # fmt: skip
    done = arrivals(messages, cluster.links)
    assert done.tolist() == pytest.approx([5000 + route.latency, 10000 + route.latency])


def test_connections_over_one_link_take_turns() -> None:
    """0 has three messages for 1 and two for 2, each a microsecond of its link."""
    cluster = Star(3, 1e12)
    router = Router(cluster)
    target = np.array([1, 1, 1, 2, 2])
    messages = RoutedProgram(
        np.zeros(5, np.int64), target, np.full(5, 1e6), target - 1,
        (router.route(0, 1), router.route(0, 2)), np.zeros(6, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip
    done = arrivals(messages, cluster.links) - 2 * US
    assert done == pytest.approx(np.array([1, 3, 5, 2, 4]) * US)


def test_messages_of_a_rank_to_itself_follow_each_other() -> None:
    """Over no link they arrive at once, as long as the sender needs for each after the other."""
    none = np.zeros(3)
    delays = Delays(none, none, np.zeros(0), np.array([0.0, 5.0, 0.0]))
    messages = RoutedProgram(
        np.zeros(3, np.int64), np.zeros(3, np.int64), none, np.zeros(3, np.int64), (NOWHERE,),
        np.zeros(4, np.int64), np.zeros(0, np.int64), delays,
    )  # fmt: skip
    assert arrivals(messages, Star(2).links).tolist() == [0, 5, 5]


def crossing(seed: int) -> tuple[RoutedProgram, Cluster]:
    """Return random messages among 16 GPUs that wait for each other and meet on links."""
    rng = np.random.default_rng(seed)
    cluster = Cluster.preset("dgx-a100", nodes=2)
    router, count = Router(cluster), 200
    ends = np.array([rng.choice(16, 2, replace=False) for _ in range(count)])
    pairs, route = np.unique(ends, axis=0, return_inverse=True)
    needs = [rng.choice(at, min(at, int(rng.integers(0, 3))), replace=False) for at in range(count)]
    size = np.where(rng.random(count) < 0.1, 0.0, np.exp(rng.normal(13, 2, count)))
    none = np.zeros(count)
    dep = np.concatenate(needs).astype(np.int64)
    pace = np.where(rng.random(count) < 0.5, rng.uniform(0, 1e7, count), 0.0)
    return RoutedProgram(
        ends[:, 0], ends[:, 1], size, route.reshape(-1),
        tuple(router.route(a, b) for a, b in pairs.tolist()),
        np.concatenate(([0], np.cumsum([len(some) for some in needs]))), dep,
        Delays(none, none, np.zeros(len(dep)), pace),
    ), cluster  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_a_free_link_serves_a_message_as_any_link_would(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit: when messages arrive, and what each link has served when."""
    messages, cluster = crossing(seed)
    hops = [hops_of(route, cluster.links) for route in messages.routes]

    def run() -> tuple[list[tuple[float, int, int]], list[LinkService]]:
        log: list[LinkService] = []
        traffic = Traffic(log)
        traffic.add(RunningProgram(messages, hops, ()), 0.0)
        return traffic.advance(float("inf")), log

    alone, serve = 0, Traffic._serve_alone

    def counted(*args: Any) -> Any:
        nonlocal alone
        found = serve(*args)
        alone += found is not None
        return found

    monkeypatch.setattr(Traffic, "_serve_alone", counted)
    found = run()
    assert 0 < alone < len(found[1])
    monkeypatch.setattr(Traffic, "_serve_alone", lambda *_: None)
    assert found == run()


def two_at_once() -> tuple[Traffic, list[LinkService]]:
    """Return a link of 1 TB/s and 1 us with messages of a megabyte from 0 to 1 and from 2 to 3."""
    speed = np.array([1e12])
    one = Links(
        ("wire",), ("network",), ("",), speed, np.ones(1), speed, np.array([10**6]), ("",), ("",)
    )
    way = Route((0,), (1.0,), (0,), 10**6)
    messages = RoutedProgram(
        np.array([0, 2]), np.array([1, 3]), np.full(2, 1e6), np.zeros(2, np.int64), (way,),
        np.zeros(3, np.int64), np.zeros(0, np.int64),
        Delays(np.array([5.0, 7.0]), np.array([0.0, 11.0]), np.zeros(0)),
    )  # fmt: skip
    log: list[LinkService] = []
    traffic = Traffic(log)
    traffic.add(RunningProgram(messages, [hops_of(way, one)], absent=[3]), 100.0)
    return traffic, log


def test_time_goes_on_up_to_and_including_the_moment_asked_for() -> None:
    traffic, log = two_at_once()
    arrives = 105 + 2 * 10**6
    assert traffic.next_time() == 105
    assert traffic.advance(104) == []
    assert log == []
    assert traffic.advance(105) == []
    assert log == [(0, 105.0, 105.0 + 10**6, 1.0, 0)]
    assert traffic.advance(arrives - 1) == []
    assert traffic.next_time() == arrives
    assert traffic.advance(arrives) == [(arrives, 0, 0)]
    assert traffic.next_time() == float("inf")


def test_a_message_to_an_absent_member_waits_for_it_and_its_hold() -> None:
    traffic, log = two_at_once()
    traffic.advance(float("inf"))
    traffic.join(0, 3, 5 * 10**6)
    begins = 5 * 10**6 + 7
    assert traffic.next_time() == begins
    # a microsecond of wire, one of latency, then what software adds
    assert traffic.advance(float("inf")) == [(begins + 2 * 10**6 + 11, 0, 1)]
    assert log[1] == (0, begins, begins + 10**6, 1.0, 0)


def test_programs_have_numbers_of_their_own() -> None:
    traffic, _ = two_at_once()
    other = RunningProgram(
        RoutedProgram(
            np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(1), np.zeros(1, np.int64),
            (NOWHERE,), np.zeros(2, np.int64), np.zeros(0, np.int64),
        ), [()], (),
    )  # fmt: skip
    assert traffic.add(other, 50.0) == 1
    assert traffic.advance(60) == [(50.0, 1, 0)]
