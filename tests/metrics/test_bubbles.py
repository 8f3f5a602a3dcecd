"""Pipeline bubbles against their closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.hand_made import timeline
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.metrics import Bubbles, bubbles
from commsim.metrics.window import Window
from commsim.timeline import Timeline


def gpipe(
    stages: int, microbatches: int, forward: int, backward: int, *, replicas: int = 1
) -> Timeline:
    """All forwards, then all backwards, uniform stages: what a perfect GPipe does."""
    build, times = GraphBuilder(), []
    turn = (microbatches + stages - 1) * forward
    for rank in range(stages * replicas):
        lane, stage = build.lane(rank), rank % stages
        for phase, one in ((Phase.FORWARD, forward), (Phase.BACKWARD, backward)):
            for k in range(microbatches):
                build.compute(lane, one, name=f"{phase.name}{k}", tags=Tags(phase, stage=stage))
                ahead = stage if phase == Phase.FORWARD else stages - 1 - stage
                begin = (0 if phase == Phase.FORWARD else turn) + (ahead + k) * one
                times.append((begin, begin + one))
    return timeline(build, times)


def found(run: Timeline) -> Bubbles:
    result = bubbles(run)
    assert result is not None
    return result


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 9), st.integers(1, 9))
def test_gpipe_has_p_minus_1_bubbles_per_m(p: int, m: int, forward: int, backward: int) -> None:
    result = found(gpipe(p, m, forward, backward))
    assert result.fraction == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
    assert result.ratio == pytest.approx((p - 1) / m, abs=1e-12)
    assert result.stage_fraction == pytest.approx([result.fraction] * p)


def test_replicas_of_a_stage_count_as_one_stage() -> None:
    result = found(gpipe(4, 8, 3, 6, replicas=2))
    assert result.stage.tolist() == [0, 1, 2, 3]
    assert result.fraction == pytest.approx(3 / 11)


def test_days_of_many_ranks() -> None:
    """Their times add up to more than 64 bits hold."""
    run = gpipe(4, 8, 3 * 2**50, 6 * 2**50, replicas=2)
    ranks = np.array([9, 9, 9, 9, 5000, 9000, 9000, 9000])
    many = replace(run, graph=replace(run.graph, multiplicity=ranks))
    assert found(many).stage_fraction == pytest.approx(found(run).stage_fraction)


def test_span_is_that_of_the_longest_stage_not_the_makespan() -> None:
    build = GraphBuilder()
    for stage in range(2):
        lane = build.lane(stage)
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            build.compute(lane, 10, name="x", tags=Tags(phase, stage=stage))
    # Stage 0 works 0-10 and 30-40, stage 1 works 25-35 and 50-60: 40 and 35 long, 60 in all.
    result = found(timeline(build, [(0, 10), (30, 40), (25, 35), (50, 60)]))
    assert result.span == 40
    assert result.fraction == pytest.approx(1 - 20 / 40)
    assert result.ratio == pytest.approx(1.0)


def test_uneven_stages_have_their_own_bubbles_and_the_mean_is_over_stages() -> None:
    build = GraphBuilder()
    for stage, multiplicity in ((0, 1), (1, 3)):
        lane = build.lane(stage, multiplicity=multiplicity)
        build.compute(lane, 1, name="F", tags=Tags(Phase.FORWARD, stage=stage))
    result = found(timeline(build, [(0, 40), (40, 50)]))
    assert result.stage_fraction.tolist() == pytest.approx([0.0, 0.75])
    assert result.stage_ratio.tolist() == pytest.approx([0.0, 3.0])
    assert result.fraction == pytest.approx(0.375)
    assert result.ratio == pytest.approx(0.375 / 0.625)


def test_unequal_replicas_weigh_by_multiplicity() -> None:
    build = GraphBuilder()
    for rank, multiplicity in ((0, 1), (1, 3)):
        lane = build.lane(rank, multiplicity=multiplicity)
        for _ in range(2):
            build.compute(lane, 1, name="F", tags=Tags(Phase.FORWARD, stage=0))
    # Both are 100 long; the busy times are 40 and 80, in the mean of four ranks 70.
    result = found(timeline(build, [(0, 20), (80, 100), (0, 40), (60, 100)]))
    assert result.fraction == pytest.approx(0.3)


def test_only_the_measured_step_counts() -> None:
    build, times = GraphBuilder(), []
    lane = build.lane(0)
    for step, gap in ((0, 50), (1, 5)):
        for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
            build.compute(lane, 1, name="x", tags=Tags(phase, step=step, stage=0))
        zero = 1000 * step
        times += [(zero, zero + 10), (zero + 10 + gap, zero + 20 + gap), (zero + 90, zero + 95)]
    run = timeline(build, times)
    for step, span in ((-1, 25), (0, 70), (1, 25)):
        first, last = np.array([1000 * step]), np.array([1000 * step + 95])
        window = Window(first, last, step, int(first[0]), int(last[0]), 3 * step + 2)
        result = bubbles(run, window=None if step < 0 else window)
        assert result is not None
        assert result.span == span
        assert result.fraction == pytest.approx(1 - 20 / span)


def test_tensor_parallel_collectives_are_work_and_data_parallel_ones_are_not() -> None:
    results = []
    for axis in ("tp", "dp"):
        build = GraphBuilder()
        lane = build.lane(0)
        group = build.group("g", [0], axis=axis)
        tags = Tags(Phase.FORWARD, stage=0)
        build.compute(lane, 10, name="a", tags=tags)
        build.collective(lane, group, "all_reduce", 8, stream="compute", tags=tags)
        build.compute(lane, 10, name="b", tags=tags)
        results.append(found(timeline(build, [(0, 10), (10, 14, 20), (20, 30)])).fraction)
    assert results == pytest.approx([0.0, 1 / 3])


def test_a_device_with_two_virtual_stages_counts_once() -> None:
    build = GraphBuilder()
    for rank in range(2):
        lane = build.lane(rank)
        for stage in (rank, rank + 2):
            build.compute(lane, 10, name="F", tags=Tags(Phase.FORWARD, stage=stage))
    result = found(timeline(build, [(0, 10), (20, 30), (10, 20), (30, 40)]))
    assert result.stage.tolist() == [0, 1]
    assert result.fraction == pytest.approx(1 / 3)


def test_without_stages_there_are_no_bubbles() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="F", tags=Tags(Phase.FORWARD))
    assert bubbles(timeline(build, [(0, 10)])) is None
