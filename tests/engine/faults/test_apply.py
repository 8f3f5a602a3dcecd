"""Faults in a graph and a cluster by hand: who is set apart, what grows, and when it ends."""

from __future__ import annotations

import numpy as np
import pytest

import commsim as cs
from commsim.engine.faults.apply import apart_links, degraded, roles_of, slowed
from commsim.engine.faults.draw import DrawnFaults, Noise, SlowGpu, SlowLink
from commsim.engine.faults.windows import Target, in_windows
from commsim.graph import Device, Graph, GraphBuilder


def same(roles: list[int]) -> list[int]:
    """Number roles in order of appearance, 0 staying 0."""
    seen = {0: 0}
    return [seen.setdefault(role, len(seen)) for role in roles]


def test_ranks_with_one_fault_are_alike_and_those_without_stay_together() -> None:
    gpus = (
        SlowGpu(1, 2.0), SlowGpu(2, 2.0), SlowGpu(3, 3.0), SlowGpu(4, 2.0, 0, 9),
        SlowGpu(5, 2.0, 0, 8), SlowGpu(6, 2.0), SlowGpu(6, 2.0),
    )  # fmt: skip
    assert same(roles_of(DrawnFaults(gpus), 8).tolist()) == [0, 1, 1, 2, 3, 4, 5, 0]
    some = DrawnFaults((SlowGpu(1, 2.0),), noise=(Noise(0.1, "normal", (1, 3)),))
    assert same(roles_of(some, 4).tolist()) == [0, 1, 0, 2]
    every = DrawnFaults(noise=(Noise(0.1, "normal", None),))
    assert same(roles_of(every, 3).tolist()) == [1, 2, 3]
    assert roles_of(DrawnFaults(), 3).tolist() == [0, 0, 0]


def test_links_that_are_slow_for_a_while_are_apart_and_others_carry_less() -> None:
    cluster = cs.Cluster.preset("dgx-h100")
    faults = DrawnFaults(
        slow_links=(
            SlowLink((3, 4), 0.5), SlowLink((4,), 0.5), SlowLink((9, 7), 0.0, ((0, 5),)),
            SlowLink((7,), 0.1, ((6, 8),)),
        )
    )  # fmt: skip
    assert apart_links(faults).tolist() == [7, 9]
    assert apart_links(DrawnFaults()).tolist() == []
    slow = degraded(cluster, faults).links
    left = np.ones(len(slow))
    left[3], left[4] = 0.5, 0.25
    assert (slow.bandwidth == cluster.links.bandwidth * left).all()
    assert (slow.capacity == cluster.links.capacity * left).all()
    assert degraded(cluster, DrawnFaults(slow_links=faults.slow_links[2:])) is cluster


def test_work_that_takes_longer_than_the_clock_holds_is_refused() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 2**61, name="long")
    told = r"faults: rank 0: long, 2 times as long, takes longer than commsim can hold"
    with pytest.raises(cs.ScenarioError, match=told):
        slowed(build.build(), DrawnFaults((SlowGpu(0, 2.0),)))
    slower = slowed(build.build(), DrawnFaults((SlowGpu(0, 1.5),)))
    assert slower.duration.tolist() == [3 * 2**60]


def two_ranks() -> Graph:
    """Compute of 100 ps and of none, on the GPU and on the CPU, and a collective, on two ranks."""
    build = GraphBuilder()
    pair = build.group("pair", [0, 1])
    for rank in range(2):
        lane = build.lane(rank)
        build.compute(lane, 100, name="work")
        build.compute(lane, 0, name="nothing")
        build.compute(lane, 100, name="host", stream="cpu", device=Device.CPU)
        build.collective(lane, pair, "all_reduce", 8, stream="comm")
    return build.build()


def test_a_slow_gpu_takes_longer_for_what_it_computes_itself() -> None:
    graph = two_ranks()
    was = graph.duration.tolist()
    twice = slowed(graph, DrawnFaults((SlowGpu(1, 2.5), SlowGpu(1, 2.0))))
    assert twice.duration.tolist() == [*was[:4], 500, *was[5:]]
    later = slowed(graph, DrawnFaults((SlowGpu(1, 2.0, 0, 10),)))
    assert later is graph
    assert slowed(graph, DrawnFaults((SlowGpu(0, 1.004),))).duration[0] == 100
    assert slowed(graph, DrawnFaults((SlowGpu(0, 1.006),))).duration[0] == 101


