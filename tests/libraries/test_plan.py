"""Plans: how long they take, and what they and requests say if nothing is said."""

from __future__ import annotations

import numpy as np

from commsim.cluster import NOWHERE
from commsim.libraries import Request, Start
from commsim.libraries.plan import Copy, Plan, PlanPart, PlanPhase, empty_phase


def test_a_plan_takes_as_long_as_its_longest_part() -> None:
    one = np.zeros(1, np.int64)
    flow = PlanPhase(10, one, np.ones(1), np.ones(1), lead=3, tail=4)
    parts = (
        PlanPart((flow, empty_phase(5)), one, one),
        PlanPart((empty_phase(21),), one, one),
    )
    assert [part.idle for part in parts] == [22, 21]
    assert Plan(parts, Start.ALL, 1).idle == 22
    assert Plan((), Start.ALL, 1).idle == 0
    assert len(empty_phase(5).link) == len(empty_phase(5).load) == 0


def test_what_a_request_and_a_plan_say_if_nothing_is_said() -> None:
    request = Request("all_reduce", 8, (0,))
    assert (request.root, request.recorded, request.eager, request.on_host) == (-1, -1, 0, False)
    plan = Plan((), Start.ALL, 1)
    assert (plan.channels, plan.sms, plan.touched, plan.stays, plan.awaits) == (1, 0, 0.0, (), ())
    assert (plan.programs, plan.algorithm, plan.notes) == ((), "", ())
    assert (plan.copies_in, plan.copies_out) == ((), ())
    flow = empty_phase(7)
    assert (flow.idle, flow.lead, flow.tail) == (7, 0, 0)
    assert Copy(NOWHERE, 8).lead == 0


def test_when_a_plan_may_begin_is_numbered_in_order() -> None:
    words = ["ALL", "PATH", "PAIR", "EAGER", "EACH"]
    assert [(start.name, start.value) for start in Start] == list(zip(words, range(5), strict=True))
