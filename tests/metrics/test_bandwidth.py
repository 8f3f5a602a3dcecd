"""algbw, busbw, wait and exposure of collectives and messages."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.hand_made import timeline

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.metrics import bandwidths, instances
from commsim.metrics.window import Window
from commsim.timeline import Timeline

US = 10**6


def two_ranks(*, multiplicity: tuple[int, int] = (1, 1)) -> Timeline:
    """Two all-reduces of 1 MB on two ranks; rank 1 comes 4 us late to the first."""
    build = GraphBuilder()
    world = build.group("world", [0, 1])
    for rank in range(2):
        lane = build.lane(rank, multiplicity=multiplicity[rank])
        for _ in range(2):
            build.collective(lane, world, "all_reduce", 10**6, stream="comm")
        build.compute(lane, 1, name="work")
    rank0 = [(0, 4 * US, 14 * US), (20 * US, 20 * US, 30 * US), (2 * US, 8 * US)]
    rank1 = [(4 * US, 4 * US, 14 * US), (20 * US, 20 * US, 30 * US), (0, US)]
    return timeline(build, rank0 + rank1)


def test_time_and_wait_are_sums_over_instances_of_means_over_members() -> None:
    (use,) = bandwidths(two_ranks())
    assert (use.op, use.group, use.count, use.bytes) == ("all_reduce", "world", 2, 2 * 10**6)
    assert use.time == (14 + 10) / 2 * US + 10 * US
    assert use.wait == 2 * US


def test_bandwidths_are_of_the_transfer_without_the_wait() -> None:
    (use,) = bandwidths(two_ranks())
    assert use.algbw == pytest.approx(2e6 / 20e-6)
    assert use.busbw == pytest.approx(2e6 / 20e-6)  # 2 (n-1)/n is 1 for two ranks


def test_busbw_of_eight_ranks_has_nccl_tests_factor() -> None:
    for kind, factor in (("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8)):
        build = GraphBuilder()
        world = build.group("world", range(8))
        for rank in range(8):
            build.collective(build.lane(rank), world, kind, 8000, stream="comm")
        (use,) = bandwidths(timeline(build, [(0, US)] * 8))
        assert use.algbw == pytest.approx(8e9)
        assert use.busbw == pytest.approx(8e9 * factor)


def test_exposed_is_what_no_compute_of_the_same_rank_covers() -> None:
    # Rank 0 hides 2-8 us of its first 14 us; rank 1 computes before it arrives.
    assert instances(two_ranks()).exposed.tolist() == [(8 + 10) / 2 * US, 10 * US]
    assert bandwidths(two_ranks())[0].exposed == 19 * US


def test_means_over_members_weigh_multiplicity() -> None:
    (use,) = bandwidths(two_ranks(multiplicity=(3, 1)))
    assert use.wait == 3 * US


def test_instances_know_first_arrival_start_and_last_end() -> None:
    found = instances(two_ranks())
    assert found.op == ("all_reduce", "all_reduce")
    assert found.arrive.tolist() == [0, 20 * US]
    assert found.start.tolist() == [4 * US, 20 * US]
    assert found.end.tolist() == [14 * US, 30 * US]
    assert found.transfer.tolist() == [10 * US, 10 * US]


def test_a_message_counts_as_send_recv_of_its_group() -> None:
    build = GraphBuilder()
    pair = build.group("pair", [0, 1])
    build.collective(build.lane(0), pair, "barrier", 0, stream="s")
    build.collective(build.lane(1), pair, "barrier", 0, stream="s")
    build.send(0, 1, 3000, group=pair, stream="p2p")
    build.recv(1, 0, 3000, group=pair, stream="p2p")
    uses = bandwidths(timeline(build, [(0, 1), (0, 1), (5 * US, 6 * US), (3 * US, 5 * US, 6 * US)]))
    assert [(use.op, use.count, use.bytes) for use in uses] == [
        ("barrier", 1, 0),
        ("send_recv", 1, 3000),
    ]
    assert uses[1].wait == US
    assert uses[1].busbw == uses[1].algbw == pytest.approx(3e9)
    assert uses[0].busbw is None


def test_groups_and_ops_are_kept_apart_in_order_of_appearance() -> None:
    build = GraphBuilder()
    a, b = build.group("a", [0]), build.group("b", [0])
    lane = build.lane(0)
    for group, kind in ((b, "all_gather"), (a, "all_gather"), (b, "all_reduce"), (b, "all_gather")):
        build.collective(lane, group, kind, 8, stream="s")
    uses = bandwidths(timeline(build, [(k, k + 1) for k in range(4)]))
    assert [(use.op, use.group, use.count) for use in uses] == [
        ("all_gather", "b", 2),
        ("all_gather", "a", 1),
        ("all_reduce", "b", 1),
    ]


def test_of_training_only_what_ends_in_the_measured_step_counts() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    group = build.group("dp", [0])
    times = []
    for step in range(2):
        build.compute(lane, 1, name="O", tags=Tags(Phase.OPTIMIZER, step=step))
        times.append((100 * step + 90, 100 * step + 100))
    for end in (100, 101, 200, 201):
        build.collective(lane, group, "all_reduce", end, stream="comm")
        times.append((end - 20, end))
    assert instances(timeline(build, times)).size.tolist() == [101, 200]


def test_nothing_said_nothing_found() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="x")
    assert bandwidths(timeline(build, [(0, 5)])) == ()


def test_rows_of_collectives_and_of_messages_are_numbered_apart() -> None:
    build = GraphBuilder()
    pair = build.group("pair", [0, 1])
    lanes = [build.lane(rank) for rank in range(2)]
    for _ in range(2):
        for lane in lanes:
            build.collective(lane, pair, "all_gather", 0, stream="s")
        build.send(0, 1, 1, group=pair, stream="p2p")
        build.recv(1, 0, 1, group=pair, stream="p2p")
    # gathers of nothing take time, one message takes none and the other a ps
    times = [(0, 5), (0, 5), (5, 5), (5, 5), (6, 9), (6, 9), (9, 10), (9, 10)]
    made = timeline(build, times)
    found = instances(made)
    assert found.op == ("all_gather", "all_gather", "send_recv", "send_recv")
    assert found.item.tolist() == [0, 1, 0, 1]
    assert found.size.tolist() == [0, 0, 1, 1]
    gathers, messages = bandwidths(made)
    assert (gathers.algbw, gathers.busbw) == (None, None)
    assert (messages.bytes, messages.algbw, messages.busbw) == (2, 2e12, 2e12)


def test_a_byte_in_a_ps_is_a_speed_and_no_time_is_none() -> None:
    for end, speed in ((6, 1e12), (5, None)):
        build = GraphBuilder()
        pair = build.group("pair", [0, 1])
        for rank in range(2):
            build.collective(build.lane(rank), pair, "broadcast", 1, stream="s", root=0)
        (use,) = bandwidths(timeline(build, [(5, end)] * 2))
        assert use.algbw == speed


@pytest.mark.parametrize(
    ("step", "begin", "end", "first", "last", "counted"),
    [
        # two all-reduces that end at 14 and 30 us on both ranks
        (-1, 14, 30, 0, 30, [0, 1]),
        (-1, 15, 30, 0, 30, [1]),
        (-1, 0, 29, 0, 30, [0]),
        # of a step: those that end after its begin, until its end
        (0, 0, 40, 14, 30, [1]),
        (0, 0, 40, 13, 29, [0]),
        (1, 0, 40, 14, 30, [1]),
    ],
)
def test_what_ends_in_the_window_counts(
    step: int, begin: int, end: int, first: int, last: int, counted: list[int]
) -> None:
    lanes = np.array([1, 1])
    window = Window(begin * US * lanes, end * US * lanes, step, first * US, last * US, 0)
    assert instances(two_ranks(), window=window).item.tolist() == counted
