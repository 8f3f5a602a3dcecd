"""Many flows as columns: their rates, ends and turns, and what is told of them, by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from commsim.engine.many_flows import NEVER, ManyFlows
from commsim.libraries import PlanPhase


@dataclass(eq=False)
class One:
    """A flow of `size` bytes over some links, as far as it has come."""

    op: int
    links: list[int]
    size: float = 100.0
    cap: float = 1.0
    goal: float = 0.0
    left: float = 1.0
    rate: float = 0.0
    settled: int = 0
    wake: int = NEVER
    limit: int = -2
    phase: PlanPhase = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.links)
        self.phase = PlanPhase(
            1, np.array(self.links, np.int64), np.full(count, self.size), np.ones(count)
        )


class Log:
    """Keeps what it is told: (template, op, start, end, rate)."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int, int, float]] = []

    def segment(self, flow: One, now: int) -> None:
        raise AssertionError

    def template(self, phase: PlanPhase) -> int:
        return int(phase.load[0]) if len(phase.load) else 7

    def segments(self, template: Any, op: Any, start: Any, now: int, rate: Any) -> None:
        columns = (template.tolist(), op.tolist(), start.tolist(), rate.tolist())
        self.told += [(t, o, s, now, r) for t, o, s, r in zip(*columns, strict=True)]


def many(*flows: One, capacity: tuple[float, ...] = (1.0, 1.0)) -> tuple[ManyFlows[One], Log]:
    log = Log()
    found: ManyFlows[One] = ManyFlows(np.array(capacity), log)
    for turn, flow in enumerate(flows):
        found.add(flow, flow.size, turn)
    return found, log


def test_flows_share_a_link_and_have_what_others_leave_when_these_end() -> None:
    """100 and 50 bytes at a half each: the second ends at 100, the first 50 later."""
    flows, log = many(One(3, [0]), One(4, [0], size=50.0), One(5, [1], cap=0.001))
    flows.share(0)
    assert flows.next_end() == 100
    assert flows.end_due(99) == []
    (ended,) = flows.end_due(100)
    assert (ended.op, ended.left, ended.rate, ended.settled, ended.wake) == (4, 0, 0, 100, NEVER)
    flows.share(100)
    assert flows.next_end() == 150
    assert [one.op for one in flows.end_due(150)] == [3]
    flows.share(150)
    assert [one.op for one in flows.end_due(1000)] == [5]
    assert flows.next_end() == NEVER
    assert log.told == [
        (50, 4, 0, 100, 0.01), (100, 3, 0, 100, 0.005), (100, 3, 100, 150, 0.01),
        (100, 5, 0, 1000, 0.001),
    ]  # fmt: skip


def test_flows_that_end_together_do_so_by_time_and_in_their_turns() -> None:
    flows, _ = many(*(One(op, [], cap=1 / wake) for op, wake in ((1, 20), (2, 10), (3, 20))))
    flows.add(One(4, [], cap=0.1), 100.0, -1)
    flows.share(0)
    assert [one.op for one in flows.end_due(20)] == [4, 2, 1, 3]


@pytest.mark.parametrize(
    ("left", "goal", "cap", "wake"),
    [
        (1.0, 0.0, 0.1, 15), (1.0, 0.5, 0.1, 10), (0.5, 0.25, 0.1, 8), (0.5, 0.5, 0.1, 5),
        (0.3, 0.5, 0.1, 5), (1.0, 0.0, 1 / 10.0005, 15), (1.0, 0.0, 1 / 10.002, 16),
        (1.0, 0.0, 1e-30, NEVER),
    ],
)  # fmt: skip
def test_a_flow_ends_when_it_has_come_to_its_goal(
    left: float, goal: float, cap: float, wake: int
) -> None:
    """It begins at 5 ps; ends are whole ps, rounded up but for noise."""
    flows, _ = many(One(0, [], left=left, goal=goal, cap=cap, settled=5))
    flows.share(5)
    assert flows.next_end() == wake


def test_a_link_of_another_capacity_is_shared_again() -> None:
    flows, log = many(One(3, [0]), One(4, [0, 1]))
    flows.share(0)
    flows.set_capacity(1, 0.25)
    flows.share(40)  # 0.2 of each have moved
    first, second = flows.release()
    assert (first.left, first.rate, first.settled, first.limit) == (0.8, 0.0075, 40, 0)
    assert (second.left, second.rate, second.settled, second.limit) == (0.8, 0.0025, 40, 1)
    assert (first.wake, second.wake) == (147, 360)
    assert flows.next_end() == NEVER
    assert sorted(log.told) == [(100, 3, 0, 40, 0.005), (100, 4, 0, 40, 0.005)]


def test_a_rate_that_stays_the_same_is_not_told_anew() -> None:
    flows, log = many(One(3, [0], cap=0.002), One(4, [0], cap=0.002))
    flows.share(0)
    flows.set_capacity(0, 0.5)
    flows.share(50)
    assert log.told == []
    assert flows.next_end() == 500


def test_flows_are_given_back_in_their_turns_and_their_numbers_used_again() -> None:
    """A hundred flows, of which every third ends first; as many come again."""
    flows, _ = many(*(One(op, [0], size=float(1 + op % 3)) for op in range(100)))
    flows.share(0)
    ended = flows.end_due(flows.next_end())
    assert [one.op for one in ended] == list(range(0, 100, 3))
    for at in range(len(ended)):
        flows.add(One(200 + at, [0]), 100.0, 100 + at)
    assert len(flows.flows) == 100
    given = flows.release()
    assert [one.op for one in given] == [
        *(op for op in range(100) if op % 3), *range(200, 200 + len(ended)),
    ]  # fmt: skip
    assert flows.flows == [None] * 100
    assert flows.release() == []
