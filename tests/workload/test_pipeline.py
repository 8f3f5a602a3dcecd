"""Pipelines with stated times, simulated: closed forms, the published table, properties."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import Phase
from commsim.libraries import LibrarySection, make_library
from commsim.metrics import measure
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import PipelineSection, build_pipeline

TABLE = Path(__file__).resolve().parents[1] / "data" / "zero_bubble_table5.csv"
MS = 10**9


def pipeline(**given_settings: Any) -> PipelineSection:
    base = {"stages": 4, "microbatches": 8, "forward": "2ms", "backward": "4ms"}
    return decode({**base, **given_settings}, PipelineSection, "x.yaml")


def run(**given_settings: Any) -> Timeline:
    graph = build_pipeline(pipeline(**given_settings)).graph
    return simulate(graph, None, library=make_library(LibrarySection()))


def ends(timeline: Timeline) -> dict[tuple[Phase, int, int], tuple[int, int]]:
    """Return (start, end) per (phase, microbatch, stage)."""
    graph = timeline.graph
    return {
        (Phase(int(graph.phase[op])), int(graph.microbatch[op]), int(graph.stage[op])): (
            int(start),
            int(end),
        )
        for op, start, end in zip(timeline.op, timeline.start, timeline.end, strict=True)
    }


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 1), (4, 8), (8, 3), (8, 24)])
def test_the_bubble_of_uniform_stages(schedule: str, p: int, m: int) -> None:
    timeline = run(schedule=schedule, stages=p, microbatches=m)
    assert timeline.end_time == (m + p - 1) * 6 * MS
    assert measure(timeline).bubble_fraction == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
    assert measure(timeline).bubble_ratio == pytest.approx((p - 1) / m, abs=1e-12)


@pytest.mark.parametrize(("p", "m"), [(2, 1), (4, 1), (4, 3)])
def test_the_bubble_of_naive_model_parallelism(p: int, m: int) -> None:
    timeline = run(schedule="naive", stages=p, microbatches=m)
    assert timeline.end_time == m * p * 6 * MS
    assert measure(timeline).bubble_fraction == pytest.approx((p - 1) / p, abs=1e-12)


def table() -> list[dict[str, str]]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row['model']}-m{row['m']}")
def test_1f1b_gives_the_bubble_that_the_paper_prints(row: dict[str, str]) -> None:
    timeline = run(
        schedule="1f1b",
        stages=int(row["p"]),
        microbatches=int(row["m"]),
        forward=f"{row['TF_ms']}ms",
        backward=f"{row['TB_ms']}ms",
        weight=f"{row['TW_ms']}ms",
        p2p=f"{row['Tcomm_ms']}ms",
    )
    assert measure(timeline).bubble_fraction == pytest.approx(float(row["b_1f1b"]), abs=1e-4)


def test_weight_is_part_of_a_fused_backward() -> None:
    whole, split = run(backward="4ms"), run(backward="3ms", weight="1ms")
    assert ends(whole) == ends(split)
    assert not (split.graph.phase == Phase.WEIGHT).any()
    section = pipeline(backward="3ms", weight="1ms")
    assert any("weight gradient inside backward" in note for note in build_pipeline(section).notes)


def test_each_boundary_has_its_own_delay() -> None:
    when = ends(run(stages=3, microbatches=1, p2p=["1ms", "5ms"]))
    starts = [when[Phase.FORWARD, 0, stage][0] for stage in range(3)]
    assert starts == [0, 3 * MS, 10 * MS]
    assert when[Phase.BACKWARD, 0, 1][0] == when[Phase.BACKWARD, 0, 2][1] + 5 * MS
    assert when[Phase.BACKWARD, 0, 0][0] == when[Phase.BACKWARD, 0, 1][1] + 1 * MS


def test_each_stage_has_its_own_times() -> None:
    timeline = run(stages=2, microbatches=1, forward=["1ms", "3ms"], backward=["2ms", "7ms"])
    graph = timeline.graph
    assert graph.duration[np.argsort(graph.stage * 10 + graph.phase)].tolist() == [
        1 * MS, 2 * MS, 3 * MS, 7 * MS,
    ]  # fmt: skip


times = st.lists(st.integers(0, 50), min_size=6, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    schedule=st.sampled_from(["naive", "gpipe", "1f1b"]),
    p=st.integers(1, 6), m=st.integers(1, 8), forward=times, backward=times, p2p=times,
)  # fmt: skip
def test_whatever_the_times_nothing_runs_before_what_it_needs(
    schedule: str, p: int, m: int, forward: list[int], backward: list[int], p2p: list[int]
) -> None:
    def as_text(values: list[int]) -> list[str]:
        return [f"{value}us" for value in values[:p]]

    timeline = run(
        schedule=schedule, stages=p, microbatches=m,
        forward=as_text(forward), backward=as_text(backward), p2p=as_text(p2p),
    )  # fmt: skip
    when = ends(timeline)
    assert len(when) == 2 * p * m
    for k in range(m):
        for i in range(p):
            f_start, f_end = when[Phase.FORWARD, k, i]
            b_start, b_end = when[Phase.BACKWARD, k, i]
            assert f_end - f_start == forward[i] * 10**6
            assert b_end - b_start == backward[i] * 10**6
            assert b_start >= f_end
            if i > 0:
                assert f_start >= when[Phase.FORWARD, k, i - 1][1] + p2p[i - 1] * 10**6
            if i < p - 1:
                assert b_start >= when[Phase.BACKWARD, k, i + 1][1] + p2p[i] * 10**6


@settings(max_examples=60, deadline=None)
@given(
    schedule=st.sampled_from(["naive", "gpipe", "1f1b"]), p=st.integers(1, 8), m=st.integers(1, 12)
)
def test_the_graph_has_one_tagged_op_per_action_and_one_dependency_per_message(
    schedule: str, p: int, m: int
) -> None:
    graph = build_pipeline(pipeline(schedule=schedule, stages=p, microbatches=m)).graph
    assert len(graph) == 2 * p * m
    assert len(graph.dep_op) == 2 * (p - 1) * m
    assert graph.lane_rank.tolist() == list(range(p))
    for column in (graph.stage, graph.microbatch, graph.step):
        assert column.min() >= 0
    assert set(graph.phase.tolist()) == {Phase.FORWARD, Phase.BACKWARD}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"forward": ["1ms", "2ms"]}, "pipeline.forward: 2 times for 4 stages"),
        ({"p2p": ["1ms", "2ms"]}, "pipeline.p2p: 2 times for the 3 boundaries of 4 stages"),
        ({"schedule": "zb_v"}, "pipeline.schedule: 'zb_v' is not built yet"),
        ({"stages": 0}, "stages"),
        ({"microbatches": -1}, "microbatches"),
        ({"forward": 2}, "has no unit"),
        ({"forwards": "2ms"}, "Did you mean 'forward'"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build_pipeline(pipeline(**wrong))
    assert words in str(caught.value)
