"""Runs that are longer than the clock can hold end in one sentence, by every executor."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

import commsim as cs
from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.engine.columns import executor as columns
from commsim.engine.columns.loop import run_events
from commsim.engine.faults import Target, TimedChange, TimedChanges
from commsim.engine.out_of_time import first_late, out_of_time
from commsim.engine.recorder import Recorder
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal
from commsim.timeline import Timeline
from commsim.units import MOST_PICOSECONDS

DAY = 86_400 * 10**12
CLUSTER = Cluster.preset("dgx-1v")
SLOW = Cluster.preset("pcie-a100", nodes=2, overrides={"nic": {"bandwidth": "8kbps"}})
FAR = (0, SLOW.world_size - 1)


@pytest.fixture(params=["simpy", "compiled", "steps"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Timeline]:
    """Run a graph on a cluster; compiled code is taken as the interpreter runs it."""
    monkeypatch.setattr(sys.modules["commsim.engine.executor"], "can_compile", lambda: True)
    monkeypatch.setattr(columns, "_compiled", lambda: run_events)
    steps = request.param == "steps"
    how = {"network": "steps"} if steps else {"executor": request.param}
    return lambda graph, cluster=CLUSTER, **more: simulate(
        graph, cluster, library=Ideal(), **how, **more
    )


def work(*days: float, offset: int = 0, delay: int = 0) -> Graph:
    build = GraphBuilder()
    lane = build.lane(0, offset=offset)
    last: list[tuple[int, int]] = []
    for one in days:
        last = [(build.compute(lane, round(one * DAY), name="c", stream="s", after=last), delay)]
    return build.build()


def reduces(count: int, size: int, ranks: tuple[int, int] = (0, 1)) -> Graph:
    """So many all-reduces of two ranks, one after another."""
    build = GraphBuilder()
    group = build.group("pair", ranks)
    for lane in [build.lane(rank) for rank in ranks]:
        for _ in range(count):
            build.collective(lane, group, "all_reduce", size, stream="s")
    return build.build()


LATE = r"the run takes longer than commsim can hold \(4611686 s, 53 days\)\. rank [01]: "


@pytest.mark.parametrize(
    "graph",
    [
        work(40, 40),
        work(40, 40, 40),  # 64 bits would do for the first two
        work(1, offset=53 * DAY),
        work(1, offset=MOST_PICOSECONDS),
        work(1, 1, delay=52 * DAY),
        work(1, 1, delay=MOST_PICOSECONDS),
    ],
    ids=["two", "three", "offset", "long offset", "delay", "long delay"],
)
def test_work_that_adds_up(run: Callable[..., Timeline], graph: Graph) -> None:
    with pytest.raises(cs.ScenarioError, match=LATE + "c, "):
        run(graph)
    with pytest.raises(cs.ScenarioError, match=LATE + "c, "):
        simulate(graph, None, library=Ideal())  # work alone


def test_the_last_picosecond(run: Callable[..., Timeline]) -> None:
    def lasting(time: int) -> Graph:
        build = GraphBuilder()
        build.compute(build.lane(0), time, name="c", stream="s")
        return build.build()

    held = lasting(MOST_PICOSECONDS - 1)
    for line in (run(held), simulate(held, None, library=Ideal())):
        assert line.end_time == MOST_PICOSECONDS - 1
    for cluster in (CLUSTER, None):
        with pytest.raises(cs.ScenarioError, match=LATE + "c, begun at 0 s, has not ended"):
            run(lasting(MOST_PICOSECONDS), cluster)


def test_what_waits_until_the_end_of_time_has_not_begun(run: Callable[..., Timeline]) -> None:
    for cluster in (CLUSTER, None):
        with pytest.raises(cs.ScenarioError, match=LATE + "c, has not ended"):
            run(work(1, offset=MOST_PICOSECONDS), cluster)


def test_transfers_that_add_up(run: Callable[..., Timeline]) -> None:
    one = run(reduces(1, 1 << 30, FAR), SLOW).end_time
    assert one < MOST_PICOSECONDS < 9 * one
    with pytest.raises(cs.ScenarioError, match=LATE + "all_reduce of 1 GiB on group 'pair', beg"):
        run(reduces(9, 1 << 30, FAR), SLOW)


def test_a_transfer_alone_is_refused_as_such(run: Callable[..., Timeline]) -> None:
    with pytest.raises(cs.ScenarioError, match=r"all_reduce of 1 TiB over 2 ranks takes longer"):
        run(reduces(1, 1 << 40, FAR), SLOW)


def test_ranks_that_wait_for_each_other_are_a_deadlock_still(run: Callable[..., Timeline]) -> None:
    build = GraphBuilder()
    group = build.group("pair", (0, 1))
    for rank in range(2):
        lane = build.lane(rank)
        build.recv(lane, 1 - rank, 8, group=group, stream="s")
        build.send(lane, 1 - rank, 8, group=group, stream="s")
    with pytest.raises(cs.DeadlockError):
        run(build.build())


@pytest.mark.parametrize("executor", ["simpy", "compiled"])
def test_what_comes_after_all_has_ended_is_no_matter(
    executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["commsim.engine.executor"], "can_compile", lambda: True)
    monkeypatch.setattr(columns, "_compiled", lambda: run_events)
    later = TimedChanges((TimedChange(MOST_PICOSECONDS, Target.LINK, (0,), 0.5),))
    line = simulate(work(1, 2), CLUSTER, library=Ideal(), executor=executor, extensions=[later])
    assert line.end_time == 3 * DAY


@pytest.mark.parametrize("executor", ["simpy", "compiled"])
@pytest.mark.parametrize(
    ("target", "left"), [(Target.GPU, 1e-300), (Target.LINK, 1e-300), (Target.LINK, 1e-320)]
)
def test_what_has_become_so_slow_that_it_never_ends(
    executor: str, target: Target, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["commsim.engine.executor"], "can_compile", lambda: True)
    monkeypatch.setattr(columns, "_compiled", lambda: run_events)
    graph = work(1) if target == Target.GPU else reduces(1, 1 << 30)
    every = (0,) if target == Target.GPU else tuple(range(len(CLUSTER.links)))
    slow = TimedChanges((TimedChange(10**6, target, every, left),))
    with pytest.raises(cs.ScenarioError, match=LATE):
        simulate(graph, CLUSTER, library=Ideal(), executor=executor, extensions=[slow])


def test_what_was_under_way_is_named_before_what_never_began() -> None:
    recorder = Recorder(work(1, 1, 1))
    recorder.start[2] = 5
    assert first_late(recorder) == 2
    recorder.start[1] = 0
    assert first_late(recorder) == 1
    recorder.start[1], recorder.end[2] = -1, 6
    assert first_late(recorder) == 0
    recorder.end = list(np.array([7, -1, 6]))
    assert first_late(recorder) == 1
    recorder.start, recorder.end = [0, 0, 5], [0, 0, -1]  # what takes no time has ended too
    assert first_late(recorder) == 2


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (-1, "c, has not"), (0, "c, begun at 0 s, has not"), (DAY, "c, begun at 86400 s, has not"),
        (MOST_PICOSECONDS - 1, "c, begun at 4611686 s, has not"), (MOST_PICOSECONDS, "c, has not"),
    ],
)  # fmt: skip
def test_an_op_is_said_to_have_begun_if_it_has(start: int, told: str) -> None:
    assert told in str(out_of_time(work(1), 0, start))
