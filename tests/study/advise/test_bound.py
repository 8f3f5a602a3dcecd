"""Bounds of layouts, of units and parts whose times are made by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.advise.bound import LayoutBound
from commsim.study.advise.infeasible import _least
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.workload import Work

TIMES = {
    Work.F: {"a": 1, "b": 20}, Work.B: {"a": 51, "b": 40}, Work.I: {"a": 50, "b": 24},
    Work.W: {"a": 1, "b": 16},
}  # fmt: skip
"""ps of a unit of each kind."""


def bound(parts: Any, *, schedule: str = "1f1b", batch: int = 16, times: Any = TIMES) -> Any:
    """Return the bound in ps, of two stages, four replicas and microbatches of a sequence."""
    made: Any = SimpleNamespace(
        _times=lambda shape: times, _kinds=lambda shape: parts,
        _section=SimpleNamespace(batch=SimpleNamespace(global_=batch)),
    )  # fmt: skip
    shape = Candidate(Degrees(4, 1, 2, 1, 1), schedule, 1, 1, "none", "ddp")
    found = LayoutBound.seconds(made, shape)
    return None if found is None else found * 1e12


def test_a_stage_works_after_the_first_forward_and_before_the_last_backward() -> None:
    """Four microbatches. The second stage: 1 + 4 (20 + 40) + 51; the first alone 4 (1 + 51)."""
    assert bound([{"a": 1}, {"b": 1}]) == pytest.approx(292)
    assert bound([{"b": 1}, {"a": 1}]) == pytest.approx(20 + 4 * 52 + 40)
    assert bound([{"b": 1, "a": 2}, {"a": 1}]) == pytest.approx(4 * (22 + 142))


def test_virtual_stages_of_a_device_work_in_turn() -> None:
    """Parts 0 and 2 are the first device's, 1 and 3 the second's: after 20 and before 40."""
    parts = [{"b": 1}, {"a": 1}, {"b": 1}, {"a": 2}]
    assert bound(parts) == pytest.approx(20 + 4 * 3 * 52 + 40)
    parts = [{"a": 1}, {"b": 1}, {"a": 1}, {"b": 2}]
    assert bound(parts) == pytest.approx(1 + 4 * 3 * 60 + 51)


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        (16, 1 + 4 * 44 + 2 * 16 + 50), (8, 1 + 2 * 44 + 0 * 16 + 50), (4, 1 + 44 + 50),
        (48, 1 + 12 * 44 + 10 * 16 + 50),
    ],
)  # fmt: skip
def test_weight_gradients_fill_what_the_last_input_gradients_leave(batch: int, found: int) -> None:
    """zb_h1's second stage: what the last of m microbatches waits for, less the weight gradients of
    the last two; a first stage that works longer, all of its work."""
    given = [{"a": 1}, {"b": 1}]
    assert bound(given, schedule="zb_h1", batch=batch) == pytest.approx(found)
    if batch > 4:
        long = bound([{"b": 2}, {"a": 1}], schedule="zb_h1", batch=batch)
        assert long == pytest.approx(batch // 4 * 120)


def test_degrees_that_do_not_fit_have_no_bound() -> None:
    assert bound(None) is None
    assert bound([{"a": 1}, {"b": 1}], times=None) is None


@pytest.mark.parametrize(("dp", "cp", "shard"), [
    (1, 1, "ddp"), (2, 1, "fsdp"), (1, 2, "fsdp"), (2, 2, "fsdp"),
])  # fmt: skip
def test_the_least_is_asked_of_what_shares_all_among_replicas(
    monkeypatch: pytest.MonkeyPatch, dp: int, cp: int, shard: str
) -> None:
    asked: list[Any] = []

    def judge(section: Any, cluster: Any, library: Any) -> Any:
        def least(degrees: Degrees, shard: str, recompute: str) -> Any:
            asked.append((degrees, shard, recompute))
            return [None, SimpleNamespace(fits=False), SimpleNamespace(fits=True)][len(asked) - 1]

        return SimpleNamespace(degrees=lambda: [Degrees(dp, 1, 1, cp, 1)] * 4, least=least)

    monkeypatch.setattr(sys.modules["commsim.study.advise.infeasible"], "Judge", judge)
    nothing: Any = None
    found = _least(nothing, nothing)
    assert found is not None
    assert found.fits
    assert asked == [(Degrees(dp, 1, 1, cp, 1), shard, "full")] * 3
