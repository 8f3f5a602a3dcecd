"""The record by hand: stretches of flows, services of links in whole ps, and memory by lane."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.star import Star

from commsim.engine.recorder import Recorder
from commsim.graph import GraphBuilder
from commsim.libraries import PlanPhase
from commsim.libraries.expansion import LinkServices


def phase(*links: int) -> PlanPhase:
    count = len(links)
    return PlanPhase(100, np.array(links, np.int64), np.full(count, 8.0), np.ones(count))


def recorder() -> Recorder:
    build = GraphBuilder()
    build.compute(build.lane(0), 1, name="x")
    return Recorder(build.build())


@pytest.mark.parametrize(
    ("since", "now", "rate", "links", "noted"),
    [
        (5, 9, 0.01, (0,), True), (9, 9, 0.01, (0,), False), (0, 1, 0.01, (0, 3), True),
        (5, 9, 0.0, (0,), False), (5, 9, 0.01, (), False),
    ],
)  # fmt: skip
def test_a_stretch_is_noted_if_something_has_moved_over_a_link(
    since: int, now: int, rate: float, links: tuple[int, ...], noted: bool
) -> None:
    record = recorder()
    flow: Any = SimpleNamespace(phase=phase(*links), settled=since, rate=rate, op=7)
    record.segment(flow, now)
    use = record.timeline(Star(2).links).links
    assert use.op.tolist() == [7] * noted
    if noted:
        assert (use.start.tolist(), use.end.tolist(), use.rate.tolist()) == ([since], [now], [rate])
        assert use.load_link.tolist() == list(links)


def test_services_are_flows_on_one_link_each_for_a_picosecond_at_least() -> None:
    """At 1 GB/s: half of it for 2 ms, all for a fifth of a ps, and 1 ms of a program alone."""
    record = recorder()
    flow: Any = SimpleNamespace(phase=phase(1, 2), settled=0, rate=0.01, op=0)
    record.segment(flow, 100)
    record.program_op.update({4: 9, 6: -1})
    record.services += [(3, 1e9 + 0.4, 3e9 + 0.4, 0.5, 4), (0, 10.2, 10.4, 1.0, 6)]
    alone = LinkServices(np.array([1]), np.array([0.0]), np.array([1e9]), np.array([1.0]))
    record.served.append((alone, 8))
    use = record.timeline(Star(2).links).links
    assert use.load_ptr.tolist() == [0, 2, 3, 4, 5]
    assert use.load_link.tolist() == [1, 2, 3, 0, 1]
    assert use.load_bytes.tolist() == pytest.approx([8, 8, 1e6, 0.2e-3, 1e6])
    assert use.flow.tolist() == [0, 1, 2, 3]
    assert use.start.tolist() == [0, 10**9, 10, 0]
    assert use.end.tolist() == [100, 3 * 10**9, 11, 10**9]
    assert use.rate.tolist() == pytest.approx([0.01, 1 / (2 * 10**9), 1.0, 1e-9])
    assert use.op.tolist() == [0, 9, -1, 8]


def test_memory_is_counted_from_nothing_on_each_lane() -> None:
    """What is given back at an instant is given before more is taken."""
    build = GraphBuilder()
    for rank in range(2):
        lane = build.lane(rank)
        build.compute(lane, 10, name="f", alloc=100 + rank)
        build.compute(lane, 10, name="g", alloc=7, free=50)
        build.compute(lane, 10, name="b", free=50)
    graph = build.build()
    start, end = [0, 10, 20] * 2, [10, 20, 30] * 2
    end[1] = 10
    record = Recorder(graph, (start, start, end, [-1] * 6, [0] * 6))
    memory = record.timeline(None).memory
    assert memory.lane.tolist() == [0] * 4 + [1] * 4
    assert memory.time.tolist() == [0, 10, 10, 30, 0, 10, 20, 30]
    assert memory.held.tolist() == [100, 50, 57, 7, 101, 108, 58, 8]
