"""Metrics of simulated runs against closed forms."""

from __future__ import annotations

import pytest
from helpers.star import US, Star

from commsim.engine import simulate
from commsim.graph import GraphBuilder, Phase, Tags
from commsim.libraries import Ideal
from commsim.metrics import (
    bubbles,
    critical_path,
    finding,
    limits,
    measure,
    measured_window,
)
from commsim.sections import Durations
from commsim.timeline import Timeline
from commsim.workload import PipelineSection, build_pipeline

MS = 10**9
MB = 10**6


def pipeline(schedule: str, stages: int, microbatches: int, *, p2p: int = 0) -> Timeline:
    section = PipelineSection(
        stages=stages,
        microbatches=microbatches,
        schedule=schedule,
        forward=Durations([3 * MS]),
        backward=Durations([5 * MS]),
        p2p=Durations([p2p]),
    )
    return simulate(build_pipeline(section).graph, None, library=Ideal("ring"))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (4, 4), (4, 8), (8, 16)])
def test_bubbles_of_uniform_pipelines(schedule: str, p: int, m: int) -> None:
    found = bubbles(pipeline(schedule, p, m))
    assert found is not None
    assert found.fraction == pytest.approx((p - 1) / (m + p - 1), rel=1e-12)
    assert found.ratio == pytest.approx((p - 1) / m, rel=1e-12)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_naive_model_parallelism_keeps_one_stage_busy(p: int) -> None:
    found = bubbles(pipeline("naive", p, 1))
    assert found is not None
    assert found.fraction == pytest.approx((p - 1) / p, rel=1e-12)


def test_the_path_of_a_pipeline_is_its_longest_chain() -> None:
    run = pipeline("1f1b", 4, 8, p2p=MS // 2)
    path = critical_path(run)
    assert sum(path.by_kind().values()) == run.end_time
    assert path.by_kind()["delay"] % (MS // 2) == 0
    assert path.by_kind()["delay"] >= 6 * (MS // 2)  # down the stages once, and up again


def staggered(network: str = "fluid") -> Timeline:
    """Rank r of 4 works r + 1 ms; then all reduce 4 MB around a ring of 1 GB/s links."""
    build = GraphBuilder()
    world = build.group("world", range(4))
    for rank in range(4):
        lane = build.lane(rank)
        work = build.compute(lane, (rank + 1) * MS, name="work")
        build.collective(lane, world, "all_reduce", 4 * MB, stream="comm", after=[work])
    return simulate(build.build(), Star(4), library=Ideal("ring"), network=network)


RING = 6 * (2 * US + MS)  # 2 (n-1) steps of 1 MB over two links of 1 us


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_waiting_and_moving_of_a_staggered_all_reduce(network: str) -> None:
    found = measure(staggered(network))
    (use,) = found.collectives
    assert use.wait_s == pytest.approx((3 + 2 + 1 + 0) / 4 * 1e-3)
    assert use.time_s - use.wait_s == pytest.approx(RING * 1e-12)
    assert use.exposed_s == pytest.approx(use.time_s)
    assert use.busbw_gbs == pytest.approx(1.5 * 4 * MB / RING * 1e3)
    assert [times.waiting_s for times in found.ranks] == pytest.approx([3e-3, 2e-3, 1e-3, 0])


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_every_link_of_the_ring_carries_its_share(network: str) -> None:
    found = measure(staggered(network))
    assert [link.bytes for link in found.links] == pytest.approx([6 * MB] * 8)
    used = 6 * MS / (4 * MS + RING)
    assert [link.utilization for link in found.links] == pytest.approx([used] * 8)


def test_the_slowest_rank_is_on_the_path_and_the_others_are_not() -> None:
    path = measure(staggered()).critical_path
    assert [(piece.kind, piece.op) for piece in path] == [
        ("compute", "work"),
        ("all_reduce", "all_reduce"),
    ]
    assert path[0].rank == 3
    assert [piece.seconds for piece in path] == pytest.approx([4e-3, RING * 1e-12])


def test_a_step_of_training_is_the_steady_one() -> None:
    """The first step waits for nothing; the second starts under the reduction of the first."""
    build = GraphBuilder()
    world = build.group("dp", [0, 1])
    for rank in range(2):
        lane = build.lane(rank)
        before: list[int] = []
        for step in range(3):
            work = build.compute(
                lane, 4 * MS, name="F", after=before, tags=Tags(Phase.FORWARD, step=step)
            )
            reduce_ = build.collective(
                lane, world, "all_reduce", 2 * MB, stream="comm", after=[work]
            )
            optimizer = Tags(Phase.OPTIMIZER, step=step)
            before = [build.compute(lane, MS, name="O", after=[reduce_], tags=optimizer)]
    run = simulate(build.build(), Star(2), library=Ideal("ring"))
    ring = 2 * (2 * US + MS)
    assert measured_window(run).step_time == 4 * MS + ring + MS
    found = measure(run)
    assert found.collectives[0].count == 1
    assert found.breakdown.exposed_transfer_s == pytest.approx(ring * 1e-12)
    assert found.breakdown.compute_s == pytest.approx(5e-3)
    assert [piece.op for piece in found.critical_path] == ["F", "all_reduce", "O"]


@pytest.mark.parametrize(
    ("after", "told"), [(False, "2 collectives at the same time"), (True, "one after the other")]
)
def test_the_headline_of_two_collectives_says_whether_they_met(after: bool, told: str) -> None:
    build = GraphBuilder()
    world = build.group("world", range(4))
    for rank in range(4):
        lane = build.lane(rank)
        first = build.collective(lane, world, "all_reduce", 4 * MB, stream="a")
        needs = [first] if after else []
        build.collective(lane, world, "all_gather", 4 * MB, stream="b", after=needs)
    line = simulate(build.build(), Star(4), library=Ideal("ring"))
    found = finding(line, measure(line), limits(line))
    assert told in found
    assert found.count("on the bus") == 2
