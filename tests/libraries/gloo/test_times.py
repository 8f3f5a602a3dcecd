"""Gloo's times on idle links: closed forms, and message by message."""

from __future__ import annotations

import math

import pytest
from helpers.host_star import COSTS, LATENCY, OVERHEAD, US, WAKE, HostStar, costs
from helpers.share import share_of_each

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Request
from commsim.libraries.gloo import Gloo
from commsim.libraries.gloo import library as gloo_library
from commsim.timeline import Timeline

MIB = 1 << 20
TOLD = LATENCY + WAKE  # a message without payload
WIRE = 1000.0  # ps per byte of a link of 1 GB/s
ADD = 200.0  # ps per byte of the result, at 5 GB/s


def idle(kind: str, size: int, n: int, *, algo: str | None = None, root: int = -1) -> int:
    request = Request(kind, size, tuple(range(n)), root=root)
    return Gloo(algo, costs=COSTS).plan(request, HostStar(n)).idle


def one(
    cluster: Cluster, kind: str, size: int, network: str, *, algo: str | None = None
) -> Timeline:
    """Run one op of all ranks."""
    build = GraphBuilder()
    n = cluster.world_size
    world = build.group("world", range(n), library="gloo")
    root = n // 3 if kind in ("broadcast", "reduce", "gather", "scatter") else -1
    for rank in range(n):
        splits = [(rank + 2 * j) * 1000 for j in range(n)] if kind == "all_to_all_v" else None
        build.collective(
            build.lane(rank), world, kind, sum(splits) if splits else size,
            stream="c", root=root, splits=splits,
        )  # fmt: skip
    return simulate(build.build(), cluster, library=Gloo(algo), network=network)


def test_a_message_is_announced_and_sent() -> None:
    expected = OVERHEAD + TOLD + LATENCY + 1000 * WIRE + WAKE
    assert idle("send_recv", 1000, 2) == expected


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 16])
def test_a_barrier_is_rounds_of_two_messages(n: int) -> None:
    """Its receive is announced in each round anew, after the round before."""
    rounds = math.ceil(math.log2(n))
    assert idle("barrier", 0, n) == OVERHEAD + rounds * 2 * TOLD


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_small_broadcast_is_rounds_of_one_message(n: int) -> None:
    rounds = math.ceil(math.log2(n))
    each = LATENCY + WIRE + WAKE
    assert idle("broadcast", 1, n, root=0) == pytest.approx(OVERHEAD + TOLD + rounds * each, abs=9)


def test_a_large_broadcast_leaves_the_root_once_per_round() -> None:
    """Those who have it send on; the longest chains are log2 n copies, one after another."""
    size = 100 * MIB
    expected = OVERHEAD + TOLD + 3 * (size * WIRE + LATENCY + WAKE)
    assert idle("broadcast", size, 8, root=5) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["gather", "scatter", "all_to_all"])
def test_what_is_posted_at_once_takes_one_announcement(kind: str) -> None:
    size, n = 8 * MIB, 8
    root = 0 if kind != "all_to_all" else -1
    expected = OVERHEAD + TOLD + (n - 1) / n * size * WIRE + LATENCY + WAKE
    assert idle(kind, size, n, root=root) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("most", [0, 10**9])
