"""The clock: when calls happen, in which order at an instant, and how time ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import simpy

from commsim.engine.clock import Clock
from commsim.units import MOST_PICOSECONDS


def noting(clock: Clock, notes: list[Any], what: Any = None) -> Callable[..., None]:
    """Return a call that notes something, or the time."""
    return lambda *_: notes.append(clock.now if what is None else what)


@pytest.mark.parametrize(
    ("delay", "at"),
    [(-5.0, 0), (0.0, 0), (0.0009, 0), (0.0011, 1), (3.0, 3), (3.0009, 3), (3.0011, 4),
     (1e30, MOST_PICOSECONDS), (math.inf, MOST_PICOSECONDS)],
)  # fmt: skip
def test_delays_are_rounded_up_but_for_noise(delay: float, at: int) -> None:
    clock, times = Clock(), list[int]()
    clock.call_after(delay, noting(clock, times))
    clock.run()
    assert times == [at]


@pytest.mark.parametrize("steps", [False, True])
def test_calls_and_events_of_an_instant_come_in_order_and_the_last_word_after_them(
    steps: bool,
) -> None:
    clock, notes = Clock(), list[str]()
    clock.call(noting(clock, notes, "later"), 1)
    clock.last_word(noting(clock, notes, "last"))
    clock.call(noting(clock, notes, "first"))
    clock.timeout(0).callbacks.append(noting(clock, notes, "event"))
    clock.call(noting(clock, notes, "second"))
    clock.run(2) if steps else clock.run()
    assert notes == ["first", "event", "second", "last", "later"]
    assert clock.now == (2 if steps else 1)
    with pytest.raises(simpy.core.EmptySchedule):
        Clock().step()


def test_what_happens_at_the_end_of_time_does_not() -> None:
    for late, cut in ((-1, False), (0, True), (1, True)):
        clock, times = Clock(), list[int]()
        clock.call(noting(clock, times), MOST_PICOSECONDS + late)
        clock.end_time()
        assert not clock.cut
        clock.run()
        assert clock.cut == cut
        assert times == ([] if cut else [MOST_PICOSECONDS - 1])


def test_an_event_that_is_triggered_calls_at_once_and_has_no_value() -> None:
    clock, values = Clock(), list[Any]()
    event = clock.event()
    event.callbacks.append(lambda event: values.append((event.ok, event.value)))
    Clock.trigger(event)
    assert values == [(True, None)]
    assert event.processed


def test_what_a_process_raises_ends_the_run_unless_another_takes_care_of_it() -> None:
    def fails(clock: Clock) -> Any:
        yield clock.timeout(1)
        raise KeyError("its own")

    def cares(clock: Clock, notes: list[int]) -> Any:
        with pytest.raises(KeyError):
            yield clock.process(fails(clock))
        notes.append(clock.now)

    clock, notes = Clock(), list[int]()
    clock.process(cares(clock, notes))
    clock.run()
    assert notes == [1]
    clock.process(fails(clock))
    with pytest.raises(KeyError, match="its own"):
        clock.run()
