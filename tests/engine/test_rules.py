"""The rules of the engine, one by one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from helpers.star import US, Star
from msgspec.structs import replace

import commsim as cs
from commsim.cluster import Cluster
from commsim.engine import Engine, simulate
from commsim.errors import DeadlockError, ScenarioError
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal, Plan, Recorded, Request
from commsim.libraries.plan import PlanPart, PlanPhase, Start
from commsim.timeline import Cause, Timeline

MS = 10**9
MIB = 2**20


def run(build: GraphBuilder, *, n: int = 2, network: str = "fluid") -> Timeline:
    return simulate(build.build(), Star(n), library=Ideal("ring"), network=network)


def lanes(n: int) -> tuple[GraphBuilder, int]:
    build = GraphBuilder()
    world = build.group("world", range(n))
    for rank in range(n):
        build.lane(rank)
    return build, world


def test_ops_of_a_stream_run_in_order_and_streams_overlap() -> None:
    build, _ = lanes(1)
    build.compute(0, 2 * MS, name="a")
    build.compute(0, 3 * MS, name="b")
    build.compute(0, 4 * MS, name="c", stream="other")
    timeline = run(build)
    assert timeline.start.tolist() == [0, 2 * MS, 0]
    assert timeline.end.tolist() == [2 * MS, 5 * MS, 4 * MS]
    assert timeline.cause.tolist() == [-1, 0, -1]


def test_a_dependency_holds_with_its_delay() -> None:
    build, _ = lanes(2)
    first = build.compute(0, 2 * MS, name="a")
    build.compute(1, MS, name="b", after=[(first, 500)])
    timeline = run(build)
    assert timeline.start[1] == 2 * MS + 500
    assert (timeline.cause[1], timeline.cause_kind[1]) == (0, Cause.DEPENDENCY)


def test_early_members_wait_and_the_last_one_is_the_cause() -> None:
    build, world = lanes(3)
    for lane in range(3):
        build.compute(lane, (lane + 1) * MS, name="work")
        build.collective(lane, world, "all_reduce", MIB, stream="compute")
    timeline = run(build, n=3)
    comm = timeline.communicates
    assert timeline.arrive[comm].tolist() == [MS, 2 * MS, 3 * MS]
    assert timeline.start[comm].tolist() == [3 * MS] * 3
    assert timeline.cause[comm].tolist() == [5, 5, 4]
    assert timeline.cause_kind[comm].tolist() == [Cause.RENDEZVOUS, Cause.RENDEZVOUS, Cause.STREAM]


def test_one_collective_of_a_group_at_a_time_in_issue_order() -> None:
    build, world = lanes(2)
    for lane in range(2):
        build.collective(lane, world, "all_reduce", MIB, stream="a")
        build.collective(lane, world, "all_reduce", MIB, stream="b")
    timeline = run(build)
    first_end = timeline.end[0]
    assert timeline.start.tolist() == [0, first_end, 0, first_end]
    assert timeline.cause_kind[1] == Cause.QUEUE


def test_groups_overlap_and_share_links() -> None:
    build, world = lanes(2)
    other = build.group("other", range(2))
    for lane in range(2):
        build.collective(lane, world, "all_reduce", 100 * MIB, stream="a")
        build.collective(lane, other, "all_reduce", 100 * MIB, stream="b")
    timeline = run(build)
    alone = 2 * (2 * US + 50 * MIB / 1e9 * 1e12)
    assert timeline.start.tolist() == [0] * 4
    assert timeline.end[0] == pytest.approx(2 * alone, rel=1e-3)


def test_a_broadcast_meets_a_late_member_when_its_data_gets_there() -> None:
    """The root starts at once; only who is behind the late member waits for it."""
    build, world = lanes(4)
    build.compute(3, 50 * MS, name="late")
    for lane in range(4):
        build.collective(lane, world, "broadcast", MIB, stream="compute", root=0)
    for network in ("fluid", "steps"):
        timeline = run(build, n=4, network=network)
        comm = timeline.communicates
        assert timeline.start[comm][0] == 0
        assert timeline.start[comm][3] == 50 * MS
        assert timeline.end[comm][0] < 10 * MS or network == "fluid"
        assert timeline.end[comm][3] > 50 * MS


@pytest.mark.parametrize("root", range(4))
def test_who_waits_for_data_does_not_depend_on_who_asked_first(root: int) -> None:
    """Members of a broadcast move once the data reaches them, before or behind the root's call."""
    build, world = lanes(4)
    for lane in range(4):
        build.compute(lane, MS if lane == root else 0, name="ready")
    for lane in range(4):
        build.collective(lane, world, "broadcast", MIB, stream="compute", root=root)
    timeline = run(build, n=4)
    start = timeline.start[timeline.communicates]
    chain = [int(start[(root + step) % 4]) for step in range(4)]
    assert chain[:2] == [MS, MS]  # the first transfer takes both
    piece = chain[2] - chain[1]
    assert piece > 0
    assert chain[3] - chain[2] == pytest.approx(piece, abs=2)


