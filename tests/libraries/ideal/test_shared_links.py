"""Channels that share links: what each takes alone and together, by hand."""

from __future__ import annotations

import numpy as np

from commsim.libraries.ideal.shared_links import side_by_side
from commsim.libraries.plan import PlanPart, PlanPhase


def phase(idle: int, **load: float) -> PlanPhase:
    """Return a phase with so many bytes on links a, b, c."""
    link = np.array(["abc".index(name) for name in load])
    return PlanPhase(idle, link, np.array(list(load.values())), np.ones(len(load)))


def part(*phases: PlanPhase) -> PlanPart:
    idle = sum(each.idle for each in phases)
    return PlanPart(phases, np.array([0, 7, 0, idle]), np.array([-1, 0, 10, idle]))


CAPACITY = np.array([1e12, 2e12, 1e12])  # a byte takes 1 ps on a and c, half of one on b


def test_parts_take_their_latency_and_the_time_of_the_busiest_link_of_all() -> None:
    first = part(phase(40, a=30.0, b=20.0), phase(60, a=10.0))
    other = part(phase(45, a=40.0))
    apart = part(phase(25, c=20.0, b=2.0))
    asked: list[int] = []

    def latency(number: int) -> int:
        asked.append(number)
        return [70, 5, 3][number]

    one, two, three = side_by_side([first, other, apart], CAPACITY, latency)
    # link a has 80 bytes in all: 70 + 80 and 5 + 80 ps; c has no more than its own
    assert [each.idle for each in one.phases] == [60, 90]
    assert (one.joins.tolist(), one.leaves.tolist()) == ([0, 11, 0, 150], [-1, 0, 15, 150])
    assert two.idle == 85
    assert two.phases[0].load.tolist() == [40.0]
    assert three is apart
    assert asked == [0, 1]


def test_a_part_that_is_long_enough_stays_as_it_is() -> None:
    first, other = part(phase(100, a=40.0)), part(phase(1000, a=40.0))
    found = side_by_side([first, other], CAPACITY, lambda number: 20)
    assert found[0] is first  # 20 + 80 ps
    assert found[1] is other
    assert side_by_side([first, other], CAPACITY, lambda number: 21)[0].idle == 101


def test_links_of_others_do_not_count() -> None:
    """B carries the bytes of the second part alone, A those of the first."""
    first, other = part(phase(10, a=10.0)), part(phase(50, b=100.0))
    assert side_by_side([first, other], CAPACITY, lambda number: 10**6) == [first, other]
