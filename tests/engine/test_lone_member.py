"""A collective of one simulated rank runs as a rendezvous of members would, event for event."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import core, simulate
from commsim.engine.execution_plan import execution_plan_of
from commsim.engine.lone_member import LoneMember
from commsim.graph import Fold, Graph, GraphBuilder
from commsim.libraries import Library
from commsim.libraries.ideal import Ideal
from commsim.libraries.nccl import Nccl
from commsim.timeline import Cause, Timeline

MS = 10**9
COLUMNS = ("arrive", "start", "end", "cause", "cause_kind")


def folded_graph(seed: int) -> Graph:
    """Return what one rank does for 16: collectives of two groups on three streams, and work."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(16).reshape(2, 8)
    build = GraphBuilder(Fold.of(np.zeros(16, np.int64), {"tp": nodes, "dp": nodes.T.copy()}, {}))
    lane, ended = build.lane(0), list[int]()
    groups = [build.orbit("tp", 0), build.orbit("dp", 0)]
    for _ in range(40):
        after = rng.choice(ended, min(len(ended), 2), replace=False).tolist()
        stream = str(rng.choice(["a", "b", "c"]))
        if rng.random() < 0.3:
            work = MS * int(rng.integers(0, 3))
            ended.append(build.compute(lane, work, name="work", stream=stream, after=after))
            continue
        kind = str(rng.choice(["all_reduce", "all_gather", "reduce_scatter"]))
        group, size = groups[int(rng.integers(2))], 1 << int(rng.integers(10, 28))
        ended.append(build.collective(lane, group, kind, size, stream=stream, after=after))
    return build.build()


def run(graph: Graph, library: Library) -> Timeline:
    return simulate(graph, Cluster.preset("dgx-h100", nodes=2), library=library)


@pytest.mark.parametrize("library", [Ideal(), Nccl()], ids=["ideal", "nccl"])
@pytest.mark.parametrize("seed", range(8))
def test_timelines_are_those_of_rendezvous(
    seed: int, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, made = folded_graph(seed), list[object]()

    def noted(*of: Any) -> LoneMember:
        made.append(of)
        return LoneMember(*of)

    monkeypatch.setattr(core, "LoneMember", noted)
    alone = run(graph, library)
    assert len(made) == len(graph.collectives)
    monkeypatch.setattr(
        core, "execution_plan_of", lambda *a, **k: replace(execution_plan_of(*a, **k), alone=False)
    )
    met = run(graph, library)
    assert len(made) == len(graph.collectives)
    for column in COLUMNS:
        assert (getattr(alone, column) == getattr(met, column)).all(), column
    for column in ("flow", "start", "end", "rate", "op"):
        assert (getattr(alone.links, column) == getattr(met.links, column)).all(), column
    assert dict(alone.choices) == dict(met.choices)


@pytest.mark.parametrize(("member", "op"), [(0, 0), (3, 0), (0, 7)])
def test_a_member_is_there_once_it_has_arrived(member: int, op: int) -> None:
    """Its turn has not come yet: it waits for no other member, as a deadlock would tell."""
    run_as: Any = SimpleNamespace(only=object(), plan=None, choice="")
    queue: Any = SimpleNamespace(enter=lambda *_: None)
    context: Any = None
    lone = LoneMember(context, run_as, queue, 0, 0)
    assert lone.ops == {}
    lone.arrive(member, op, lambda _: None)
    assert lone.ops == {member: op}
    assert lone.missing() == []


@pytest.mark.parametrize(
    ("freed_by", "arrived", "cause"),
    [(-1, 5, None), (0, 5, 0), (3, 5, 3), (0, 8, 0), (0, 9, None)],
)
def test_what_freed_its_slot_is_the_cause_if_it_waited_for_it(
    freed_by: int, arrived: int, cause: int | None
) -> None:
    """It begins at 9 ps."""
    record: Any = SimpleNamespace(arrive=[0] * 7 + [arrived], start={}, cause={}, cause_kind={})
    env = SimpleNamespace(now=9, call=lambda *_: None)
    run_as: Any = SimpleNamespace(only=SimpleNamespace(lead=1), plan=None, choice="")
    context: Any = SimpleNamespace(recorder=record, env=env)
    queue: Any = SimpleNamespace(enter=lambda *_: None)
    lone = LoneMember(context, run_as, queue, 0, 0)
    lone.arrive(0, 7, lambda _: None)
    lone.begin(freed_by)
    assert record.start == {7: 9}
    assert record.cause == ({} if cause is None else {7: cause})
    assert record.cause_kind == ({} if cause is None else {7: Cause.QUEUE})
