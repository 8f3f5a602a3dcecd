"""The account of a lane's time: each instant is exactly one part."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from helpers.hand_made import timeline
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.graph import Device, GraphBuilder, Phase, Tags
from commsim.metrics import PARTS, breakdown, measure
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
    assert parts.exposed_transfer.tolist() == [20]  # 50-70
    assert parts.waiting.tolist() == [10]  # 40-50; 30-40 hides under compute
    assert parts.exposed_copy.tolist() == [20]  # 70-90
    assert parts.host.tolist() == [10]  # 0-10: the CPU work before it on its stream
    assert parts.idle.tolist() == [10]  # 90-100
    assert parts.window.tolist() == [100]


def test_communication_is_the_time_in_which_bytes_move_hidden_or_not() -> None:
    build = GraphBuilder()
    lane, group = build.lane(0), build.group("dp", [0])
    build.compute(lane, 1, name="work")
    build.collective(lane, group, "all_reduce", 8, stream="comm")
    parts = breakdown(timeline(build, [(0, 40), (10, 20, 70)]))
    assert parts.comm.tolist() == [50]
    assert parts.overlap().tolist() == [pytest.approx(20 / 50)]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_gap_that_another_lane_ends_is_waiting_for_a_peer(order: list[int]) -> None:
    """Whichever span comes first."""
    build = GraphBuilder()
    first, second = build.lane(0), build.lane(1)
    given = build.compute(first, 1, name="F0")
    build.compute(second, 1, name="F1", after=[(given, 2)])
    line = timeline(build, [(0, 10), (12, 20)])
    turned = replace(
        line, op=line.op[order], arrive=line.arrive[order], start=line.start[order],
        end=line.end[order],
    )  # fmt: skip
    parts = breakdown(turned)
    assert parts.waiting.tolist() == [0, 10]
    assert parts.exposed_transfer.tolist() == [0, 2]  # on its way for a time that is given
    assert parts.overlap()[1] == 0
    assert parts.idle.tolist() == [10, 0]  # 10-20 of the first: nothing left, and no pipeline


def test_a_gap_that_the_own_cpu_ends_is_waiting_for_the_host() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    build.compute(lane, 1, name="a", stream="gpu")
    launch = build.compute(lane, 1, name="launch", stream="cpu", device=Device.CPU)
    build.compute(lane, 1, name="b", stream="gpu", after=[(launch, 3)])
    build.compute(lane, 1, name="c", stream="gpu", after=[(launch, 3)])
    parts = breakdown(timeline(build, [(0, 10), (5, 15), (18, 20), (24, 30)]))
    assert parts.host.tolist() == [8]  # 10-18: launched at 15, and 3 later there
    assert parts.idle.tolist() == [4]  # 20-24: the op before it on its stream ended last


def test_a_stage_that_is_done_waits_for_the_others() -> None:
    build = GraphBuilder()
    for stage in range(2):
        build.lane(stage)
        build.compute(stage, 1, name="F", tags=Tags(Phase.FORWARD, stage=stage))
    parts = breakdown(timeline(build, [(0, 10), (0, 30)]))
    assert parts.waiting.tolist() == [20, 0]
    assert parts.idle.tolist() == [0, 0]


def test_the_first_op_of_a_pipeline_waits_for_its_own_launch() -> None:
    """Op 0 of stage 0 is launched by 10; stage 1 begins at 20, and rank 2 is no stage."""
    build = GraphBuilder()
    for rank in range(3):
        build.lane(rank)
    first = build.compute(0, 1, name="F0", stream="gpu", tags=Tags(Phase.FORWARD, stage=0))
    launch = build.compute(0, 1, name="launch", stream="cpu", device=Device.CPU)
    build.compute(1, 1, name="F1", after=[(first, 0)], tags=Tags(Phase.FORWARD, stage=1))
    build.compute(2, 1, name="other")
    build.depend(first, launch)
    parts = breakdown(timeline(build, [(10, 20), (0, 10), (20, 30), (0, 5)]))
    assert parts.host.tolist() == [10, 0, 0]
    assert parts.waiting.tolist() == [10, 20, 0]  # a stage that is done, and one that begins
    assert parts.idle.tolist() == [0, 0, 25]


def test_a_message_that_cannot_move_yet_is_waiting_and_a_late_one_is_not() -> None:
    """The receiver waits from 2 to 10; the sender, which comes last, never."""
    build = GraphBuilder()
    pair = build.group("pp", [0, 1])
    build.lane(0), build.lane(1)
    build.compute(0, 1, name="F")
    build.send(0, 1, 8, group=pair, stream="p2p")
    build.recv(1, 0, 8, group=pair, stream="p2p")
    parts = breakdown(timeline(build, [(0, 10), (10, 14), (2, 10, 14)]))
    assert parts.waiting.tolist() == [0, 8]
    assert parts.exposed_transfer.tolist() == [4, 4]


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
    assert parts.comm.tolist() == [15]  # 10-25 of 8-25
    assert parts.waiting.tolist() == [0]  # 4-8 lies before the window
    assert (parts.compute.tolist(), parts.exposed_transfer.tolist()) == ([10], [10])


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
def test_the_parts_add_up_to_the_window(pieces: list[Piece]) -> None:
    parts = random_breakdown(pieces)
    columns = [getattr(parts, part) for part in PARTS]
    assert sum(columns).tolist() == parts.window.tolist()
    assert min(column.min() for column in columns) >= 0
    assert np.all(parts.exposed_transfer <= parts.comm)


@given(piece_lists)
def test_parts_agree_with_counting_instants(pieces: list[Piece]) -> None:
    parts = random_breakdown(pieces)
    first = min(p.arrive for p in pieces)
    last = max(p.end for p in pieces)
    has_gpu = {p.lane for p in pieces if p.what == "gpu"}
    for lane in range(3):
        counts = dict.fromkeys(PARTS, 0)
        for now in range(first, last):
            here = [p for p in pieces if p.lane == lane and p.arrive <= now < p.end]
            works = "gpu" if lane in has_gpu else "cpu"
            if any(p.what == works and p.start <= now for p in here):
                counts["compute"] += 1
            elif any(p.what == "comm" and p.start <= now for p in here):
                counts["exposed_transfer"] += 1
            elif any(p.what == "copy" and p.start <= now for p in here):
                counts["exposed_copy"] += 1
            elif any(p.what == "comm" for p in here):
                counts["waiting"] += 1
            else:
                counts["idle"] += 1
        assert {part: int(getattr(parts, part)[lane]) for part in PARTS} == counts


@given(piece_lists, st.randoms())
def test_order_of_spans_does_not_matter(pieces: list[Piece], random: Random) -> None:
    shuffled = list(pieces)
    random.shuffle(shuffled)
    before, after = random_breakdown(pieces), random_breakdown(shuffled)
    for column in (*PARTS, "comm"):
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
    assert folded["breakdown"] == pytest.approx(spread["breakdown"])
    assert folded["step_time_s"] == spread["step_time_s"]
