"""On an idle network a plan takes what its chunk program takes, message by message."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.share import later, share_of_each
from helpers.star import US, Star

from commsim.collectives.catalogue import ALGORITHMS
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.ops import ROOTED
from commsim.timeline import Timeline

SIZE = 1 << 20
NETWORK = ("sharp", "collnet_direct", "collnet_chain")  # a star has no network to add in
EXCHANGES = (("all_to_all", "direct"), ("all_to_all_v", "direct"))
PAIRS = [p for p in sorted(ALGORITHMS) if p[1] not in NETWORK and p not in EXCHANGES]
PIECES = 6  # stated, so that every message of every piece is timed


def one(op: str, algorithm: str, cluster: Star, network: str, *, root: int = -1) -> Timeline:
    """Run one collective over all GPUs of a cluster."""
    n = cluster.world_size
    build = GraphBuilder()
    world = build.group("world", range(n))
    for rank in range(n):
        splits = [(rank + 2 * j + 1) * 100_000 for j in range(n)] if op == "all_to_all_v" else None
        size = sum(splits) if splits else SIZE
        build.collective(build.lane(rank), world, op, size, stream="c", root=root, splits=splits)
    library = Ideal(algorithm, pieces=PIECES)
    return simulate(build.build(), cluster, library=library, network=network)


def uneven(n: int, seed: int) -> Star:
    rng = np.random.default_rng(seed)
    return Star(n, rng.uniform(1e9, 5e9, 2 * n), rng.integers(10**5, 10**7, 2 * n))


def one_slow(n: int) -> Star:
    speed = np.full(2 * n, 4e9)
    speed[2] = 5e8
    return Star(n, speed)


@pytest.mark.share(0.6)
@pytest.mark.parametrize(
    ("op", "algorithm", "n"),
    share_of_each(PAIRS, [(n,) for n in (*range(2, 10), 13, 16, 17, 32)], 0.1),
)
def test_fluid_and_steps_agree(op: str, algorithm: str, n: int) -> None:
    root = n // 3 if op in ROOTED else -1
    for cluster in (Star(n), uneven(n, n), one_slow(n)):
        fluid, steps = (
            one(op, algorithm, cluster, network, root=root) for network in ("fluid", "steps")
        )
        rounds = 4 * n  # messages one after another on the longest chain, each rounded
        assert abs(fluid.end_time - steps.end_time) <= max(1e-9 * steps.end_time, rounds)
        assert fluid.links.link_bytes().sum() == pytest.approx(
            steps.links.link_bytes().sum(), rel=1e-6
        )


@pytest.mark.share(0.5)
@pytest.mark.parametrize(("op", "algorithm"), EXCHANGES)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 11, later(13), later(32)])
def test_connections_that_take_turns_reach_the_bound_of_an_exchange(
    op: str, algorithm: str, n: int
) -> None:
    """The flow takes what the busiest link takes; slices in turn lose little on it."""
    for cluster in (Star(n), uneven(n, n), one_slow(n)):
        fluid, steps = (one(op, algorithm, cluster, network) for network in ("fluid", "steps"))
        assert 1 - 1e-9 <= steps.end_time / fluid.end_time <= 1.02
        assert fluid.links.link_bytes().sum() == pytest.approx(
            steps.links.link_bytes().sum(), rel=1e-6
        )


@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_tree", "halving_doubling"])
def test_every_root_agrees(algorithm: str) -> None:
    cluster = uneven(6, 3)
    for root in range(6):
        fluid, steps = (
            one("broadcast", algorithm, cluster, net, root=root) for net in ("fluid", "steps")
        )
        assert fluid.end_time == pytest.approx(steps.end_time, rel=1e-9)


def test_ranks_leave_a_fluid_plan_when_their_messages_are_done() -> None:
    cluster = one_slow(8)
    fluid, steps = (one("broadcast", "ring", cluster, net, root=5) for net in ("fluid", "steps"))
    assert len(set(steps.end.tolist())) > 2
    # A member is done with a send when its last byte has left; steps count its arrival.
    assert fluid.end == pytest.approx(steps.end, abs=2.1 * US)


@pytest.mark.parametrize("n", [2, 3, 8, 17])
def test_the_closed_form_of_a_uniform_ring(n: int) -> None:
    """2(n-1) (latency + S / (n B)), latency being two hops of 1 us."""
    expected = 2 * (n - 1) * (2 * US + SIZE / n / 1e9 * 1e12)
    assert one("all_reduce", "ring", Star(n), "fluid").end_time == pytest.approx(expected, rel=1e-9)


def test_halving_doubling_closed_form() -> None:
    expected = 2 * (3 * 2 * US + 7 / 8 * SIZE / 1e9 * 1e12)
    found = one("all_reduce", "halving_doubling", Star(8), "fluid").end_time
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
def test_more_bandwidth_is_never_slower(op: str) -> None:
    algorithm = "direct" if op == "all_to_all" else "ring"
    times = [
        one(op, algorithm, Star(6, speed * 1e9), "fluid").end_time for speed in (1, 1.5, 2, 10)
    ]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_same_input_same_timeline() -> None:
    first, second = (one("all_reduce", "tree", uneven(9, 4), "steps") for _ in range(2))
    assert np.array_equal(first.end, second.end)
    assert np.array_equal(first.links.rate, second.links.rate)