@pytest.mark.parametrize("n", [2, 3, 8, 13])
def test_a_small_ring_pays_two_messages_per_pair_of_segments(
    n: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 (n-1) times: told, sent, woken up; the reduction in the first half."""
    monkeypatch.setattr(gloo_library, "_MOST_MESSAGES", most)
    m = 400
    step = TOLD + LATENCY + m * WIRE + WAKE
    expected = OVERHEAD + (n - 1) * (2 * step + m * ADD) + 2 * m * WIRE
    assert idle("all_reduce", 2 * n * m, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("most", [0, 10**9])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_large_ring_keeps_its_links_full(
    n: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two in flight hide announcing and adding: 2 (n-1)/n S / B and one step's delays a loop."""
    monkeypatch.setattr(gloo_library, "_MOST_MESSAGES", most)
    size = 4 * n * MIB
    moving = 2 * (n - 1) / n * size * WIRE
    ends = 2 * (TOLD + LATENCY + WAKE) + MIB * ADD
    assert idle("all_reduce", size, n) == pytest.approx(OVERHEAD + moving + ends, rel=1e-9)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_a_large_all_gather_is_half_of_it(n: int) -> None:
    size = 4 * n * MIB
    moving = (n - 1) / n * size * WIRE
    expected = OVERHEAD + moving + TOLD + LATENCY + WAKE
    assert idle("all_gather", size, n) == pytest.approx(expected, rel=1e-9)


def test_the_classes_announce_nothing() -> None:
    """Halving-doubling is one message a step; the chunked ring tells of free buffers.

    Nobody hands them to a worker thread either.
    """
    each = LATENCY + WAKE
    assert idle("all_reduce", 8, 8, algo="halving_doubling") == pytest.approx(6 * each, rel=1e-3)
    rounds = 2 * (8 - 1)
    assert idle("all_reduce", 8, 8, algo="ring_chunked") == pytest.approx(
        rounds * each + (rounds - 1) * TOLD, rel=1e-3
    )


def test_bcube_exchanges_in_log_rounds() -> None:
    assert idle("all_reduce", 8, 8, algo="bcube") == pytest.approx(
        OVERHEAD + 6 * (TOLD + LATENCY + WAKE), rel=1e-3
    )


def test_reduce_scatter_costs_an_all_reduce() -> None:
    assert idle("reduce_scatter", MIB, 8) == idle("all_reduce", MIB, 8)


@pytest.mark.parametrize("size", [952, 953])
def test_a_message_of_two_packets_wakes_its_reader_again(size: int) -> None:
    """48 bytes go ahead of each message."""
    two = Gloo(costs=costs(packet=1000, again=5 * US))
    plan = two.plan(Request("send_recv", size, (0, 1)), HostStar(2))
    more = 5 * US if size > 952 else 0
    assert plan.idle == idle("send_recv", size, 2) + more


def test_one_member_and_no_bytes_cost_the_overhead() -> None:
    assert idle("all_reduce", MIB, 1) == OVERHEAD
    assert idle("all_reduce", 0, 4) == OVERHEAD


@pytest.mark.parametrize("algo", ["ring_chunked", "ring"])
@pytest.mark.parametrize("size", [4, 3000, 70_000, 9 * MIB + 4, 40 * MIB])
@pytest.mark.parametrize("n", [2, 3, 6, 11])
def test_the_recurrence_is_the_messages(
    algo: str, size: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for most in (0, 10**9):
        monkeypatch.setattr(gloo_library, "_MOST_MESSAGES", most)
        request = Request("all_reduce", size, tuple(range(n)))
        own = costs(packet=3000, again=5 * US)
        found[most] = Gloo(algo, costs=own).plan(request, HostStar(n))
    assert found[0].idle == pytest.approx(found[10**9].idle, rel=1e-9)
    few, many = (found[most].parts[0] for most in (0, 10**9))
    assert few.phases[0].load == pytest.approx(many.phases[0].load, rel=1e-9)
    assert few.phases[0].conns.tolist() == many.phases[0].conns.tolist()
    assert few.leaves == pytest.approx(many.leaves, rel=1e-6, abs=3 * US)


@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("size", [8, 100_000, 12 * MIB])
def test_on_shared_links_the_recurrence_is_near(
    nodes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.preset("cpu-ethernet", nodes=nodes)
    found = []
    for most in (0, 10**9):
        monkeypatch.setattr(gloo_library, "_MOST_MESSAGES", most)
        request = Request("all_reduce", size, tuple(range(cluster.world_size)))
        found.append(Gloo().plan(request, cluster).idle)
    assert found[0] == pytest.approx(found[1], rel=0.03)


KINDS = [
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
    "all_to_all", "all_to_all_v", "barrier",
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "n"), share_of_each([(kind,) for kind in KINDS], [(2,), (3,), (5,), (8,)], 0.5)
)
def test_fluid_and_steps_agree(kind: str, n: int) -> None:
    for cluster in (HostStar(n), Cluster.preset("cpu-ethernet", nodes=n)):
        for size in (24_000, 3 * MIB):
            fluid, steps = (one(cluster, kind, size, net) for net in ("fluid", "steps"))
            assert abs(fluid.end_time - steps.end_time) <= max(1e-9 * steps.end_time, 40 * n)
            assert fluid.links.link_bytes().sum() == pytest.approx(
                steps.links.link_bytes().sum(), rel=1e-6
            )


@pytest.mark.parametrize("algo", ["bcube", "halving_doubling", "ring_chunked"])
@pytest.mark.parametrize("n", [2, 3, 6, 8])
def test_the_classes_agree_too(algo: str, n: int) -> None:
    fluid, steps = (
        one(HostStar(n), "all_reduce", 3 * MIB, net, algo=algo) for net in ("fluid", "steps")
    )
    assert abs(fluid.end_time - steps.end_time) <= max(1e-9 * steps.end_time, 40 * n)


def test_more_bandwidth_is_never_slower() -> None:
    for kind in KINDS[:-2]:
        root = 0 if kind in ("broadcast", "reduce", "gather", "scatter") else -1
        request = Request(kind, 9 * MIB, tuple(range(6)), root=root)
        times = [
            Gloo(costs=COSTS).plan(request, HostStar(6, speed)).idle
            for speed in (1e8, 5e8, 1e9, 3e9, 1e10, 1e11)
        ]
        assert times == sorted(times, reverse=True)


def test_a_large_plan_is_made_quickly_enough_to_sweep() -> None:
    """128 processes, 8 GiB: a million messages, by recurrence."""
    cluster = Cluster.preset("dgx-h100", nodes=16)
    plan = Gloo().plan(Request("all_reduce", 8 << 30, tuple(range(128))), cluster)
    moving = 2 * 127 / 128 * (8 << 30) / 2.5e9 * 1e12
    assert plan.idle == pytest.approx(moving, rel=0.15)
    assert plan.idle > moving


@pytest.mark.parametrize("size", [40, 100_000, 9 * MIB + 4])
@pytest.mark.parametrize(("n", "root"), [(2, 0), (3, 2), (8, 5)])
def test_a_large_reduce_is_its_messages(
    size: int, n: int, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for most in (0, 10**9):
        monkeypatch.setattr(gloo_library, "_MOST_MESSAGES", most)
        request = Request("reduce", size, tuple(range(n)), root=root)
        found[most] = Gloo(costs=COSTS).plan(request, HostStar(n))
    assert found[0].idle == pytest.approx(found[10**9].idle, rel=0.02)
    few, many = (found[most].parts[0].phases[0] for most in (0, 10**9))
    assert few.link.tolist() == many.link.tolist()
    assert few.load == pytest.approx(many.load, rel=1e-9)


@pytest.mark.parametrize("size", [6400, 64 * MIB])
def test_large_all_to_alls_fill_the_busiest_link(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cluster in (HostStar(8), Cluster.preset("cpu-ethernet", nodes=4)):
        found = []
        for most in (0, 10**9):
            monkeypatch.setattr(gloo_library, "_MOST_MESSAGES", most)
            request = Request("all_to_all", size, tuple(range(8)))
            found.append(Gloo().plan(request, cluster))
        assert found[0].idle == pytest.approx(found[1].idle, rel=0.02)
        loads = [
            sum(float(phase.load.sum()) for part in plan.parts for phase in part.phases)
            for plan in found
        ]
        assert loads[0] == pytest.approx(loads[1], rel=1e-9)
