"""Real runs by Gloo on torch 2.13 (tests/data/gloo_runs): what they did, and their replay."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from helpers.kineto_writer import Recording
from helpers.paths import TESTS

from commsim.engine import simulate
from commsim.graph import OpKind
from commsim.graph.edit import insert_work
from commsim.libraries import Recorded
from commsim.timeline import Timeline
from commsim.traces import Trace, load_trace

MS = 1_000_000_000
RUNS = TESTS / "data" / "gloo_runs"
NAMES = sorted(path.name for path in RUNS.iterdir() if path.is_dir())
OPS = {
    "allreduce_": "all_reduce", "_allgather_base_": "all_gather", "barrier": "barrier",
    "_reduce_scatter_base_": "reduce_scatter", "broadcast_": "broadcast",
    "alltoall_base_": "all_to_all",
}  # fmt: skip


@cache
def trace_of(name: str) -> Trace:
    return load_trace([p for p in sorted((RUNS / name).iterdir()) if "calls" not in p.name])


@cache
def replay_of(name: str) -> Timeline:
    graph = trace_of(name).graph()
    return simulate(graph, None, library=Recorded(), overlap_slowdown=False)


def steps(timeline: Timeline) -> list[int]:
    return [int(timeline.end[b] - timeline.start[a]) for a, b in timeline.graph.window]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_replayed_within_five_percent(name: str) -> None:
    measured, again = steps(trace_of(name).timeline()), steps(replay_of(name))
    assert again == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_waits_are_derived_as_measured(name: str) -> None:
    measured, again = trace_of(name).timeline(), replay_of(name)
    comm = np.flatnonzero(measured.communicates)
    off = np.abs((measured.start - measured.arrive) - (again.start - again.arrive))[comm]
    assert np.median(off) <= 0.5 * MS
    assert np.median(off) <= 0.02 * max(steps(measured))


@pytest.mark.parametrize("name", ["ddp-2", "ddp-4", "fsdp2-2", "fsdp2-4", "p2p-4", "1f1b-4"])
def test_collectives_groups_and_bytes_are_those_of_the_program(name: str) -> None:
    trace = trace_of(name)
    graph = trace.graph()
    for rank in trace.ranks:
        calls = json.loads((RUNS / name / f"rank{rank}.calls.json").read_text())
        wanted = [
            (OPS[call["op"]], max(call["in"], call["out"]), tuple(call["ranks"]))
            for call in calls
            if call["op"] in OPS
        ]
        mine = (graph.lane_rank[graph.lane] == rank) & (graph.kind == OpKind.COLLECTIVE)
        rows = sorted(graph.item[mine].tolist())
        table = graph.collectives
        assert [
            (table.kind[r], int(table.size[r]), graph.groups[table.group[r]].ranks) for r in rows
        ] == wanted


@pytest.mark.parametrize("name", ["p2p-2", "p2p-4", "1f1b-2", "gpipe-2", "interleaved-2"])
def test_messages_are_those_of_the_program(name: str) -> None:
    trace = trace_of(name)
    messages = trace.graph().messages
    for rank in trace.ranks:
        calls = json.loads((RUNS / name / f"rank{rank}.calls.json").read_text())
        wanted = sorted((c["peer"], c["in"]) for c in calls if c["op"] == "send")
        sent = messages.source == rank
        found = zip(messages.target[sent].tolist(), messages.size[sent].tolist(), strict=True)
        assert sorted(found) == wanted


def test_groups_of_a_mesh_come_from_the_flight_recorder() -> None:
    graph = trace_of("fsdp2-tp-4").graph()
    table = graph.collectives
    groups = {(table.kind[r], graph.groups[table.group[r]].ranks) for r in range(len(table))}
    assert groups == {
        ("barrier", (0, 1, 2, 3)), ("all_reduce", (0, 1)), ("all_reduce", (2, 3)),
        ("all_gather", (0, 2)), ("all_gather", (1, 3)), ("reduce_scatter", (0, 2)),
        ("reduce_scatter", (1, 3)),
    }  # fmt: skip


def test_without_the_dumps_the_groups_are_asked_for() -> None:
    files = sorted((RUNS / "fsdp2-tp-4").glob("rank*.json.gz"))
    assert any("TORCH_FR_BUFFER_SIZE" in note for note in load_trace(files).notes)


@pytest.mark.parametrize(("name", "rank"), [("ddp-4", 2), ("1f1b-4", 1)])
def test_a_late_rank_delays_the_others_as_a_second_recording_shows(name: str, rank: int) -> None:
    """30 ms on one rank: predicted from the first recording, held against the second."""
    graph = trace_of(name).graph()
    lane = graph.lane_rank.tolist().index(rank)
    mine = np.flatnonzero(graph.lane == lane)
    barrier = next(op for op in mine.tolist() if graph.op_name(op) == "barrier")
    waiting = [
        op
        for op in mine.tolist()
        if barrier in graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist()
    ]
    later = insert_work(graph, waiting[0] + 1, 30 * MS)
    predicted = steps(simulate(later, None, library=Recorded(), overlap_slowdown=False))
    before, recorded = steps(replay_of(name)), steps(trace_of(f"{name}-late").timeline())
    moved = [a - b for a, b in zip(predicted, before, strict=True)]
    assert all(20 * MS < move <= 30 * MS for move in moved)
    moved_in_fact = [a - b for a, b in zip(recorded, before, strict=True)]
    # Two runs of one program differ by several ms on this machine, whoever is late.
    assert np.median(moved) == pytest.approx(np.median(moved_in_fact), abs=7 * MS)
    assert max(predicted) == pytest.approx(max(recorded), rel=0.05)


def test_gloo_is_named_as_the_library() -> None:
    graph = trace_of("ddp-2").graph()
    assert {group.library for group in graph.groups} == {"gloo"}
    assert any("gloo" in stream for stream in graph.streams)


def test_clocks_are_not_aligned_by_gloo() -> None:
    trace = trace_of("ddp-2")
    assert set(trace.offsets.values()) == {0}
    assert any("taken as they are" in note for note in trace.notes)


def test_what_nobody_was_seen_waiting_for_is_waited_for_at_the_end(tmp_path: Path) -> None:
    """The collective ends under a busy thread; were it slower, the step would be longer."""
    us = 1_000_000
    for rank in (0, 1):
        record = Recording(rank)
        record.note("ProfilerStep#1", 0, 300)
        record.op("c10d::allreduce_", 10, 5, **{"Input Dims": [[[64]]], "Input type": ["float"]})
        record.note("gloo:all_reduce", 16, 44, tid=9, **{"Input type": ["float"]})
        record.op("aten::mm", 15, 270)
        record.save(tmp_path)
    graph = load_trace(tmp_path).graph()
    assert graph.collectives.size.tolist() == [256]
    graph.collectives.recorded[0] += 400 * us
    slower = simulate(graph, None, library=Recorded())
    assert steps(slower) == [460 * us, 460 * us]
