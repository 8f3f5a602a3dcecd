"""How a plan is run, and what a phase of it puts on links."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Route
from commsim.engine.execution_plan import _moving, _within, execution_plan_of, uses_links
from commsim.engine.fair_share import AT_CAP
from commsim.engine.many_flows import NEVER
from commsim.engine.phase_facts import PhaseFacts, duration_of
from commsim.libraries import Plan, PlanPart, PlanPhase, Start


def phase(idle: int = 100, links: tuple[int, ...] = (0,), **how: Any) -> PlanPhase:
    count = len(links)
    load = np.array(how.get("load", [8.0] * count), dtype=np.float64)
    conns = np.array(how.get("conns", [1.0] * count), dtype=np.float64)
    return PlanPhase(idle, np.array(links, dtype=np.int64), load, conns, how.get("lead", 0))


def plan(*phases: PlanPhase, start: Start = Start.ALL, **how: Any) -> Plan:
    """Return a plan of three members in one part, who join and leave as told."""
    joins = np.array(how.pop("joins", [0, 0, 0]))
    leaves = np.array(how.pop("leaves", [100, 100, 100]))
    return Plan((PlanPart(phases, joins, leaves),), start, 3, **how)


def test_a_plan_of_one_phase_from_begin_to_end_runs_without_a_process() -> None:
    one = phase()
    made = execution_plan_of(plan(one), stepwise=False)
    assert (made.only, made.alone, made.late, made.first) == (one, True, False, None)
    assert made.stops == ([],)
    assert made.joins == [0, 0, 0]
    for other in (
        plan(one, one), plan(phase(idle=0)), plan(one, start=Start.EACH),
        plan(one, leaves=[100, 50, 100]), plan(one, start=Start.PATH, joins=[0, 20, 40]),
    ):  # fmt: skip
        found = execution_plan_of(other, stepwise=False)
        assert (found.only, found.alone) == (None, False)
    assert execution_plan_of(plan(one), stepwise=True).only is None
    twice = Plan(plan(one).parts * 2, Start.ALL, 3)
    assert execution_plan_of(twice, stepwise=False).only is None


def test_a_member_is_alone_if_it_waits_for_nobody_and_copies_nothing() -> None:
    one = phase()
    eager = execution_plan_of(plan(one, start=Start.EAGER), stepwise=False)
    assert (eager.only, eager.alone, eager.first) == (one, False, frozenset({0}))
    assert execution_plan_of(plan(one, start=Start.EACH), stepwise=False).first == frozenset()
    route: Any = Route
    staged: list[dict[str, Any]] = [{"copies_in": (route,)}, {"copies_out": (route,)}]
    for copies in staged:
        found = execution_plan_of(plan(one, **copies), stepwise=False)
        assert (found.only, found.alone) == (one, False)


def test_members_join_and_leave_on_the_way_in_order() -> None:
    late = plan(phase(), start=Start.PATH, joins=[0, 40, 40], leaves=[99, 100, 0])
    found = execution_plan_of(late, stepwise=False)
    assert found.stops == (
        [(0, [(True, 0), (False, 2)]), (40, [(True, 1), (True, 2)]), (99, [(False, 0)])],
    )
    assert (found.joins, found.late) == ([0, 40, 40], True)
    # who joins is told of those that join as data reaches them; -1 leaves with another part
    together = plan(phase(), joins=[0, 40, 40], leaves=[-1, 101, 99])
    found = execution_plan_of(together, stepwise=False)
    assert found.stops == ([(99, [(False, 2)])],)
    assert (found.joins, found.late) == ([0, 0, 0], False)


def test_members_join_with_the_first_part_that_reaches_them_and_leave_at_the_end_of_all() -> None:
    first, second = (
        PlanPart((phase(),), np.array(joins), np.array([50, 50, 50]))
        for joins in ([0, 30, 60], [10, 20, 70])
    )
    found = execution_plan_of(Plan((first, second), Start.PATH, 3), stepwise=False)
    assert found.joins == [0, 20, 60]
    assert [len(stops) for stops in found.stops] == [3, 3]
    assert all(joins for stops in found.stops for _, acts in stops for joins, _ in acts)


@pytest.mark.parametrize(
    ("algorithm", "channels", "told"),
    [("Ring", 1, "Ring"), ("Ring", 2, "Ring, 2 channels"), ("", 2, "")],
)
def test_the_record_says_the_algorithm_and_its_channels(
    algorithm: str, channels: int, told: str
) -> None:
    made = plan(phase(), algorithm=algorithm, channels=channels)
    assert execution_plan_of(made, stepwise=False).choice == told


def test_a_plan_uses_links_if_any_phase_does() -> None:
    assert uses_links(plan(phase()))
    assert uses_links(plan(phase(links=()), phase()))
    assert not uses_links(plan(phase(links=())))


def test_facts_of_a_phase_on_links() -> None:
    """12 and 24 bytes over 1 and 2 connections; its cap is a hundredth a ps."""
    facts = PhaseFacts(phase(links=(2, 5), load=[12.0, 24.0], conns=[1.0, 2.0]))
    assert (facts.links, facts.unit, facts.cap) == ([2, 5], 12.0, 0.01)
    assert facts.loads == {2: (12.0, 1.0), 5: (24.0, 2.0)}
    capacity = np.array([9.0, 9.0, 1.0, 9.0, 9.0, 1.0])
    assert facts.alone(capacity) == (0.01, AT_CAP, 100)
    slow = np.array([9.0, 9.0, 0.2, 9.0, 9.0, 0.12])
    assert facts.alone(slow) == (0.01, AT_CAP, 100)  # kept until it is forgotten
    facts.forget()
    rate, limit, took = facts.alone(slow)
    assert rate == pytest.approx(0.12 / 24)
    assert (limit, took) == (5, 200)
    assert PhaseFacts(phase(links=(0, 1), load=[12.0, 13.0])).unit == 0.0
    nothing = PhaseFacts(phase(idle=0, links=()))
    assert (nothing.cap, nothing.unit, nothing.alone(slow)) == (1.0, 1.0, (1.0, AT_CAP, 1))


@pytest.mark.parametrize(
    ("share", "rate", "took"),
    [(1.0, 0.01, 100), (1.0, 1 / 99.9995, 100), (1.0, 1 / 100.002, 101), (0.0, 1.0, 0),
     (0.0005, 1.0, 0), (1.0, 0.0, NEVER), (0.5, 2.0, 1)],
)  # fmt: skip
def test_a_share_of_a_phase_takes_whole_picoseconds(share: float, rate: float, took: int) -> None:
    assert duration_of(share, rate) == took


def test_phases_move_after_their_leads_one_after_another() -> None:
    """The second moves nothing, and takes no time."""
    first, nothing, last = (
        replace(phase(idle, lead=lead), tail=5) for idle, lead in ((100, 10), (0, 7), (50, 20))
    )
    part = PlanPart((first, nothing, last), np.zeros(3, np.int64), np.full(3, 185))
    assert _moving(part) == [(10, 110), (135, 185)]


@pytest.mark.parametrize(
    ("joins", "waited_for"),
    [(0, 0), (1, 10), (10, 10), (50, 50), (109, 109), (110, 135), (134, 135), (135, 135),
     (184, 184), (185, 184), (999, 184)],
)  # fmt: skip
def test_a_member_is_waited_for_while_data_moves(joins: int, waited_for: int) -> None:
    assert _within([(10, 110), (135, 185)], joins) == waited_for
    assert _within([], joins) == joins
