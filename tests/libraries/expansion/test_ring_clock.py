"""The closed form of a ring against its recurrence, and against the expanded program."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.share import examples
from helpers.star import Star
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries import Ideal, Request
from commsim.libraries.expansion import ring_clock
from commsim.libraries.expansion.ring_clock import ring_arrivals
from commsim.libraries.ideal import library as ideal


def recurrence(latency: np.ndarray, service: np.ndarray, steps: int) -> np.ndarray:
    """x_i(k) = max(x_{i-1}(k-1) + latency_i, x_i(k-1)) + service_i, step by step."""
    x: np.ndarray = latency + service
    for _ in range(steps - 1):
        x = np.maximum(np.roll(x, 1) + latency, x) + service
    return x


@examples(100)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 24), rounds=st.sampled_from([1, 2]))
def test_the_maximum_over_paths_is_the_recurrence(seed: int, n: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    latency, service = rng.uniform(0, 5, n), rng.exponential(3, n)
    steps = rounds * (n - 1)
    assert ring_arrivals(latency, service, steps) == pytest.approx(
        recurrence(latency, service, steps), rel=1e-12
    )


def test_a_repeating_ring_is_worked_out_once_per_edge() -> None:
    latency = np.tile([1.0, 1.0, 1.0, 5.0], 6)
    service = np.tile([0.2, 0.2, 0.2, 1.0], 6)
    assert ring_arrivals(latency, service, 46) == pytest.approx(
        recurrence(latency, service, 46), rel=1e-12
    )


@pytest.mark.parametrize("period", [1, 2, 3, 5])
@pytest.mark.parametrize("times", [2, 3])
def test_any_number_of_steps_round_a_repeating_ring(period: int, times: int) -> None:
    rng = np.random.default_rng(period * times)
    for steps in range(1, 4 * period * times):
        latency = np.tile(rng.uniform(0, 5, period), times)
        service = np.tile(rng.exponential(3, period), times)
        assert ring_arrivals(latency, service, steps) == pytest.approx(
            recurrence(latency, service, steps), rel=1e-12
        ), steps


def test_blocks_of_edges_are_worked_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few edges are looked at together: one, three or all of seven."""
    rng = np.random.default_rng(2)
    latency, service = rng.uniform(0, 5, 7), rng.exponential(3, 7)
    for most in (1, 7, 14, 20, 21, 49):
        monkeypatch.setattr(ring_clock, "_LARGEST_BLOCK", most)
        assert ring_arrivals(latency, service, 12) == pytest.approx(
            recurrence(latency, service, 12), rel=1e-12
        ), most


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_the_closed_form_is_the_expanded_program(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    cluster = Star(20, rng.uniform(1e9, 5e9, 40), rng.integers(10**5, 10**7, 40))
    request = Request(kind, 2**22, tuple(range(20)))
    closed = Ideal("ring").plan(request, cluster)
    monkeypatch.setattr(ideal, "_SMALL_RING", 64)
    expanded = Ideal("ring").plan(request, cluster)
    assert closed.idle == pytest.approx(expanded.idle, rel=1e-12)
    assert closed.parts[0].leaves == pytest.approx(expanded.parts[0].leaves, rel=1e-9)
    for mine, theirs in zip(closed.parts[0].phases, expanded.parts[0].phases, strict=True):
        assert np.array_equal(mine.link, theirs.link)
        assert mine.load == pytest.approx(theirs.load, rel=1e-12)
        assert mine.conns == pytest.approx(theirs.conns, rel=1e-12)
