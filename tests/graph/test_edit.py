"""Graph edits: what moves, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import Graph, GraphBuilder
from commsim.graph.check import validate
from commsim.graph.edit import add_work, insert_work, scale_compute
from commsim.libraries import Recorded

MS = 10**9


@pytest.fixture
def pair() -> Graph:
    """Two ranks: 2 ms (rank 1: 3 ms) of work, an all_reduce of 1 ms, a message, 1 ms more."""
    build = GraphBuilder()
    world = build.group("world", range(2))
    for rank in range(2):
        lane = build.lane(rank)
        first = build.compute(lane, (2 + rank) * MS, name="F")
        reduce = build.collective(
            lane, world, "all_reduce", 64, stream="dp", after=[first], recorded=MS
        )
        if rank == 0:
            message = build.send(lane, 1, 8, group=world, stream="pp", after=[reduce], recorded=3)
        else:
            message = build.recv(lane, 0, 8, group=world, stream="pp", after=[reduce], recorded=3)
        last = build.compute(lane, MS, name="B", after=[(message, 2)])
        build.window(lane, first, last)
    return build.build()


def lane_ends(graph: Graph) -> list[int]:
    timeline = simulate(graph, None, library=Recorded())
    return [int(timeline.end[graph.lane == lane].max()) for lane in range(2)]


def test_scaling_compute_leaves_transfers_and_delays(pair: Graph) -> None:
    assert lane_ends(pair) == [5 * MS + 5, 5 * MS + 5]
    assert lane_ends(scale_compute(pair, 0.5)) == [3 * MS + 5, 3 * MS + 5]
    assert (pair.duration[pair.duration > 0] >= MS).all()


@pytest.mark.parametrize(("factor", "held"), [(2**62 / (3 * MS), True), (2**53, False)])
def test_work_that_no_clock_counts_is_refused(pair: Graph, factor: float, held: bool) -> None:
    if held:
        assert scale_compute(pair, factor).duration.max() == 2**62
    else:
        with pytest.raises(ScenarioError, match=r"compute.scale: work times 9.0072e\+15 takes"):
            scale_compute(pair, factor)


def test_added_work_counts_past_the_slack(pair: Graph) -> None:
    assert lane_ends(add_work(pair, rank=0, before_collective=0, duration=MS)) == [5 * MS + 5] * 2
    assert (
        lane_ends(add_work(pair, rank=0, before_collective=0, duration=3 * MS)) == [7 * MS + 5] * 2
    )
    assert lane_ends(add_work(pair, rank=1, before_collective=0, duration=MS)) == [6 * MS + 5] * 2


def test_inserted_op_waits_for_what_the_next_one_does(pair: Graph) -> None:
    last = int(pair.window[0, 1])
    edited = insert_work(pair, last, 2 * MS)
    validate(edited)
    assert edited.op_name(last) == "added work"
    assert lane_ends(edited) == [7 * MS + 5, 5 * MS + 5]
    assert edited.window.tolist()[0] == [0, last + 1]


@pytest.mark.parametrize("place", range(8))
def test_every_place_keeps_the_graph_whole(pair: Graph, place: int) -> None:
    edited = insert_work(pair, place, 0)
    validate(edited)
    assert lane_ends(edited) == lane_ends(pair)
    names = [edited.describe(op) for op in range(len(edited)) if op != place]
    assert names == [pair.describe(op) for op in range(len(pair))]
    assert np.array_equal(edited.kind[edited.messages.send_op], [2])


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_must_be_positive(pair: Graph, factor: float) -> None:
    with pytest.raises(ScenarioError, match=r"compute\.scale"):
        scale_compute(pair, factor)


def test_a_missing_collective_is_named(pair: Graph) -> None:
    with pytest.raises(ScenarioError, match="rank 0 has 1 collectives"):
        add_work(pair, rank=0, before_collective=1, duration=1)
    with pytest.raises(ScenarioError, match="rank 5 has 0 collectives"):
        add_work(pair, rank=5, before_collective=0, duration=1)
    with pytest.raises(ScenarioError, match="negative"):
        insert_work(pair, 0, -1)
