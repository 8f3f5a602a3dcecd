"""The tables of small graphs, plans and changes, record by record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.star import Star
from msgspec.structs import replace

from commsim.cluster import Cluster, Route
from commsim.engine import streams
from commsim.engine.columns import layout, state
from commsim.engine.columns.state import (
    BATCHED,
    COMPUTES,
    DEPENDS,
    IN_GROUP,
    ON_GPU,
    RECEIVES,
    RELEASES,
    WORKS,
)  # fmt: skip
from commsim.engine.execution_plan import execution_plan_of
from commsim.engine.faults import Target, TimedChange, TimedChanges
from commsim.graph import CopyDirection, Device, GraphBuilder
from commsim.libraries import Plan, PlanPart, PlanPhase, Start
from commsim.libraries.plan import Copy


def columns(made: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of a table, record by record."""
    return list(zip(*(made[name].tolist() for name in names), strict=True))


def test_ops_stand_in_the_streams_of_their_lanes_and_know_who_waits_for_them() -> None:
    """Lane 0 has two streams, whose ops come in turn; lane 1 has the second of them alone."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in (4, 6)]
    first = build.compute(lanes[0], 10, name="a", stream="s")
    second = build.compute(lanes[0], 20, name="b", stream="t", after=[(first, 5)])
    build.compute(lanes[0], 30, name="c", stream="s", device=Device.CPU)
    build.compute(lanes[1], 40, name="d", stream="t", after=[first, (second, 7)])
    build.host_copy(lanes[1], 8, way=CopyDirection.TO_HOST, stream="t")
    made = layout.fill_ops(build.build(), None)
    op = made["op"]
    assert columns(op, "lane", "stream", "waits", "dependents", "batch", "duration")[:4] == [
        (0, 0, 0, 0, -1, 10), (0, 1, 1, 2, -1, 20), (0, 0, 0, 3, -1, 30), (1, 2, 2, 3, -1, 40),
    ]  # fmt: skip
    assert (op[4].lane, op[4].stream, op[5].dependents) == (1, 2, 3)
    assert op.facts.tolist() == [
        WORKS | COMPUTES | ON_GPU | RELEASES, WORKS | COMPUTES | ON_GPU | DEPENDS | RELEASES,
        WORKS | COMPUTES, WORKS | COMPUTES | ON_GPU | DEPENDS, WORKS, 0,
    ]  # fmt: skip
    assert columns(made["dependent"], "op", "delay") == [(1, 5), (3, 0), (3, 7)]
    assert made["queued"].tolist() == [0, 2, 1, 3, 4]
    assert columns(made["stream"], "first", "at", "last", "lane") == [
        (0, 0, 2, 0), (2, 2, 3, 0), (3, 3, 5, 1),
    ]  # fmt: skip
    for name in ("arrive", "start", "end", "cause", "ready_by"):
        assert max(op[name]) < 0
    assert max(made["stream"].op) < 0
    assert max(made["stream"].before) < 0


def test_lanes_of_one_stream_each() -> None:
    build = GraphBuilder()
    for rank in range(3):
        build.compute(build.lane(rank), 10, name="a", stream="s")
    made = layout.fill_ops(build.build(), None)
    assert columns(made["stream"], "first", "last", "lane") == [(0, 1, 0), (1, 2, 1), (2, 3, 2)]


def test_collectives_and_messages_have_rows_and_slots_for_their_members() -> None:
    """Lanes are in another order than ranks; the second group meets twice and lacks a member."""
    build = GraphBuilder()
    lanes = {rank: build.lane(rank) for rank in (2, 0, 1)}
    world, pair = build.group("world", (0, 1, 2)), build.group("pair", (1, 3, 2))
    for size in (8, 16):
        for rank in (2, 1):
            build.collective(lanes[rank], pair, "all_reduce", size, stream="s")
        if size == 8:
            for lane in lanes.values():
                build.collective(lane, world, "all_reduce", 8, stream="s")
    batch = build.batch()
    build.send(lanes[2], 0, 8, group=world, stream="s", batch=batch)
    build.recv(lanes[0], 2, 8, group=world, stream="s")
    graph = build.build()
    of_group = graph.collectives.group.tolist()
    assert sorted(of_group) == [world, pair, pair]
    made = layout.fill_rows(graph, (0, 2), np.array([5, 6, 7]), np.array([9]))
    row, counts = made["row"], [3 if group == world else 2 for group in of_group] + [2]
    assert columns(row, "plan", "group", "first", "count") == list(
        zip((5, 6, 7, 9), (*of_group, -1), np.cumsum([0, *counts]).tolist(), counts, strict=False)
    )
    assert len(made["slot"]) == sum(counts)
    assert max(made["slot"].op) < 0
    assert max(row.frame) < 0
    assert max(row.last) < 0
    turns = [at for group in (world, pair) for at in range(3) if of_group[at] == group]
    assert made["turn"].tolist() == turns
    assert columns(made["group"], "first", "count", "first_turn", "turns", "turn") == [
        (0, 3, 0, 1, 0), (3, 2, 1, 2, 0),
    ]  # fmt: skip
    free = made["group"].free.tolist()
    assert free[0] < 0
    assert free[1] == 2
    assert columns(made["lane_slot"], "lane", "slot") == [
        (lanes[2], 2), (lanes[0], 0), (lanes[1], 1), (lanes[2], 1), (lanes[1], 0),
    ]  # fmt: skip
    assert made["slot_member"].tolist() == [0, 1, 2, 0, 2]
    op = layout.fill_ops(graph, None)["op"]
    assert op.row[:-1].tolist()[-2:] == [3, 3]  # the message stands behind the collectives
    assert op.facts[:-1].tolist() == [IN_GROUP] * 7 + [BATCHED, RECEIVES]


def test_phases_stand_once_with_what_they_load() -> None:
    first = PlanPhase(50, np.array([1, 4]), np.array([10.0, 20.0]), np.array([1.0, 2.0]), 3, 4)
    empty = PlanPhase(0, np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    last = PlanPhase(4, np.array([2]), np.array([30.0]), np.array([5.0]))
    phases = layout.Phases()
    assert [phases.number(one) for one in (first, empty, first, last)] == [0, 1, 0, 2]
    made, load = phases.tables()
    assert columns(made, "first", "loads", "lead", "idle", "tail", "cap") == [
        (0, 2, 3, 50, 4, 0.02), (2, 0, 0, 0, 0, 1.0), (2, 1, 0, 4, 0, 0.25),
    ]  # fmt: skip
    assert columns(load, "link", "bytes", "conns") == [(1, 10, 1), (4, 20, 2), (2, 30, 5)]
    for name in ("template", "epoch", "free"):
        assert max(made[name]) < 0
    assert len(layout.Phases().tables()[0]) == 1  # compiled code needs one


def flat(idle: int) -> PlanPhase:
    return PlanPhase(idle, np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def of(*parts: tuple[list[PlanPhase], list[int], list[int]], start: Start) -> Plan:
    """A plan of those parts: phases, joins and leaves."""
    made = tuple(
        PlanPart(tuple(one), np.array(join), np.array(leave)) for one, join, leave in parts
    )
    return Plan(made, start, 2)


def test_plans_their_parts_their_stops_and_what_their_members_copy() -> None:
    """One of a phase, one that cannot be made, one along a path, and one of two parts."""
    a, b, c = flat(100), flat(200), flat(300)
    one = replace(of(([a], [0, 0], [100, 100]), start=Start.EAGER), sms=10, touched=5.0)
    two = of(([a, b], [0, 0], [9, 9]), ([c], [0, 0], [9, 9]), start=Start.ALL)
    path = of(([b], [0, 30], [200, 150]), start=Start.PATH)
    copied = Copy(Route((0,), (1.0,), (0,), 6), 8, 7)
    path = replace(path, copies_in=(None, copied), copies_out=(copied, None))
    phases = layout.Phases()
    plans = [execution_plan_of(plan, stepwise=False) for plan in (one, path, two)]
    made = layout.fill_plans([plans[0], None, *plans[1:]], phases, lambda copy: 40 + copy.size)
    plan = made["plan"]
    assert columns(plan, "start", "members", "late", "first", "sms") == [
        (Start.EAGER, 2, 0, 1, 10), (0, 0, 0, 0, 0), (Start.PATH, 2, 1, 2, 0),
        (Start.ALL, 2, 0, 0, 0),
    ]  # fmt: skip
    assert plan.bad.astype(bool).tolist() == [False, True, False, False]
    assert plan.moved.tolist() == [5.0 / 100 * 1e12, 0.0, 0.0, 0.0]
    assert plan.only[0] == phases.number(a)
    assert max(plan.only[1:]) < 0
    assert columns(plan, "first_part", "parts")[2:] == [(0, 1), (1, 2)]
    assert columns(made["part"], "first", "phases", "first_stop", "stops") == [
        (0, 1, 0, 3), (1, 2, 3, 0), (3, 1, 3, 0),
    ]  # fmt: skip
    assert made["part_phase"].tolist() == [phases.number(p) for p in (b, a, b, c)]
    assert columns(made["stop"], "when", "member", "joins") == [
        (0, 0, 1), (30, 1, 1), (150, 1, 0),
    ]  # fmt: skip
    assert made["join"].tolist() == [0, 30]
    assert [plan.join[2], plan.copies_in[2], plan.copies_out[2]] == [0, 0, 2]
    for name in ("join", "copies_in", "copies_out"):
        assert max(plan[name][[0, 1, 3]]) < 0
    assert columns(made["copy"], "phase", "lead") == [(-1, 0), (48, 7), (48, 7), (-1, 0)]


@pytest.mark.parametrize(("sms", "idle", "moved"), [(10, 100, 5e10), (0, 100, 0.0), (10, 0, 0.0)])
def test_only_kernels_that_last_move_memory(sms: int, idle: int, moved: float) -> None:
    plan = replace(of(([flat(idle)], [0, 0], [0, 0]), start=Start.ALL), sms=sms, touched=5.0)
    run_as = execution_plan_of(plan, stepwise=False)
    made = layout.fill_plans([run_as], layout.Phases(), lambda _: 0)
    assert made["plan"].moved.tolist() == [moved]


def test_links_are_in_bytes_per_ps_and_gpus_as_their_lanes_need_them() -> None:
    links = layout.fill_links(Star(1, [1e9, 4e9]).links)
    assert columns(links, "capacity", "whole") == [(1e-3, 1e-3), (4e-3, 4e-3)]
    assert max(links.head) < 0
    assert len(layout.fill_links(None)) == 1
    build, cluster = GraphBuilder(), Cluster.preset("dgx-1v")
    build.lane(3, offset=9)
    build.compute(build.lane(0), 1, name="a", stream="s")
    gpu = layout.fill_gpus(build.build(), cluster)
    spec = cluster.gpu(0)
    assert columns(gpu, "pace", "offset", "sms", "bandwidth") == [
        (1.0, 9, spec.sm_count, spec.memory_bandwidth),
        (1.0, 0, spec.sm_count, spec.memory_bandwidth),
    ]
    for name in ("held", "last_held", "job", "last_job"):
        assert max(gpu[name]) < 0


def test_changes_come_one_after_another_and_those_of_one_instant_together() -> None:
    first = TimedChanges((
        TimedChange(10, Target.LINK, (3, 5), 0.5), TimedChange(20, Target.GPU, (1,), 0.25),
    ))  # fmt: skip
    made, begins = layout.fill_changes([first, TimedChanges(())])
    assert begins == [0, 4]
    names = ("after", "share", "what", "target", "next", "same")
    assert columns(made, *names) == [
        (0, 1.0, -1, 2, 1, 0), (10, 0.5, 3, int(Target.LINK), 2, 1),
        (10, 0.5, 5, int(Target.LINK), 3, 0), (20, 0.25, 1, int(Target.GPU), -1, 0),
        (0, 1.0, -1, 2, -1, 0),
    ]  # fmt: skip
    assert layout.fill_changes([])[1] == []


def test_every_fact_of_an_op_is_a_bit_of_its_own_and_the_same_one_in_both_executors() -> None:
    shared = ["DEPENDS", "RELEASES", "BATCHED", "WORKS", "COMPUTES"]
    bits = [getattr(state, name) for name in shared]
    assert [getattr(streams, name) for name in shared] == bits
    bits += [state.ON_GPU, state.IN_MEMORY, state.IN_GROUP, state.RECEIVES]
    assert [int(bit).bit_count() for bit in bits] == [1] * 9
    assert len(set(bits)) == 9
