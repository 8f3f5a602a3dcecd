"""Pipelines with stated times, simulated: closed forms, the published table, properties."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.counting import python_calls
from helpers.paths import TESTS
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import Phase
from commsim.libraries import Ideal, LibrarySection, make_library
from commsim.metrics import bubbles, limits, measure
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import PipelineSection, build_pipeline

TABLE = TESTS / "data" / "zero_bubble_table5.csv"
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


PUBLISHED = {
    "1f1b": ("b_1f1b", -1e-4, 1e-4),
    "zb_h1": ("b_zbh1", -1e-4, 1e-4),
    "zb_h2": ("b_zbh2", -1e-4, 1e-4),
    "interleaved_1f1b": ("b_1f1bi", -0.004, 0.004),
    "zb_1p": ("b_zb1p", -0.005, 0.002),
    "zb_2p": ("b_zb2p", -0.005, 0.002),
}
"""The column of the paper's table 5, and how far ours may lie from it."""


@pytest.mark.share(0.4)
@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row['model']}-m{row['m']}")
@pytest.mark.parametrize("schedule", PUBLISHED)
def test_the_bubbles_that_the_zero_bubble_paper_prints(row: dict[str, str], schedule: str) -> None:
    column, below, above = PUBLISHED[schedule]
    virtual = {"1.5B": 3, "6.2B": 4}[row["model"]]
    timeline = run(
        schedule=schedule,
        stages=int(row["p"]),
        microbatches=int(row["m"]),
        virtual_stages=virtual if schedule == "interleaved_1f1b" else 1,
        forward=f"{row['TF_ms']}ms",
        backward=f"{row['TB_ms']}ms",
        weight=f"{row['TW_ms']}ms",
        p2p=f"{row['Tcomm_ms']}ms",
        weight_memory={"1.5B": 0.3664, "6.2B": 0.4324}[row["model"]],
    )
    bubble = measure(timeline).bubble_fraction
    assert bubble is not None
    assert below <= bubble - float(row[column]) <= above


def span_of(**settings: Any) -> int:
    """Return the largest span of a device, from its first start to its last end."""
    found = bubbles(run(**settings))
    assert found is not None
    return round(found.span)


NAMES = ("forward", "backward", "weight")


@examples(30)
@given(p=st.integers(1, 6), extra=st.integers(0, 4), times=st.tuples(*[st.integers(1, 40)] * 3))
def test_closed_forms_of_uniform_stages(p: int, extra: int, times: tuple[int, int, int]) -> None:
    m = 2 * p + extra

    def span(schedule: str, m: int = m, v: int = 1) -> int:
        return span_of(
            schedule=schedule, stages=p, microbatches=m, virtual_stages=v,
            **{name: f"{12 * t}us" for name, t in zip(NAMES, times, strict=True)},
        )  # fmt: skip

    f, b, w = (time * 12 * 10**6 for time in times)
    total = f + b + w
    assert span("gpipe") == span("1f1b") == (m + p - 1) * total
    if w <= min(f, b):
        assert span("zb_h1") == m * total + (p - 1) * (f + b - w)
    if f == b and w <= f:
        assert span("zb_h2") == m * total + (p - 1) * max(0, f + b - 2 * w)
    for v in (2, 3, 4):
        assert span("interleaved_1f1b", m=m // p * p, v=v) * v == (m // p * p * v + p - 1) * total
        assert span("breadth_first", v=v) * v == (m * v + p - 1) * total


@pytest.mark.share(0.4)
@pytest.mark.parametrize("p", range(1, 13))
def test_closed_forms_of_vs(p: int) -> None:
    """F = B = W: no bubble in ZB-V; half and two thirds of 1F1B's, (p-1) T, give or take T/6."""
    for m in (2 * p, 3 * p + 1):
        spans = {
            name: span_of(schedule=name, stages=p, microbatches=m, forward="12ms",
                          backward="12ms", weight="12ms") - 36 * m * MS
            for name in ("zb_v", "v_half", "v_min")
        }  # fmt: skip
        assert spans["zb_v"] == 0
        if p > 1:
            assert spans["v_half"] == (p - 1) * 18 * MS - (6 * MS if p % 2 else 0)
            assert spans["v_min"] == (p - 1) * 24 * MS + (-6 * MS if p % 3 else 6 * MS)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 14), (8, 20)])
