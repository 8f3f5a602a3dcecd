"""Where the time of a lane goes: compute, exposed communication, exposed copy, idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from helpers.hand_made import timeline
from hypothesis import given
from hypothesis import strategies as st

from commsim.graph import Device, GraphBuilder, Phase, Tags
from commsim.metrics import breakdown, measure
from commsim.metrics.breakdown import Breakdown


def worked_example() -> Breakdown:
    """One lane, 0 to 100: compute 10-40, all-reduce arrive 30, start 50, end 70, copy 60-90."""
    build = GraphBuilder()
    lane = build.lane(0)
    group = build.group("dp", [0])
    build.compute(lane, 1, name="start", device=Device.CPU)
    build.compute(lane, 1, name="work")
    build.collective(lane, group, "all_reduce", 8, stream="comm")
    build.copy(lane, 1, name="copy")
    build.compute(lane, 1, name="end", device=Device.CPU)
    return breakdown(timeline(build, [(0, 1), (10, 40), (30, 50, 70), (60, 90), (99, 100)]))


def test_each_instant_is_the_first_that_holds() -> None:
    parts = worked_example()
    assert parts.compute.tolist() == [30]  # 10-40; host threads are not compute here
    assert parts.exposed_comm.tolist() == [30]  # 40-70
    assert parts.exposed_copy.tolist() == [20]  # 70-90
    assert parts.idle.tolist() == [20]  # 0-10 and 90-100
    assert parts.window.tolist() == [100]


def test_communication_and_wait_are_counted_hidden_or_not() -> None:
    parts = worked_example()
    assert parts.comm.tolist() == [40]
    assert parts.wait.tolist() == [20]
    assert parts.overlap().tolist() == [pytest.approx(1 - 30 / 40)]


def test_a_lane_without_gpu_work_computes_on_its_cpu() -> None:
    build = GraphBuilder()
    first, second = build.lane(0), build.lane(1)
    build.compute(first, 1, name="a", device=Device.CPU)
    build.compute(second, 1, name="b", device=Device.CPU)
    build.compute(second, 1, name="c", stream="gpu")
    parts = breakdown(timeline(build, [(0, 10), (0, 10), (2, 5)]))
    assert parts.compute.tolist() == [10, 3]


def test_two_streams_that_compute_at_once_count_once() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    build.compute(lane, 1, name="a", stream="one")
    build.compute(lane, 1, name="b", stream="two")
    parts = breakdown(timeline(build, [(0, 10), (5, 12)]))
    assert parts.compute.tolist() == [12]


def test_overlap_of_a_lane_that_does_not_communicate_is_not_a_number() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="a")
    assert np.isnan(breakdown(timeline(build, [(0, 10)])).overlap()).tolist() == [True]


def test_spans_are_cut_at_the_window() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    group = build.group("dp", [0])
    optimizer = [
        build.compute(lane, 1, name="O", stream="opt", tags=Tags(Phase.OPTIMIZER, step=step))
        for step in range(2)
    ]
    build.collective(lane, group, "all_reduce", 8, stream="comm")
    assert optimizer == [0, 1]
    parts = breakdown(timeline(build, [(0, 10), (20, 30), (4, 8, 25)]))
    assert parts.window.tolist() == [20]
    assert parts.comm.tolist() == [15]  # 10-25 of 4-25
    assert parts.wait.tolist() == [0]  # 4-8 lies before the window
    assert (parts.compute.tolist(), parts.exposed_comm.tolist()) == ([10], [10])


class Piece(NamedTuple):
    lane: int
    what: str
    arrive: int
    start: int
    end: int


def piece(lane: int, what: str, times: list[int]) -> Piece:
    return Piece(lane, what, *sorted(times))


piece_lists = st.lists(
    st.builds(
        piece,
        st.integers(0, 2),
        st.sampled_from(["gpu", "cpu", "comm", "copy"]),
        st.lists(st.integers(0, 40), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def random_breakdown(pieces: list[Piece], lanes: int = 3) -> Breakdown:
    build = GraphBuilder()
    for rank in range(lanes):
        build.lane(rank)
        build.group(f"g{rank}", [rank])
    times = []
    for number, (lane, what, arrive, start, end) in enumerate(pieces):
        stream = f"s{number}"
        if what == "comm":
            build.collective(lane, lane, "all_reduce", 8, stream=stream)
        elif what == "copy":
            build.copy(lane, 1, name="copy", stream=stream)
        else:
            device = Device.CUDA if what == "gpu" else Device.CPU
            build.compute(lane, 1, name="work", stream=stream, device=device)
        times.append((arrive, start, end))
    return breakdown(timeline(build, times))


@given(piece_lists)
def test_the_four_parts_add_up_to_the_window(pieces: list[Piece]) -> None:
    parts = random_breakdown(pieces)
    total = parts.compute + parts.exposed_comm + parts.exposed_copy + parts.idle
    assert total.tolist() == parts.window.tolist()
    for column in (parts.compute, parts.exposed_comm, parts.exposed_copy, parts.idle):
        assert column.min() >= 0
    assert np.all(parts.exposed_comm <= parts.comm)
    assert np.all(parts.wait <= parts.comm)


@given(piece_lists)
def test_parts_agree_with_counting_instants(pieces: list[Piece]) -> None:
    parts = random_breakdown(pieces)
    first = min(p.arrive for p in pieces)
    last = max(p.end for p in pieces)
    has_gpu = {p.lane for p in pieces if p.what == "gpu"}
    for lane in range(3):
        counts = {"compute": 0, "comm": 0, "copy": 0, "idle": 0}
        for now in range(first, last):
            here = [p for p in pieces if p.lane == lane and p.arrive <= now < p.end]
            works = "gpu" if lane in has_gpu else "cpu"
            if any(p.what == works and p.start <= now for p in here):
                counts["compute"] += 1
            elif any(p.what == "comm" for p in here):
                counts["comm"] += 1
            elif any(p.what == "copy" and p.start <= now for p in here):
                counts["copy"] += 1
            else:
                counts["idle"] += 1
        found = (parts.compute, parts.exposed_comm, parts.exposed_copy, parts.idle)
        assert [int(column[lane]) for column in found] == list(counts.values())


@given(piece_lists, st.randoms())
def test_order_of_spans_does_not_matter(pieces: list[Piece], random: st.DataObject) -> None:
    shuffled = list(pieces)
    random.shuffle(shuffled)
    before, after = random_breakdown(pieces), random_breakdown(shuffled)
    for column in ("compute", "exposed_comm", "exposed_copy", "idle", "comm", "wait"):
        assert getattr(before, column).tolist() == getattr(after, column).tolist()


@given(st.integers(1, 5), st.integers(1, 50), st.integers(1, 50))
def test_a_lane_of_multiplicity_k_weighs_like_k_lanes(k: int, short: int, long: int) -> None:
    def run(lanes: list[tuple[int, int]]) -> dict[str, object]:
        build = GraphBuilder()
        times, rank = [], 0
        for multiplicity, duration in lanes:
            build.compute(build.lane(rank, multiplicity=multiplicity), 1, name="w")
            times.append((0, duration))
            rank += multiplicity
        return measure(timeline(build, times)).to_dict()

    folded = run([(k, short), (1, long)])
    spread = run([(1, short)] * k + [(1, long)])
    assert folded["breakdown"] == pytest.approx(spread["breakdown"])  # type: ignore[arg-type]
    assert folded["step_time_s"] == spread["step_time_s"]