class Reached(Ideal):
    """Plans in which the data reaches the last member at their very end."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        plan = super().plan(request, cluster)
        joins = np.array([0, 0, plan.parts[0].idle])
        return replace(plan, parts=(replace(plan.parts[0], joins=joins),))


def test_whom_data_reaches_at_the_end_starts_there() -> None:
    """A picosecond before, so that the end waits for it."""
    build, world = lanes(3)
    for lane in range(3):
        build.collective(lane, world, "broadcast", MIB, stream="compute", root=0)
    timeline = simulate(build.build(), Star(3), library=Reached("ring"))
    assert timeline.start[2] == timeline.end[2] - 1
    assert timeline.end[2] == timeline.end.max()


class Leaving(Ideal):
    """Two phases of 100 and 200 ps over links of 1 byte per ps; members leave at given times."""

    def __init__(self, *leaves: int) -> None:
        super().__init__("ring")
        self.leaves = np.array(leaves)

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        one, link = np.ones(1), np.zeros(1, np.int64)
        phases = (PlanPhase(100, link, 100 * one, one, 10, 5), PlanPhase(200, link, 200 * one, one))
        return Plan((PlanPart(phases, np.zeros(3, np.int64), self.leaves),), Start.ALL, 3)


@pytest.mark.parametrize("early", [10, 11, 60, 109, 115, 116, 215, 314])
def test_members_leave_at_their_times_in_any_phase(early: int) -> None:
    """The data moves from 10 to 110 ps and from 115 to 315."""
    build, world = lanes(3)
    for lane in range(3):
        build.collective(lane, world, "broadcast", 300, stream="compute", root=0)
    found = simulate(build.build(), Star(3, 1e12), library=Leaving(early, 315, 315))
    assert found.end.tolist() == [early, 315, 315]


def test_a_broadcast_of_nothing_waits_for_whom_it_reaches_last() -> None:
    """Nothing moves, so the last member joins as it ends; it is late, and is waited for."""
    ranks = {
        str(rank): [
            {"compute": f"{start}us"},
            {"broadcast": {"group": "three", "bytes": 0, "root": 4, "as": "h"}},
            {"wait": "h"},
        ]
        for rank, start in ((4, 700), (14, 1700), (15, 1900))
    }
    program = {"groups": {"three": [4, 14, 15]}, "ranks": ranks}
    cluster = {"preset": "dgx-h100", "nodes": 2}
    found = cs.run({"cluster": cluster, "workload": {"program": program}})
    assert found.timeline.end.max() == pytest.approx(1900 * US, abs=US / 100)


def test_a_message_moves_when_both_ends_are_posted() -> None:
    build, world = lanes(2)
    build.compute(1, 3 * MS, name="late")
    build.send(0, 1, MIB, group=world, stream="compute")
    build.recv(1, 0, MIB, group=world, stream="compute")
    timeline = run(build)
    expected = 3 * MS + 2 * US + MIB / 1e9 * 1e12
    assert timeline.end[1:] == pytest.approx([expected, expected], abs=1)
    assert timeline.arrive[1:].tolist() == [0, 3 * MS]
    assert set(timeline.links.op.tolist()) == {1}  # the sender's, who came first


def test_a_batch_starts_together_and_ends_together() -> None:
    """Exchange in one batch: in order on one stream it would deadlock."""
    build, world = lanes(2)
    for lane in range(2):
        batch = build.batch()
        build.send(lane, 1 - lane, MIB, group=world, stream="p2p", batch=batch)
        build.recv(lane, 1 - lane, MIB, group=world, stream="p2p", batch=batch)
        build.compute(lane, MS, name="after", stream="p2p")
    timeline = run(build)
    transfer = 2 * US + MIB / 1e9 * 1e12
    assert timeline.end == pytest.approx([transfer, transfer, transfer + MS] * 2, abs=1)


def test_lane_offsets_delay_the_first_ops() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0, offset=7 * MS), MS, name="a")
    assert run(build).start.tolist() == [7 * MS]


def two_that_receive_first() -> Graph:
    build, world = lanes(2)
    for lane in range(2):
        build.recv(lane, 1 - lane, MIB, group=world, stream="compute")
        build.send(lane, 1 - lane, MIB, group=world, stream="compute")
    return build.build()


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_a_deadlock_names_ranks_ops_and_the_cycle(network: str) -> None:
    with pytest.raises(DeadlockError) as caught:
        simulate(two_that_receive_first(), Star(2), library=Ideal(), network=network)
    text = str(caught.value)
    assert "rank 0: recv from rank 1, waits for rank 1" in text
    assert "rank 1: recv from rank 0, waits for rank 0" in text
    assert "Cycle: rank 0 -> rank 1 -> rank 0." in text
    assert caught.value.exit_code == 4


def test_a_collective_that_a_rank_never_issues() -> None:
    build, world = lanes(3)
    build.compute(2, MS, name="busy")
    for lane in range(2):
        build.collective(lane, world, "all_reduce", MIB, stream="compute")
    with pytest.raises(DeadlockError, match="waits for rank 2") as caught:
        run(build, n=3)
    assert "No cycle" in str(caught.value)


def test_recorded_times_are_played_back_without_a_cluster() -> None:
    build, world = lanes(2)
    for lane in range(2):
        build.collective(lane, world, "all_reduce", MIB, stream="c", recorded=1234)
    timeline = simulate(build.build(), None, library=Recorded())
    assert timeline.end.tolist() == [1234, 1234]


def test_more_ranks_than_gpus_is_an_error() -> None:
    build, _ = lanes(4)
    build.compute(3, MS, name="a")
    for ranks in (2, 3):
        with pytest.raises(
            ScenarioError, match=rf"rank 3, .* {ranks} GPUs \(ranks 0 to {ranks - 1}\)"
        ):
            simulate(build.build(), Star(ranks), library=Ideal())
    assert simulate(build.build(), Star(4), library=Ideal()).end_time == MS


def test_a_twenty_line_behaviour_of_ones_own() -> None:
    """Another tenant keeps the sending link of GPU 0 busy: the message takes twice as long."""
    build, world = lanes(2)
    build.send(0, 1, 100 * MIB, group=world, stream="c")
    build.recv(1, 0, 100 * MIB, group=world, stream="c")

    def tenant(engine: Engine) -> Generator[Any, Any, None]:
        yield engine.network.start(
            PlanPhase(1, np.array([0]), np.array([200.0 * MIB]), np.ones(1))
        ).reach(1.0)

    alone = run(build)
    shared = simulate(build.build(), Star(2), library=Ideal(), extensions=[tenant])
    assert shared.end_time == pytest.approx(2 * alone.end_time, rel=1e-3)
    assert set(shared.links.op.tolist()) == {-1, 0}  # the tenant's traffic is no op's
    steps = simulate(build.build(), Star(2), library=Ideal(), network="steps", extensions=[tenant])
    assert set(steps.links.op.tolist()) == {-1, 0}


def test_memory_is_taken_at_the_start_and_returned_at_the_end() -> None:
    build, _ = lanes(1)
    build.compute(0, MS, name="f", alloc=100)
    build.compute(0, MS, name="b", free=100)
    memory = run(build).memory
    assert memory.time.tolist() == [0, 2 * MS]
    assert memory.held.tolist() == [100, 0]


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_traffic_says_which_op_it_moves(network: str) -> None:
    build, world = lanes(2)
    build.compute(0, MS, name="a")
    for lane in range(2):
        build.collective(lane, world, "all_reduce", MIB, stream="compute")
    timeline = run(build, network=network)
    assert set(timeline.links.op.tolist()) <= {1, 2}
    assert len(timeline.links.op) == len(timeline.links.flow) > 0


def test_the_latest_of_several_dependencies_counts_with_its_delay() -> None:
    build, _ = lanes(3)
    early = build.compute(0, MS, name="a")
    late = build.compute(1, 2 * MS, name="b")
    build.compute(2, MS, name="c", after=[(early, 5 * MS), late])
    timeline = run(build, n=3)
    assert timeline.start[2] == 6 * MS
    assert timeline.cause[2] == early


@pytest.mark.parametrize("batched", [0, 1])
def test_ops_come_in_the_order_in_which_their_dependency_lists_them(batched: int) -> None:
    """Of two equal messages that end together the second to begin is what the last waited for.

    Whichever of them is one of a batch: neither comes later than as soon as it can.
    """
    build, world = lanes(4)
    work = build.compute(0, MS, name="work", stream="w")
    build.recv(1, 0, MIB, group=world, stream="s")
    build.recv(3, 2, MIB, group=world, stream="s")
    first, second = (
        build.send(
            rank, rank + 1, MIB, group=world, stream="s", after=[work],
            batch=build.batch() if at == batched else -1,
        )
        for at, rank in enumerate((0, 2))
    )  # fmt: skip
    op = build.compute(0, MS, name="last", stream="w", after=[first, second])
    timeline = run(build, n=4)
    assert timeline.arrive[first] == timeline.arrive[second] == MS
    assert timeline.end[first] == timeline.end[second]
    assert (timeline.cause[op], timeline.cause_kind[op]) == (second, Cause.DEPENDENCY)


def test_an_op_whose_dependency_has_just_ended_comes_at_once() -> None:
    """The first message's, before the second's, which comes later in the same instant."""
    build, world = lanes(4)
    work = build.compute(0, MS, name="work", stream="w")
    build.recv(1, 0, MIB, group=world, stream="s")
    build.recv(3, 2, MIB, group=world, stream="s")
    build.compute(0, MS, name="before", stream="x")
    first = build.send(0, 1, MIB, group=world, stream="x", after=[work])
    build.compute(2, MS, name="before", stream="x")
    second = build.send(2, 3, MIB, group=world, stream="x")
    op = build.compute(0, MS, name="last", stream="w", after=[first, second])
    timeline = run(build, n=4)
    assert timeline.arrive[first] == timeline.arrive[second] == MS
    assert (timeline.cause[op], timeline.cause_kind[op]) == (second, Cause.DEPENDENCY)


def recorded_broadcast(begins: tuple[int, ...], root: int, stays: tuple[int, ...]) -> Graph:
    """Return a broadcast that was recorded to wait for its root alone, after work of each rank."""
    build, world = lanes(len(begins))
    for lane, begin in enumerate(begins):
        build.compute(lane, begin, name="work", stream="s")
        build.collective(lane, world, "broadcast", 8, stream="s", root=root, recorded=0)
    graph = build.build()
    duration = graph.duration.copy()
    duration[1::2] = stays
    return replace(
        graph, duration=duration, collectives=replace(graph.collectives, eager=np.array([1]))
    )


def test_members_that_wait_for_the_root_alone_start_and_leave_one_by_one() -> None:
    """Rank 1 is the root: rank 0 comes with it, rank 2 before, rank 3 later."""
    graph = recorded_broadcast((MS, MS, 0, 3 * MS), 1, (10, 20, 30, 40))
    timeline = simulate(graph, None, library=Recorded())
    assert timeline.start[1::2].tolist() == [MS, MS, MS, 3 * MS]
    assert timeline.end[1::2].tolist() == [MS + 10, MS + 20, MS + 30, 3 * MS + 40]
    causes = list(zip(timeline.cause.tolist(), timeline.cause_kind.tolist(), strict=True))[1::2]
    stream = Cause.STREAM
    assert causes == [(0, stream), (2, stream), (3, Cause.RENDEZVOUS), (6, stream)]


def test_a_member_that_started_at_once_starts_once() -> None:
    """The root is there from the begin, as is rank 0, who leaves before rank 2 comes."""
    graph = recorded_broadcast((0, 0, 3 * MS), 1, (10, 20, 30))
    timeline = simulate(graph, None, library=Recorded())
    assert timeline.start[1::2].tolist() == [0, 0, 3 * MS]
    assert timeline.end[1::2].tolist() == [10, 20, 3 * MS + 30]


def test_members_of_a_second_call_wait_for_the_first_that_its_ops_left() -> None:
    """Both wait for the root alone, on a group that runs one call at a time."""
    build, world = lanes(2)
    for lane in range(2):
        for stream in "ab":
            build.collective(lane, world, "broadcast", 8, stream=stream, root=0, recorded=0)
    graph = build.build()
    graph = replace(
        graph, duration=np.full(4, 10),
        collectives=replace(graph.collectives, eager=np.ones(2, np.int64)),
    )  # fmt: skip
    timeline = simulate(graph, None, library=Recorded())
    assert timeline.start.tolist() == [0, 10, 0, 10]
    assert timeline.end.tolist() == [10, 20, 10, 20]
    assert timeline.cause[[1, 3]].tolist() == [0, 0]
    assert set(timeline.cause_kind[[1, 3]].tolist()) == {Cause.QUEUE}


def test_what_follows_a_batch_of_one_waits_for_it() -> None:
    build, world = lanes(2)
    sent = build.send(0, 1, MIB, group=world, stream="p2p", batch=build.batch())
    later = build.compute(0, MS, name="after", stream="p2p")
    build.recv(1, 0, MIB, group=world, stream="p2p")
    timeline = run(build)
    assert timeline.start[later] == timeline.end[sent] > 0