@pytest.mark.parametrize("times", [(4, 4, 4), (6, 6, 2), (7, 7, 6)])
def test_closed_forms_of_dualpipe(p: int, m: int, times: tuple[int, int, int]) -> None:
    """(p/2 - 1)(FB + B - 3W) beyond the work where F is as long as the input gradient.

    Half of the devices in a V do the same.
    """
    f, b, w = times
    bubble = (p // 2 - 1) * (f + (b + w) + (b + w) - 3 * w)
    given_times = {"forward": f"{f}ms", "backward": f"{b}ms", "weight": f"{w}ms"}
    both_ways = span_of(schedule="dualpipe", stages=p, microbatches=m, **given_times)
    assert both_ways == (m * (f + b + w) + bubble) * MS
    twice = {name: f"{2 * int(time[:-2])}ms" for name, time in given_times.items()}
    vee = span_of(schedule="dualpipev", stages=p // 2, microbatches=m, **twice)
    assert vee == (2 * m * (f + b + w) + bubble) * MS


def test_a_pair_hides_communication_as_far_as_it_is_told() -> None:
    base = {"schedule": "dualpipe", "stages": 4, "microbatches": 8,
            "forward": "4ms", "backward": "4ms", "weight": "2ms"}  # fmt: skip
    apart, together = run(**base), run(**base, overlapped="9ms")
    assert span_of(**base, overlapped="10ms") == span_of(**base)
    assert together.end_time < apart.end_time
    graph = together.graph
    shortened = graph.duration[(graph.phase == Phase.FORWARD) & (graph.duration != 4 * MS)]
    assert set(shortened.tolist()) == {round(9 * MS * 4 / 10)}
    ends_of_pairs = graph.duration[(graph.phase == Phase.BACKWARD) & (graph.duration > 5 * MS)]
    assert {9 * MS - 3_600_000_000} <= set(ends_of_pairs.tolist())


def test_virtual_stages_share_their_devices_time() -> None:
    both = {"schedule": "interleaved_1f1b", "stages": 2, "microbatches": 2, "virtual_stages": 2}
    graph = run(**both, forward=["2ms", "6ms"], backward="4ms").graph
    forward = graph.phase == Phase.FORWARD
    for stage, time in ((0, 1), (1, 3), (2, 1), (3, 3)):
        assert set(graph.duration[forward & (graph.stage == stage)].tolist()) == {time * MS}
    listed = run(**both, forward=["1ms", "2ms", "3ms", "4ms"], backward="4ms").graph
    for stage in range(4):
        chosen = (listed.phase == Phase.FORWARD) & (listed.stage == stage)
        assert set(listed.duration[chosen].tolist()) == {(stage + 1) * MS}


def test_a_wrap_around_has_its_own_delay() -> None:
    """Stage 2 of 4 virtual stages on 2 devices is on device 0 again."""
    both = {"schedule": "interleaved_1f1b", "stages": 3, "microbatches": 3, "virtual_stages": 2,
            "forward": "2ms", "backward": "4ms"}  # fmt: skip
    when = ends(run(**both, p2p=["1ms", "2ms", "7ms"]))
    assert when[Phase.FORWARD, 0, 3][0] == when[Phase.FORWARD, 0, 2][1] + 7 * MS
    assert when[Phase.FORWARD, 0, 2][0] == when[Phase.FORWARD, 0, 1][1] + 2 * MS


def test_a_v_turns_round_without_a_delay() -> None:
    when = ends(run(schedule="zb_v", stages=3, microbatches=1, p2p="5ms", weight="1ms"))
    assert when[Phase.FORWARD, 0, 3][0] == when[Phase.FORWARD, 0, 2][1]
    assert when[Phase.FORWARD, 0, 4][0] == when[Phase.FORWARD, 0, 3][1] + 5 * MS


def test_a_schedule_from_a_file(tmp_path: Path) -> None:
    """Any order can be brought in: here one that runs microbatch 1 before 0."""
    (tmp_path / "mine.csv").write_text("0F1,0F0,,0B1,0B0\n,1F1,1F0,1I1,1W1,1B0\n")
    section = pipeline(stages=2, microbatches=2, schedule="mine.csv", weight="1ms")
    workload = build_pipeline(section, folder=str(tmp_path))
    when = ends(simulate(workload.graph, None, library=make_library(LibrarySection())))
    assert when[Phase.FORWARD, 1, 0] == (0, 2 * MS)
    assert when[Phase.BACKWARD, 1, 1] == (6 * MS, 10 * MS)
    assert when[Phase.WEIGHT, 1, 1] == (10 * MS, 11 * MS)
    assert when[Phase.BACKWARD, 0, 1] == (11 * MS, 16 * MS)
    assert when[Phase.BACKWARD, 1, 0] == (10 * MS, 15 * MS)
    wrong = pipeline(stages=2, microbatches=3, schedule="mine.csv")
    with pytest.raises(
        ScenarioError, match="has 2 ranks and 2 microbatches, the pipeline 2 stages"
    ):
        build_pipeline(wrong, folder=str(tmp_path))


def test_notes_name_the_most_live_microbatches() -> None:
    notes = build_pipeline(pipeline(schedule="interleaved_1f1b", virtual_stages=2)).notes
    assert any("at most 5.5 microbatches live on a device (device 0)" in note for note in notes)


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


@examples(60)
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


@examples(60)
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
        ({"schedule": "zb_w"}, "pipeline.schedule: no schedule 'zb_w'. Did you mean 'zb_v'"),
        (
            {"schedule": "1f1b", "virtual_stages": 3},
            "1f1b has 1 stage per device, but virtual_stages is 3",
        ),
        ({"overlapped": "5ms"}, "pipeline.overlapped: 1f1b runs no forward and backward as one"),
        ({"schedule": "no.csv"}, "pipeline.schedule: no.csv: there is no such file"),
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


@pytest.mark.parametrize(("schedule", "given", "more"), [
    ("1f1b", 3, ""), ("1f1b", 5, ""), ("zb_v", 3, ", or 8 for the virtual stages"),
    ("dualpipe", 8, ""),
])  # fmt: skip
def test_a_list_has_a_time_for_each_stage_or_virtual_stage(
    schedule: str, given: int, more: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        build_pipeline(pipeline(stages=4, forward=["1ms"] * given, schedule=schedule))
    said = f"{given} times for 4 stages. Give one time, or 4 of them{more}."
    assert str(caught.value) == f"pipeline.forward: {said}"


def test_without_a_way_back_it_takes_the_longest_of_the_others() -> None:
    both = {"schedule": "interleaved_1f1b", "stages": 3, "microbatches": 3, "virtual_stages": 2}
    for hops, back in ((["1ms"], 1), (["1ms", "4ms"], 4), (["1ms", "4ms", "2ms"], 2)):
        when = ends(run(**both, forward="2ms", backward="4ms", p2p=hops))
        assert when[Phase.FORWARD, 0, 3][0] == when[Phase.FORWARD, 0, 2][1] + back * MS


def test_virtual_stages_are_interleaved_without_a_word() -> None:
    said = pipeline(virtual_stages=2, microbatches=8, schedule="interleaved_1f1b")
    assert pipeline(virtual_stages=2, microbatches=8) == said


def notes(**settings: Any) -> str:
    base = {"stages": 4, "microbatches": 8, "forward": "1ms", "backward": "1ms", "weight": "1ms"}
    section = decode({**base, **settings}, PipelineSection, "x")
    return "\n".join(build_pipeline(section).notes)


def test_notes_name_what_a_schedule_does_not_use() -> None:
    there_and_back = ["1ms", "1ms", "1ms", "5ms"]
    assert "the last p2p time is not used" in notes(schedule="zb_v", p2p=there_and_back)
    assert "the last p2p time is not used" in notes(schedule="dualpipe", p2p=there_and_back)
    looped = notes(schedule="interleaved_1f1b", virtual_stages=2, p2p=there_and_back)
    assert "not used" not in looped
    two = notes(schedule="interleaved_1f1b", virtual_stages=2, stages=2, p2p=["1ms", "2ms"])
    assert "interleaved_1f1b on 2 devices has no way from the last back to the first" in two
    assert "weight_memory is not used" in notes(schedule="1f1b", weight_memory=0.5)
    assert "weight_memory is not used" in notes(schedule="zb_h1", weight_memory=0.5)
    assert "weight_memory" not in notes(schedule="v_half", weight_memory=0.5)


def test_work_grows_with_stages_and_microbatches_alone() -> None:
    """From 16 to 64 stages: four times the calls for building, running and weighing, not more."""
    weighed(2)  # what is imported and kept once
    calls = [python_calls(partial(weighed, stages)) for stages in (16, 64)]
    assert calls[1] < 4.2 * calls[0]
    assert calls[1] < 12 * (64 * 2 * 8)  # a dozen for each op, most of them of generators


def weighed(stages: int) -> None:
    section = decode(
        {"stages": stages, "microbatches": 8, "forward": "1ms", "backward": "2ms"},
        PipelineSection,
        "pipeline",
    )
    limits(simulate(build_pipeline(section).graph, None, library=Ideal()))
