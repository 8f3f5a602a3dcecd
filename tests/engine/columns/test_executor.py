"""What an engine over tables says of its run: notes, choices, who waits for whom, how far it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers.star import Star
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import Planner
from commsim.engine.columns import ColumnsEngine
from commsim.engine.columns import executor as columns
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal, Library, Plan, PlanPart, PlanPhase, Request, Start
from commsim.timeline import Timeline


def engine(graph: Graph, library: Library | None = None, **how: Any) -> ColumnsEngine:
    where, by = Star(4), library or Ideal()
    how = {"compile": False, **how}
    return ColumnsEngine(graph, where, by, planner=Planner(graph, where, by), **how)


def ran(graph: Graph, library: Library | None = None, **how: Any) -> Timeline:
    made = engine(graph, library, **how)
    made.run()
    return made.timeline()


class Saying(Ideal):
    """Plans say their size, those of messages too; one of 3 bytes has no name to say."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        name = "" if request.size == 3 else f"by {request.size}"
        plan = super().plan(request, cluster)
        return replace(plan, algorithm=name, notes=(f"note {request.size}", "of all"))


def sized(*sizes: int, message: int = 0) -> Graph:
    build = GraphBuilder()
    group = build.group("pair", (0, 1))
    for lane in (build.lane(0), build.lane(1)):
        for size in sizes:
            build.collective(lane, group, "all_reduce", size, stream="s")
        if message:
            (build.recv if lane else build.send)(lane, 1 - lane, message, group=group, stream="s")
    return build.build()


def test_notes_and_choices_are_those_of_collectives_in_the_order_of_the_run() -> None:
    line = ran(sized(9, 3, 5, 9, message=7), Saying())
    assert line.notes == ("note 9", "of all", "note 3", "note 5")
    assert dict(line.choices) == {0: "by 9", 2: "by 5", 3: "by 9"}
    assert ran(sized(4), Saying()).notes == ("note 4", "of all")


def test_who_has_come_and_who_has_not_when_nothing_goes_on() -> None:
    """Ranks 0 and 3 wait in a collective for rank 2, which waits for a message of rank 3.

    The collective and the message before have ended.
    """
    build = GraphBuilder()
    trio = build.group("trio", (0, 2, 3))
    lanes = {rank: build.lane(rank) for rank in (0, 2, 3)}
    for lane in lanes.values():
        build.collective(lane, trio, "all_reduce", 8, stream="s")
    build.send(lanes[0], 2, 8, group=trio, stream="s")
    build.recv(lanes[2], 0, 8, group=trio, stream="s")
    late = build.recv(lanes[2], 3, 8, group=trio, stream="s")
    there = {
        member: build.collective(lanes[rank], trio, "all_reduce", 16, stream="s")
        for member, rank in enumerate((0, 2, 3))
    }
    build.send(lanes[3], 2, 8, group=trio, stream="s")
    made = engine(build.build())
    made.run()
    found = {key: (met.ops, met.missing()) for key, met in made.rendezvous.items()}
    assert found == {
        (0, 1): ({0: there[0], 2: there[2]}, [1]), (1, 1): ({1: late}, [0]),
    }  # fmt: skip
    assert (made.done, made.cut) == (False, False)
    assert made.share_done() == 5 / len(made.graph)


def test_nothing_to_do_is_done() -> None:
    made = engine(GraphBuilder().build())
    assert made.share_done() == 1.0
    made.run()
    assert (made.done, made.cut, made.rendezvous) == (True, False, {})


def test_a_run_pauses_after_so_many_events_and_goes_on(monkeypatch: Any) -> None:
    whole = ran(sized(*range(1, 6)))
    monkeypatch.setattr(columns, "_EVENTS", 1)
    assert ran(sized(*range(1, 6))).end.tolist() == whole.end.tolist()


class Crossed(Ideal):
    """Each of two messages puts two bytes on one link and one on the other."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        load = np.array([2.0, 1.0] if request.ranks[0] == 0 else [1.0, 2.0])
        phase = PlanPhase(1000, np.array([0, 1]), load * 1e6, np.ones(2))
        part = PlanPart((phase,), np.zeros(2, np.int64), np.full(2, 1000))
        return Plan((part,), Start.PAIR, 2)


def test_rates_that_filling_does_not_decide_are_found_and_said() -> None:
    """Both at a third of what 1 MB at 1 GB/s allows: 3 ms; fairness alone decides nothing here."""
    build = GraphBuilder()
    group = build.group("all", range(4))
    lanes = [build.lane(rank) for rank in range(4)]
    for source, target in ((0, 1), (2, 3)):
        build.send(lanes[source], target, 8, group=group, stream="s")
        build.recv(lanes[target], source, 8, group=group, stream="s")
    line = ran(build.build(), Crossed())
    assert line.end.tolist() == [3 * 10**9] * 4
    assert [note for note in line.notes if "not decided by fairness alone" in note]


def test_every_flow_that_is_shared_at_once_has_a_place_for_its_rate() -> None:
    state = engine(sized(8))._state
    assert len(state.rate) >= len(state.member)


class Crowded(Ideal):
    """As many collectives of a group at a time as there are."""

    concurrency = 0


def test_a_group_runs_as_many_collectives_at_once_as_its_library_does() -> None:
    free = [int(engine(sized(8), by)._state.group.free[0]) for by in (Ideal(), Crowded())]
    assert free[0] == 1
    assert free[1] < 0
