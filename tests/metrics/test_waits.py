"""Who waits for whom: the peers add up to the waiting of the account."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import timeline

from commsim.graph import GraphBuilder, Phase, Tags
from commsim.metrics import measure, waits
from commsim.study.run import run

SLOW_RANK: dict[str, Any] = {
    "cluster": {"preset": "dgx-h100"},
    "workload": {
        "program": {
            "ranks": {
                "all": [{"compute": "1ms"}, {"all_reduce": {"bytes": "1MiB"}}],
                3: [{"compute": "4ms"}, {"all_reduce": {"bytes": "1MiB"}}],
            }
        }
    },
}


def test_a_slow_rank_is_named_by_all_others_as_skew() -> None:
    found = waits(run(SLOW_RANK).timeline)
    assert {one.peer for one in found} == {3}
    assert sorted(one.rank for one in found) == [0, 1, 2, 4, 5, 6, 7]
    assert {one.kind for one in found} == {"skew"}
    assert [one.seconds for one in found] == pytest.approx([3e-3] * 7)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "dp-pp", "zero-bubble", "p2p-blocking"])
def test_the_peers_add_up_to_the_waiting_of_each_rank(name: str) -> None:
    result = run(name)
    step = result.metrics.step_time_s
    told = {row.rank: 0.0 for row in result.metrics.ranks}
    for one in result.waits:
        told[one.rank] += one.seconds
    for row in result.metrics.ranks:
        # waits for one peer under 0.1 % of the step are left out
        assert told[row.rank] == pytest.approx(row.waiting_s, abs=0.001 * step * len(told))


def test_a_pipeline_waits_for_other_stages_and_calls_it_bubble() -> None:
    found = run("1f1b").waits
    assert {one.kind for one in found} == {"bubble"}
    first = [one for one in found if one.rank == 3]  # it waits for its first activation
    assert {one.stage for one in first} <= {0, 1, 2}
    assert run("1f1b").to_dict()["waits"][0].keys() == {"rank", "peer", "stage", "kind", "seconds"}


def test_two_waits_at_once_count_once() -> None:
    """Rank 0 waits in two messages from 0 on, until 10 and until 30."""
    build = GraphBuilder()
    pair = build.group("pair", [0, 1])
    build.lane(0), build.lane(1)
    for at, stream in enumerate(("a", "b")):
        build.recv(0, 1, 8, group=pair, stream=stream, tag=at)
        build.send(1, 0, 8, group=pair, stream=stream, tag=at)
    line = timeline(build, [(0, 10, 12), (10, 10, 12), (0, 30, 32), (30, 30, 32)])
    (one,) = (found for found in waits(line) if found.rank == 0)
    assert one.peer == 1
    assert one.seconds == pytest.approx(28e-12)  # 2 of the 30 move the first
    assert measure(line).ranks[0].waiting_s == pytest.approx(28e-12)


def test_nobody_waits_in_an_empty_run() -> None:
    assert waits(timeline(GraphBuilder(), [])) == ()


def test_a_peer_of_the_same_stage_or_of_none_is_skew_and_of_another_a_bubble() -> None:
    """Ranks 0 and 1 are stage 0, rank 2 is stage 1, rank 3 is of no stage; pairs meet one by one.

    Rank 0 waits 100 ps for 1, then 1 waits 80 ps for 2, 2 waits 60 ps for 0, 2 waits 50 ps for 3
    and 3 waits 40 ps for 2.
    """
    build, times = GraphBuilder(), []
    met = [
        ((0, 1), (0, 100), 100), ((1, 2), (110, 190), 190), ((2, 0), (200, 260), 260),
        ((2, 3), (270, 320), 320), ((3, 2), (330, 370), 370),
    ]  # fmt: skip
    groups = [build.group(f"pair{at}", sorted(pair)) for at, (pair, *_) in enumerate(met)]
    for rank, stage in enumerate((0, 0, 1, -1)):
        lane = build.lane(rank)
        tags = Tags(Phase.FORWARD, stage=stage)
        for group, (pair, came, start) in zip(groups, met, strict=True):
            if rank in pair:
                build.collective(lane, group, "all_reduce", 8, stream="comm", tags=tags)
                times.append((came[pair.index(rank)], start, start + 10))
    found = [(one.rank, one.peer, one.stage, one.kind) for one in waits(timeline(build, times))]
    assert (0, 1, 0, "skew") in found
    assert (1, 2, 1, "bubble") in found
    assert (2, 0, 0, "bubble") in found
    assert (2, 3, None, "skew") in found
    assert (3, 2, 1, "skew") in found


def meetings_of_two(*late: int, until: int) -> list[tuple[int, int, int]]:
    """Return (rank, peer, ps) where ranks 2i and 2i + 1 meet, the second so many ps after 0."""
    build, times = GraphBuilder(), []
    for at, ps in enumerate(late):
        group = build.group(f"pair{at}", [2 * at, 2 * at + 1])
        for rank, came in ((2 * at, 0), (2 * at + 1, ps)):
            lane = build.lane(rank)
            build.collective(lane, group, "all_reduce", 8, stream="comm")
            build.compute(lane, 1, name="work")
            times += [(came, ps, ps), (ps, until)]
    found = waits(timeline(build, times))
    return [(one.rank, one.peer, round(one.seconds * 1e12)) for one in found]


def test_a_thousandth_of_the_step_is_told_and_less_is_not() -> None:
    assert meetings_of_two(99, 100, 101, until=100_000) == [(4, 5, 101), (2, 3, 100)]


def test_the_longest_comes_first_and_equal_ones_by_rank() -> None:
    assert meetings_of_two(30, 50, 30, until=100) == [(2, 3, 50), (0, 1, 30), (4, 5, 30)]


def test_a_gap_before_the_first_op_is_for_the_lane_that_ended_it() -> None:
    """Rank 0 begins at 50, after rank 1's work; rank 2 is at work until the end."""
    build = GraphBuilder()
    for rank in range(3):
        build.lane(rank)
    first = build.compute(0, 50, name="after")
    before = build.compute(1, 50, name="before")
    build.compute(2, 100, name="long")
    build.depend(first, before)
    found = waits(timeline(build, [(50, 100), (0, 50), (0, 100)]))
    assert [(one.rank, one.peer) for one in found] == [(0, 1)]
    assert found[0].seconds == pytest.approx(50e-12)
