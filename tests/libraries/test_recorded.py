"""What was measured is played back: durations, late leavers, and who waits for whom."""

from __future__ import annotations

import pytest

from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal, Libraries, Recorded, Request, Start, for_groups


def test_every_member_leaves_after_the_recorded_time_and_what_it_was_late() -> None:
    plan = Recorded().plan(Request("all_reduce", 8, (0, 1, 2), recorded=500), None)
    assert (plan.idle, plan.start, plan.members) == (500, Start.ALL, 3)
    assert plan.algorithm == "recorded"
    assert plan.parts[0].joins.tolist() == [0, 0, 0]
    assert plan.parts[0].leaves.tolist() == [500, 500, 500]
    late = Recorded().plan(Request("all_reduce", 8, (0, 1), recorded=500, late=(0, 70)), None)
    assert (late.idle, late.parts[0].leaves.tolist()) == (570, [500, 570])
    sent = Recorded().plan(Request("send_recv", 8, (0, 1), recorded=0), None)
    assert (sent.idle, sent.start) == (0, Start.PAIR)


def test_an_op_without_a_recorded_time_is_refused() -> None:
    with pytest.raises(ScenarioError, match="no recorded time"):
        Recorded().plan(Request("all_reduce", 8, (0, 1)), None)


@pytest.mark.parametrize(("root", "late"), [(2, (5, 0, 7)), (-1, ())])
def test_members_that_wait_for_the_root_alone(root: int, late: tuple[int, ...]) -> None:
    request = Request("broadcast", 8, (0, 1, 2), root=root, recorded=0, late=late, eager=1)
    plan = Recorded().plan(request, None)
    assert (plan.start, plan.members, plan.algorithm) == (Start.EACH, 3, "recorded")
    assert plan.stays == (late or (0, 0, 0))
    first = max(root, 0)
    assert plan.awaits == tuple(frozenset({member, first}) for member in range(3))
    assert plan.idle == max(late, default=0)
    assert plan.parts[0].leaves.tolist() == list(late or (0, 0, 0))


def test_members_that_wait_for_whom_gloos_program_has_them_exchange_with() -> None:
    request = Request("broadcast", 8, (0, 1, 2, 3), root=0, recorded=0, eager=2)
    awaits = Recorded().plan(request, None).awaits
    assert all(member in of for member, of in enumerate(awaits))
    assert awaits[1:] != tuple(frozenset({member, 0}) for member in range(1, 4))


def test_groups_that_are_played_back_run_as_their_streams_say() -> None:
    assert Recorded().concurrency == 1
    assert Recorded(3).of("nccl").concurrency == 3
    assert Recorded(3).of("recorded").concurrency == Recorded(3).of("gloo").concurrency == 0
    build = GraphBuilder()
    build.group("a", (0, 1), library="recorded")
    build.group("b", (0, 1), library="gloo")
    build.group("c", (0, 1), library="ideal")
    build.group("d", (0, 1))
    for rank in (0, 1):
        build.lane(rank)
    several = for_groups(Ideal(), build.build())
    assert isinstance(several, Libraries)
    assert several.of("recorded").concurrency == 0
    assert several.of("gloo").name == "gloo"
    assert several.of("") is several.of("ideal")
    assert (several.name, several.concurrency) == ("ideal", 1)
