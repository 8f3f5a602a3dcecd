"""Limits of timelines made by hand: from where on a part is looked at, and how it is named."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.hand_made import timeline

from commsim.graph import Device, GraphBuilder
from commsim.metrics import limits
from commsim.metrics.limits import _culprit, _listed
from commsim.timeline import Cause


@pytest.mark.parametrize(("delay", "told"), [(1, False), (2, False), (3, True)])
def test_a_host_counts_with_the_latency_of_what_it_launches(delay: int, told: bool) -> None:
    """Of 1000 ps a launch of 3 and its latency: from more than 0.5 % on it is looked at."""
    build = GraphBuilder()
    lane = build.lane(0)
    launch = build.compute(lane, 3, name="launch", stream="cpu", device=Device.CPU)
    kernel = build.compute(lane, 1, name="kernel", stream="gpu", after=[(launch, delay)])
    causes = {kernel: (launch, Cause.DEPENDENCY)}
    line = timeline(build, [(0, 3), (3 + delay, 1000)], causes=causes)
    hosts = [one for one in limits(line) if one.kind == "host"]
    assert [one.removed_s for one in hosts] == (
        [pytest.approx((3 + delay) * 1e-12)] if told else []
    )


@pytest.mark.parametrize(("long", "ratio"), [(104, None), (105, 105 / 102.5), (120, 120 / 110)])
def test_compute_within_two_percent_of_the_mean_counts_as_equal(
    long: int, ratio: float | None
) -> None:
    """Two ranks that meet compute 100 ps and a little more; the step would end with the mean."""
    build, times = GraphBuilder(), []
    pair = build.group("pair", [0, 1])
    for rank, took in ((0, 100), (1, long)):
        lane = build.lane(rank)
        build.compute(lane, took, name="work", stream="comm")
        build.collective(lane, pair, "all_reduce", 8, stream="comm")
        times += [(0, took), (took, long, long + 1)]
    found = [one for one in limits(timeline(build, times)) if one.kind == "imbalance"]
    assert [one.ratio for one in found] == ([] if ratio is None else [pytest.approx(ratio)])
    for one in found:
        assert one.where == "rank 1"
        assert one.removed_s == pytest.approx((long - 100) / 2 * 1e-12)


def test_ops_are_named_by_the_time_that_they_take() -> None:
    build, causes = GraphBuilder(), {}
    lane, group = build.lane(0), build.group("dp", [0])
    for at, kind in enumerate(("all_reduce", "all_gather")):
        build.collective(lane, group, kind, 8, stream="comm")
        causes.update({at: (at - 1, Cause.STREAM)} if at else {})
    (found,) = limits(timeline(build, [(0, 60), (60, 100)], causes=causes))
    assert found.where == "all-reduce and all-gather on dp"


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ([50], "a on x"),
        ([50, 30, 20], "a and b on x, c on y"),
        ([50, 30, 21], "a and b on x, c on y"),
        ([50, 30, 19], "a and b on x"),
        ([20, 50, 30], "b and a on x, c on y"),
        ([25, 25, 25, 25], "a and b on x, c on y"),
        ([17, 16, 16, 16, 16, 16], "a on x"),
    ],
)
def test_up_to_three_ops_of_a_fifth_of_the_time_are_named(times: list[int], told: str) -> None:
    ops = zip("abcdef", "xxyyyy", strict=True)
    assert _listed(dict(zip(ops, times, strict=False))) == told


@pytest.mark.parametrize(
    ("stage", "spent", "told"),
    [
        ([0, 0, 1, 1], [50, 50, 100, 100], "stage 1"),
        ([0, 0, 1, 1], [50, 50, 98, 100], "stage 1"),
        ([0, 0, 1, 1], [50, 50, 97, 100], "rank 7"),
        ([0, 0, 0, 1], [50, 50, 50, 100], "stage 1"),
        ([1, 0, 0, 1], [0, 50, 50, 100], "stage 1"),  # what does not compute is no measure
        ([0, 1, 0, 0], [100, 100, 100, 100], "stage 0"),
        ([-1, -1, -1, -1], [50, 50, 100, 100], "rank 7"),
        ([0, 0, -1, -1], [50, 50, 100, 100], "rank 7"),
    ],
)
def test_who_computes_longest_is_a_stage_unless_it_stands_out_of_it(
    stage: list[int], spent: list[float], told: str
) -> None:
    ranks = np.array([1, 3, 5, 7])
    assert _culprit(ranks, np.array(stage), np.array(spent, dtype=np.float64), 3) == told
