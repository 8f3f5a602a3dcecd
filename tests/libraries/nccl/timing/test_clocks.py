"""The closed form of a ring of two kinds of edges against the recurrence it solves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries.expansion.ring_clock import ring_arrivals
from commsim.libraries.nccl.timing.clocks import ring_time

TIMES = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5, 11.0, 40.0])


def in_closed_form(steps: int, period: int, local: tuple[float, float], net: tuple[float, float]):
    """Return `ring_time` of plain numbers."""
    pairs = [(np.array(latency), np.array(service)) for latency, service in (local, net)]
    return float(ring_time(np.array(float(steps)), np.array(float(period)), *pairs))


@given(
    ppn=st.integers(1, 8), nodes=st.integers(2, 6), share=st.floats(0, 2),
    local=st.tuples(TIMES, TIMES), net=st.tuples(TIMES, TIMES),
)  # fmt: skip
def test_a_mixed_ring_ends_when_the_recurrence_says(ppn, nodes, share, local, net):
    latency = np.array(([local[0]] * (ppn - 1) + [net[0]]) * nodes)
    service = np.array(([local[1]] * (ppn - 1) + [net[1]]) * nodes)
    steps = max(round(share * (ppn * nodes - 1)), 1)
    last = ring_arrivals(latency, service, steps).max()
    assert in_closed_form(steps, ppn, local, net) == pytest.approx(last, rel=1e-12)


def test_a_uniform_ring_pays_latency_and_service_at_each_step():
    assert in_closed_form(14, 1, (0, 0), (2.0, 3.0)) == 14 * 5.0


def test_latency_of_fast_edges_hides_behind_a_slow_one():
    # 4 nodes of 8: 62 services of the slow edge and its latency; the NVLinks' time hides.
    assert in_closed_form(62, 8, (0.5, 1.0), (3.0, 20.0)) == 62 * 20.0 + 3.0


def test_a_latency_larger_than_a_slow_service_shows_at_each_step():
    # All 31 hops of an all-gather over 4 x 8, four of them through the network.
    assert in_closed_form(31, 8, (30.0, 1.0), (40.0, 2.0)) == 27 * 31.0 + 4 * 42.0


def test_one_message_per_edge_takes_the_slowest_edge_alone():
    assert in_closed_form(1, 4, (1.0, 2.0), (3.0, 40.0)) == 43.0
    assert in_closed_form(1, 4, (50.0, 2.0), (3.0, 40.0)) == 52.0
    assert in_closed_form(2, 4, (50.0, 2.0), (3.0, 40.0)) == 2 * 52.0  # both edges are fast ones


def test_a_ring_without_local_edges_is_as_slow_as_the_network():
    assert in_closed_form(6, 1, (50.0, 90.0), (2.0, 3.0)) == 6 * 5.0
    assert in_closed_form(6, 2, (0.0, 90.0), (0.0, 3.0)) == 6 * 90.0