def test_noise_is_on_all_compute_of_its_ranks_by_the_factors_that_were_measured() -> None:
    graph = two_ranks()
    was = graph.duration.tolist()
    pool = np.array([3.0])
    one = slowed(graph, DrawnFaults(noise=(Noise(0.0, "normal", (1,), pool),)))
    assert one.duration.tolist() == [*was[:4], 300, 0, 300, was[7]]
    every = DrawnFaults(
        (SlowGpu(0, 2.0),), noise=(Noise(0.0, "normal", None, pool), Noise(0, "x", (0,), pool))
    )
    assert slowed(graph, every).duration.tolist() == [1800, 0, 900, was[3], 300, 0, 300, was[7]]


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation", "least"),
    [("normal", 1.0, 0.2, 0.0), ("exponential", 1.2, 0.2, 1.0), ("lognormal", 1.0, 0.2, 0.0)],
)
def test_jitter_has_the_mean_and_the_spread_of_its_distribution(
    distribution: str, mean: float, deviation: float, least: float
) -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for _ in range(20_000):
        build.compute(lane, 10**9, name="work")
    noise = (Noise(0.2, distribution, None),)
    took = slowed(build.build(), DrawnFaults(noise=noise, seed=(1, 2))).duration / 1e9
    assert took.mean() == pytest.approx(mean, abs=0.005)
    assert took.std() == pytest.approx(deviation, abs=0.01)
    assert took.min() >= least
    other = slowed(build.build(), DrawnFaults(noise=noise, seed=(1, 3))).duration / 1e9
    assert not (took == other).any()


def test_normal_noise_makes_nothing_negative() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for _ in range(1000):
        build.compute(lane, 10**9, name="work")
    took = slowed(build.build(), DrawnFaults(noise=(Noise(1.0, "normal", None),))).duration
    assert took.min() == 0
    assert (took == 0).sum() == pytest.approx(159, abs=40)  # below one deviation


def test_changes_come_and_go_from_the_begin_of_what_is_measured() -> None:
    faults = DrawnFaults(
        (SlowGpu(2, 4.0, 10, 30), SlowGpu(1, 2.0)),
        (SlowLink((5, 6), 0.25, ((0, 3), (7, 9))), SlowLink((1,), 0.5)),
    )
    gpu, link = in_windows(faults, 100, {1: 1, 2: 2}, np.zeros(0, np.int64))
    assert [(one.after, one.target, one.places, one.left) for one in gpu.changes] == [
        (110, Target.GPU, (2,), 0.25), (20, Target.GPU, (2,), 1.0),
    ]  # fmt: skip
    assert [(one.after, one.target, one.places, one.left) for one in link.changes] == [
        (100, Target.LINK, (5, 6), 0.25), (3, Target.LINK, (5, 6), 1.0),
        (4, Target.LINK, (5, 6), 0.25), (2, Target.LINK, (5, 6), 1.0),
    ]  # fmt: skip
    lanes, like = {0: 0, 1: 0, 2: 1}, np.array([0, 1, 2, 3, 4, 4, 3])
    gpu, link = in_windows(faults, 0, lanes, like)
    assert {one.places for one in gpu.changes} == {(1,)}
    assert {one.places for one in link.changes} == {(4, 3)}
    assert in_windows(DrawnFaults(), 0, lanes, like) == []
    assert in_windows(DrawnFaults((SlowGpu(3, 4.0, 10, 30),)), 0, lanes, like) == []


def test_windows_at_one_time_multiply() -> None:
    """Each place that two faults name changes alone; the others of a fault together."""
    faults = DrawnFaults(
        (SlowGpu(0, 2.0, 0, 99), SlowGpu(0, 4.0, 10, 20), SlowGpu(1, 2.0, 5, 6)),
        (SlowLink((5, 6), 0.5, ((0, 4), (4, 8))), SlowLink((6, 7), 0.0, ((2, 8),))),
    )
    lanes = {0: 0, 1: 1}
    found = in_windows(faults, 0, lanes, np.zeros(0, np.int64))
    told = {
        (one.changes[0].target.name, one.changes[0].places): [
            (change.after, change.left) for change in one.changes
        ]
        for one in found
    }
    assert told == {
        ("GPU", (1,)): [(5, 0.5), (1, 1.0)],
        ("GPU", (0,)): [(0, 0.5), (10, 0.125), (10, 0.5), (79, 1.0)],
        ("LINK", (5,)): [(0, 0.5), (4, 0.5), (4, 1.0)],
        ("LINK", (7,)): [(2, 0.0), (6, 1.0)],
        ("LINK", (6,)): [(0, 0.5), (2, 0.0), (2, 0.0), (4, 1.0)],
    }


def test_jitter_is_drawn_from_a_stream_of_its_own() -> None:
    """A seed and a number of the run give the same jitter in every version."""
    build = GraphBuilder()
    lane = build.lane(0)
    for _ in range(5):
        build.compute(lane, 10**9, name="work")
    factors = np.random.default_rng((3, 4, 2)).normal(1.0, 0.1, 5)
    found = slowed(build.build(), DrawnFaults(noise=(Noise(0.1, "normal", None),), seed=(3, 4)))
    assert found.duration.tolist() == np.rint(10**9 * factors).tolist()


def test_work_of_a_picosecond_grows_too() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="work")
    assert slowed(build.build(), DrawnFaults((SlowGpu(0, 3.0),))).duration.tolist() == [3]
