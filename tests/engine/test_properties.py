"""What must hold for any work on any of these clusters, whoever shares which link."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.link_use import ps_over
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal
from commsim.timeline import Timeline

MS = 10**9
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "broadcast")
CLUSTERS = {
    "dgx-1v": Cluster.preset("dgx-1v"),
    "two dgx-h100": Cluster.preset("dgx-h100", nodes=2),
    "oversubscribed": Cluster.preset(
        "pcie-a100", nodes=4,
        fabric={"kind": "fat_tree", "oversubscription": 4, "nodes_per_leaf": 2},
    ),
}  # fmt: skip


def random_work(seed: int, world: int) -> Graph:
    """Return collectives of random groups, messages and compute, in an order without deadlock."""
    rng = np.random.default_rng(seed)
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(world)]
    everybody = build.group("world", range(world))
    for number in range(int(rng.integers(2, 6))):
        size = int(rng.integers(1, 1 << 24))
        stream = f"s{rng.integers(2)}"
        if rng.random() < 0.3:
            a, b = rng.choice(world, 2, replace=False).tolist()
            build.send(lanes[a], b, size, group=everybody, stream=stream)
            build.recv(lanes[b], a, size, group=everybody, stream=stream)
            continue
        chosen = np.sort(rng.choice(world, int(rng.integers(2, world + 1)), replace=False)).tolist()
        group = build.group(f"g{number}", chosen)
        op = str(rng.choice(OPS))
        root = chosen[0] if op == "broadcast" else -1
        for rank in chosen:
            build.compute(lanes[rank], int(rng.integers(0, 2 * MS)), name="c", stream=stream)
            build.collective(lanes[rank], group, op, size, stream=stream, root=root)
    return build.build()


def run(seed: int, where: str, network: str = "fluid") -> Timeline:
    cluster = CLUSTERS[where]
    work = random_work(seed, cluster.world_size)
    return simulate(work, cluster, library=Ideal(), network=network)


cases = given(seed=st.integers(0, 2**32), where=st.sampled_from(sorted(CLUSTERS)))
networks = pytest.mark.parametrize("network", ["fluid", "steps"])


@examples(25)
@cases
def test_no_link_is_over_its_capacity(seed: int, where: str) -> None:
    links = run(seed, where).links
    for link in np.flatnonzero(links.link_bytes()).tolist():
        start, end, rate = links.segments(link)
        ends_first = np.repeat([1, 0], len(start))
        order = np.lexsort((ends_first, np.concatenate((start, end))))
        used = np.cumsum(np.concatenate((rate, -rate))[order])
        assert used.max() <= links.bandwidth[link] * (1 + 1e-9)


@examples(25)
@cases
def test_no_link_carries_more_than_it_can_message_by_message(seed: int, where: str) -> None:
    """Over no stretch of time; services are rounded to whole ps at both ends."""
    links = run(seed, where, "steps").links
    for link in np.flatnonzero(links.link_bytes()).tolist():
        assert ps_over(*links.segments(link), links.bandwidth[link]) <= 3


@examples(25)
@cases
def test_bytes_are_conserved_between_networks(seed: int, where: str) -> None:
    fluid, steps = run(seed, where), run(seed, where, "steps")
    for timeline in (fluid, steps):
        assert timeline.links.link_bytes().min() >= 0
    assert fluid.links.link_bytes() == pytest.approx(steps.links.link_bytes(), rel=1e-4, abs=1.0)


@networks
@examples(25)
@cases
def test_nothing_happens_before_its_cause(seed: int, where: str, network: str) -> None:
    timeline = run(seed, where, network)
    assert (timeline.arrive <= timeline.start).all()
    assert (timeline.start <= timeline.end).all()
    for span in np.flatnonzero(timeline.cause >= 0).tolist():
        cause = int(timeline.cause[span])
        same_meeting = timeline.graph.item[span] == timeline.graph.item[cause] >= 0
        released = timeline.arrive[cause] if same_meeting else timeline.end[cause]
        assert released <= timeline.start[span]


@examples(20)
@cases
def test_same_work_same_times(seed: int, where: str) -> None:
    first, second = run(seed, where), run(seed, where)
    for column in ("arrive", "start", "end", "cause"):
        assert np.array_equal(getattr(first, column), getattr(second, column))


@examples(20)
@given(seed=st.integers(0, 2**32), factor=st.floats(1.1, 20))
def test_faster_nics_make_no_single_collective_slower(seed: int, factor: float) -> None:
    """One op alone: in a schedule of many, a faster link may reorder them and cost time."""
    rng = np.random.default_rng(seed)
    size, op = int(rng.integers(1, 1 << 26)), str(rng.choice(OPS[:4]))
    times = []
    for speed in (100.0, 100.0 * factor):
        cluster = Cluster.preset(
            "dgx-a100", nodes=2, overrides={"nic": {"bandwidth": f"{speed}Gbps"}}
        )
        build = GraphBuilder()
        world = build.group("world", range(16))
        for rank in range(16):
            build.collective(build.lane(rank), world, op, size, stream="c")
        times.append(simulate(build.build(), cluster, library=Ideal()).end_time)
    assert times[1] <= times[0]
