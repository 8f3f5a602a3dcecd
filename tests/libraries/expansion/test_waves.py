"""A program alone on its links, wave by wave, is what it is message by message."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.counting import python_calls
from helpers.share import share
from msgspec.structs import replace

from commsim.cluster import Cluster, Links
from commsim.collectives import program
from commsim.libraries.expansion import (
    LinkService,
    RunningProgram,
    Traffic,
    hops_of,
    lay,
    waves,
    waves_of,
)
from commsim.libraries.expansion.waves import _Log, _one_each
from commsim.libraries.ideal.rings import ring_messages
from commsim.libraries.plan import Delays, RoutedProgram
from commsim.libraries.routing import Router

NODES = 12
START = 1e9


def nodes(count: int = NODES) -> Cluster:
    """Nodes of one GPU and one NIC: each has a link to the switch and one from it."""
    return Cluster.preset(
        "dgx-h100", nodes=count,
        overrides={"gpu": {"count": 1}, "nic": {"count": 1}}, fabric={"kind": "single_switch"},
    )  # fmt: skip


def random_program(seed: int, cluster: Cluster) -> RoutedProgram:
    """Return messages of a random permutation that wait for earlier ones, with random delays."""
    rng = np.random.default_rng(seed)
    peer = np.roll(rng.permutation(NODES), 1)
    ends = {int(a): int(b) for a, b in zip(peer, np.roll(peer, -1), strict=True)}
    router, rounds = Router(cluster), int(rng.integers(1, 12))
    source = np.concatenate([rng.permutation(NODES) for _ in range(rounds)])
    count, equal = len(source), rng.random() < 0.5
    needs = [
        rng.choice(NODES * (at // NODES), int(rng.integers(0, 3)), replace=False)
        if at >= NODES else np.zeros(0, np.int64)
        for at in range(count)
    ]  # fmt: skip
    dep = np.concatenate(needs).astype(np.int64)
    size = np.full(count, 1e6) if equal else np.exp(rng.normal(13, 1, count))
    pace = np.zeros(count) if rng.random() < 0.5 else np.full(count, rng.uniform(0, 1e8))
    delays = Delays(
        rng.uniform(0, 1e7, count), rng.uniform(0, 1e7, count), rng.uniform(0, 1e6, len(dep)), pace
    )
    return RoutedProgram(
        source, np.array([ends[a] for a in source.tolist()]), size, source,
        tuple(router.route(a, ends[a]) for a in range(NODES)),
        np.concatenate(([0], np.cumsum([len(some) for some in needs]))).astype(np.int64),
        dep, delays if rng.random() < 0.8 else None,
    )  # fmt: skip


def one_by_one(messages: RoutedProgram, links: Links) -> tuple[np.ndarray, list[LinkService]]:
    log: list[LinkService] = []
    traffic, done = Traffic(log), np.zeros(len(messages.size))
    hops = [hops_of(route, links) for route in messages.routes]
    traffic.add(RunningProgram(messages, hops, ()), START)
    for when, _, message in traffic.advance(float("inf")):
        done[message] = when
    return done, log


def taken(links: np.ndarray, busy: np.ndarray, count: int) -> np.ndarray:
    return np.bincount(links, busy, count)


@pytest.mark.parametrize("seeds", share([range(80), range(80, 200)], 1 / 2, seed=1), ids=str)
def test_random_programs_arrive_when_message_by_message_they_do(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waves, "_LEAST", 1)
    cluster, known = nodes(), 0
    for seed in seeds:
        messages = random_program(seed, cluster)
        hops = [hops_of(route, cluster.links) for route in messages.routes]
        found = waves_of(messages, hops, START)
        if found is None:
            continue
        known += 1
        expected, log = one_by_one(messages, cluster.links)
        assert found.arrive == pytest.approx(expected, rel=1e-12), seed
        links, begin, end, share, _ = (np.array(column) for column in zip(*log, strict=True))
        served = found.services
        assert len(served.link) == len(log)
        assert taken(
            served.link, served.share * (served.end - served.begin), len(cluster.links)
        ) == pytest.approx(taken(links, share * (end - begin), len(cluster.links)), rel=1e-9)
    assert known > 0.6 * len(
        seeds
    )  # in others a message trickles in behind another, or waits for a later one


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_ring_without_its_chunks_sends_what_its_program_does(op: str) -> None:
    cluster, n = nodes(), NODES
    order, router = [3, 1, 2, 0, *range(4, n)], Router(cluster)
    laid = lay(program(op, "ring", n), 1e8, order, range(n), router)
    rounds = 2 if op == "all_reduce" else 1
    made = ring_messages(order, range(n), 1e8, rounds, router)
    assert len(made.size) == len(laid.size)
    for name in ("source", "target", "size"):
        ours, theirs = (
            np.sort(getattr(one, name).reshape(-1, n), axis=1) for one in (made, laid)
        )  # in each step, whoever comes first
        assert ours == pytest.approx(theirs)
    ours, theirs = (np.sort(one_by_one(one, cluster.links)[0]) for one in (made, laid))
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_link_use_of_very_many_messages_is_kept_in_few_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = nodes(40)
    messages = ring_messages(range(40), range(40), 1e8, 2, Router(cluster))
    hops = [hops_of(route, cluster.links) for route in messages.routes]
    each = waves_of(messages, hops, START)
    monkeypatch.setattr(waves, "_MOST_SERVICES", 4000)
    few = waves_of(messages, hops, START)
    assert each is not None
    assert few is not None
    assert few.arrive.tolist() == each.arrive.tolist()
    assert len(few.services.link) <= 4000 + len(cluster.links) < len(each.services.link)
    (all_of, some_of) = (
        taken(s.link, s.share * (s.end - s.begin), len(cluster.links))
        for s in (each.services, few.services)
    )
    assert some_of == pytest.approx(all_of, rel=1e-9)
    assert (few.services.share <= 1 + 1e-12).all()


def test_what_waves_cannot_tell_is_left_to_traffic() -> None:
    cluster = nodes(40)
    messages = ring_messages(range(40), range(40), 1e8, 2, Router(cluster))
    hops = [hops_of(route, cluster.links) for route in messages.routes]
    assert waves_of(messages, hops, 0.0) is not None
    assert waves_of(messages, [hops[0], *hops[:-1]], 0.0) is None  # two share links
    some = messages.size.copy()
    some[5] = 0.0
    assert waves_of(replace(messages, size=some), hops, 0.0) is None
    later = messages.dep.copy()
    for needed in (len(messages.size) - 1, 40):  # message 40 is the first that waits for any
        later[0] = needed
        assert waves_of(replace(messages, dep=later), hops, 0.0) is None
    other = messages.target.copy()
    other[0] = 7  # one route for two connections
    assert waves_of(replace(messages, target=other), hops, 0.0) is None


def test_the_work_grows_with_the_waves_not_with_the_messages() -> None:
    def calls(count: int) -> int:
        cluster = nodes(count)
        messages = ring_messages(range(count), range(count), 1e8, 1, Router(cluster))
        messages = replace(messages, size=np.full(len(messages.size), 1e6))
        hops = [hops_of(route, cluster.links) for route in messages.routes]
        return python_calls(lambda: waves_of(messages, hops, 0.0))

    assert calls(128) < 2.5 * calls(64)  # twice the waves, four times the messages


@pytest.mark.parametrize(("source", "route", "each"), [
    ((0, 0), (0, 0), True), ((0, 1), (0, 1), True), ((0, 0), (0, 1), False),
    ((0, 1), (0, 0), False),
])  # fmt: skip
def test_routes_that_nothing_uses_may_be_any(
    source: tuple[int, ...], route: tuple[int, ...], each: bool
) -> None:
    """Two messages to member 2, and two routes for nothing."""
    router, none = Router(nodes(4)), np.zeros(0, np.int64)
    routes = tuple(router.route(a, b) for a, b in ((0, 2), (1, 2), (3, 1), (3, 0)))
    made = RoutedProgram(
        np.array(source), np.array([2, 2]), np.ones(2), np.array(route), routes,
        np.zeros(3, np.int64), none,
    )  # fmt: skip
    assert _one_each(made) is each


def test_what_links_serve_is_noted_every_so_many_waves() -> None:
    """Two links busy for half of a second a wave: of five waves, pieces of two, two and one."""
    log, all_lanes = _Log(np.array([[7, 9]]), 2), slice(None)
    for wave in range(5):
        begin = np.full(2, float(wave))
        log.add(all_lanes, 0, begin, begin + 0.5, np.ones(2))
        log.next_wave()
    found = log.services()
    rows = zip(*(getattr(found, name).tolist() for name in found.__struct_fields__), strict=True)
    assert list(rows) == [
        (link, begin, end, share)
        for begin, end, share in ((0.0, 1.5, 2 / 3), (2.0, 3.5, 2 / 3), (4.0, 4.5, 1.0))
        for link in (7, 9)
    ]
