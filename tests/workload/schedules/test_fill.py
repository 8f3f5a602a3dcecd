"""Where weight gradients go: into gaps of their length or nearly, for room, or to the end."""

from __future__ import annotations

import pytest

from commsim.workload.schedules import Action, StageTimes, Work
from commsim.workload.schedules.fill import UNIT, Cap, Filled, fill, walk

F, I, W = Work.F, Work.I, Work.W  # noqa: E741


def orders(*rows: str) -> list[list[Action]]:
    """Return actions from "0F0 0I0"."""
    return [[Action(Work(w[1]), int(w[0]), int(w[2])) for w in row.split()] for row in rows]


TWO = ("0F0 0F1 0I0 0I1", "1F0 1I0 1F1 1I1")


def filled(
    times: StageTimes, *, patience: float, limit: int = 9 * UNIT, kept: int = UNIT
) -> Filled | None:
    return fill(orders(*TWO), (0, 1), times, cap=Cap(limit, kept), patience=patience)


def told(found: Filled | None) -> list[str]:
    assert found is not None
    return [" ".join(str(action) for action in row) for row in found.actions]


@pytest.mark.parametrize("patience", [0.0, 0.5, 1.0])
def test_what_is_ready_as_the_device_is_waits_for_no_weight_gradient(patience: float) -> None:
    """Device 0 forwards 0-3 and 3-6; device 1 does F0 3-5, I0 5-6, and F1 is ready at 6."""
    times = StageTimes((3, 2), (1, 1), (2, 2), (0, 0))
    found = filled(times, patience=patience)
    assert told(found)[1] == "1F0 1I0 1F1 1I1 1W0 1W1"


@pytest.mark.parametrize(
    ("patience", "forward", "waits"),
    [(0.5, 4, False), (0.51, 4, True), (1.0, 4, True), (1.0, 3, False), (1.0, 5, True)],
)
def test_a_gap_is_taken_from_a_share_of_a_weight_gradient_on_or_if_no_other_device_idles_as_long(
    patience: float, forward: int, waits: bool
) -> None:
    """Hops of 2: device 0 does F0 0-4 and idles until I0 is back, 5 and device 1's forward later.

    Device 1 has a gap of 9 behind I0: I0 of 1 and F1 of 4 on device 0, and two hops. W takes 18.
    """
    times = StageTimes((4, forward), (1, 1), (18, 18), (2, 2))
    rows = orders("0F0 0I0 0F1 0I1", "1F0 1I0 1F1 1I1")
    found = told(fill(rows, (0, 1), times, cap=Cap(9 * UNIT), patience=patience))
    assert found[1] == ("1F0 1I0 1F1 1I1 1W0 1W1" if waits else "1F0 1I0 1W0 1F1 1I1 1W1")


def test_a_forward_without_room_lets_weight_gradients_run_first() -> None:
    """Each unit lives until W: with room for one, W0 comes before F1 on the last device."""
    times = StageTimes((1, 1), (1, 1), (1, 1), (0, 0))
    one = fill(orders("0F0 0I0 0F1 0I1"), (0,), times, cap=Cap(UNIT), patience=1.0)
    assert told(one) == ["0F0 0I0 0W0 0F1 0I1 0W1"]
    two = fill(orders("0F0 0I0 0F1 0I1"), (0,), times, cap=Cap(2 * UNIT), patience=1.0)
    assert told(two) == ["0F0 0I0 0F1 0I1 0W0 0W1"]
    half = fill(orders("0F0 0I0 0F1 0I1"), (0,), times, cap=Cap(UNIT, UNIT // 2), patience=1.0)
    assert told(half) == ["0F0 0I0 0W0 0F1 0I1 0W1"]
    none = fill(orders("0F0 0I0 0F1 0I1"), (0,), times, cap=Cap(UNIT, 0), patience=1.0)
    assert told(none) == ["0F0 0I0 0F1 0I1 0W0 0W1"]
    assert fill(orders("0F0 0F1 0I0 0I1"), (0,), times, cap=Cap(UNIT), patience=1.0) is None
    both = fill(orders("0F0 0F1 0I0 0I1"), (0,), times, cap=Cap(2 * UNIT), patience=1.0)
    assert told(both) == ["0F0 0F1 0I0 0I1 0W0 0W1"]


def test_devices_that_wait_for_each_other_have_no_order() -> None:
    times = StageTimes((1, 1), (1, 1), (1, 1), (0, 0))
    rows = orders("0F0 0I0 0F1 0I1", "1F1 1I1 1F0 1I0")
    assert fill(rows, (0, 1), times, cap=Cap(9 * UNIT), patience=1.0) is None


def test_the_span_is_the_longest_of_a_device_from_its_own_begin() -> None:
    """F 2 and 3, I 4 and 5, W 6 and 7, a hop of 10: device 1 is at work 12-20, W until 27."""
    times = StageTimes((2, 3), (4, 5), (6, 7), (10, 10))
    found = fill(orders("0F0 0I0", "1F0 1I0"), (0, 1), times, cap=Cap(UNIT), patience=1.0)
    assert found is not None
    assert found.span == 40  # device 0: I0 from 30 to 34, W until 40
    window = walk(found.actions, (0, 1), times)
    assert (window.begins, window.ends, window.span) == ((0, 12), (40, 27), 40)
    later = walk(found.actions, (0, 1), times, free=(5, 30))
    # F0 5-7, there at 17; device 1 is free at 30: F until 33, I 38, W 45; I0 48-52, W 58
    assert (later.begins, later.ends, later.span) == ((5, 30), (58, 45), 53)
