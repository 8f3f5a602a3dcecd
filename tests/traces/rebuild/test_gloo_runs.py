"""Real Gloo runs: what the importer reads of them, and whether their replay can be believed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.captured import DATA, KINDS, RANKS, RUNS, told

from commsim.engine import simulate
from commsim.graph import Graph, OpKind
from commsim.graph.edit import insert_work
from commsim.libraries import Recorded
from commsim.study.replay.replay import replay
from commsim.timeline import Timeline
from commsim.traces import Trace, load_trace

MS = 1_000_000_000
ALL = [*RUNS, "ddp-4-late", "1f1b-4-late", "ddp-join-2"]
JOINED = [("ddp-join-2", rank) for rank in range(2)]  # recorded, and not captured


def load(run: str) -> Trace:
    return load_trace(DATA / "gloo_runs" / run)


def communication(graph: Graph, rank: int) -> list[tuple[object, ...]]:
    """Return what a rank's lane sends and receives, in order of issue, in the form of `told`."""
    lane = int(np.flatnonzero(graph.lane_rank == rank)[0])
    table, messages = graph.collectives, graph.messages
    found: list[tuple[object, ...]] = []
    for op in np.flatnonzero(graph.lane == lane).tolist():
        kind, row = OpKind(int(graph.kind[op])), int(graph.item[op])
        if kind == OpKind.COLLECTIVE:
            ranks = graph.groups[table.group[row]].ranks
            size = 0 if table.kind[row] == "barrier" else int(table.size[row])
            found.append((table.kind[row], ranks, size, table.dtype[row]))
        elif kind in (OpKind.SEND, OpKind.RECV):
            peer = messages.target[row] if kind == OpKind.SEND else messages.source[row]
            verb = kind.name.lower()
            found.append((verb, int(graph.size[op]), int(peer), int(messages.tag[row])))
    return found


def without_groups(calls: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Leave out the group of messages: neither Kineto nor the flight recorder tells it."""
    return [(c[0], *c[2:]) if c[0] in ("send", "recv") else c for c in calls]


@pytest.mark.share(0.4)
@pytest.mark.parametrize(("run", "rank"), RANKS + JOINED)
def test_calls_are_those_of_the_program(run: str, rank: int) -> None:
    """Sequence, groups, bytes and types, from Kineto and the flight recorder."""
    assert communication(load(run).graph(), rank) == without_groups(told(run, rank))


@pytest.mark.share(0.5)
@pytest.mark.parametrize("run", ALL)
def test_replay_takes_the_recorded_step(run: str) -> None:
    result = replay(DATA / "gloo_runs" / run).result
    errors = result.extra["error"]
    assert max(abs(rank["step_time"]) for rank in errors["ranks"]) < 0.05
    assert errors["waits"]["median_abs_s"] < 0.001


def lasts(timeline: Timeline) -> np.ndarray:
    """Return in ms, per rank, how long after the step's barrier its last communication ends."""
    graph = timeline.graph
    found = []
    for lane in np.argsort(graph.lane_rank):
        kinds = np.isin(graph.kind, [OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV])
        ops = np.flatnonzero((graph.lane == lane) & kinds)
        barrier = next(op for op in ops if graph.kind[op] == OpKind.COLLECTIVE)
        found.append((timeline.end[ops].max() - timeline.end[barrier]) / MS)
    return np.array(found)


def after_the_barrier(graph: Graph, rank: int) -> int:
    """Return the first op of a rank's CPU behind the barrier that the step begins with."""
    lane = int(np.flatnonzero(graph.lane_rank == rank)[0])
    ops = np.flatnonzero(graph.lane == lane).tolist()
    barrier = next(op for op in ops if graph.kind[op] == OpKind.COLLECTIVE)
    return next(op for op in ops if op > barrier and graph.kind[op] == OpKind.COMPUTE)


@pytest.mark.parametrize(("run", "rank"), [("ddp-4", 2), ("1f1b-4", 1)])
def test_late_rank_delays_the_others_as_predicted(run: str, rank: int) -> None:
    """30 ms more on one rank of a second recording: when every rank's last communication ends."""
    before, late = load(run), load(f"{run}-late")
    graph = before.graph()
    changed = insert_work(graph, after_the_barrier(graph, rank), 30 * MS)
    predicted = lasts(simulate(changed, None, library=Recorded(), overlap_slowdown=False))
    measured = lasts(late.timeline())
    assert predicted == pytest.approx(measured, rel=0.05)
    assert (measured - lasts(before.timeline()) > 20).all()  # all wait for the late one


def test_wait_is_on_those_who_were_early() -> None:
    """The late rank waits for nobody at the first all-reduce; the others wait about 30 ms."""
    trace = load("ddp-4-late")
    row = next(row for row in trace.collectives.rows if row.op == "all_reduce")
    assert row.last_arriver == 2
    assert row.waits[2] == 0
    assert all(20 * MS < row.waits[rank] < 40 * MS for rank in (0, 1, 3))


def test_recordings_name_no_machine() -> None:
    import gzip

    for file in sorted((DATA / "gloo_runs").rglob("rank*")):
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        assert not any(word in data for word in (b"/work", b"/tmp", b"/home", b"/root"))


def test_every_call_of_the_recordings_is_known() -> None:
    for file in sorted((DATA / "gloo_runs").rglob("*.calls.json")):
        ops = {call["op"] for call in json.loads(file.read_text())}
        assert ops <= {*KINDS, "send", "recv_"}
