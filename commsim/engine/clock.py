"""
Time: a SimPy environment whose clock is integer picoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter

import simpy
from simpy.events import Event, EventPriority

__all__ = ["Clock"]

_LATE = EventPriority(2)  # after SimPy's URGENT (0) and NORMAL (1)


class Clock(simpy.Environment):
    """SimPy's environment, in picoseconds, with a last word per instant."""

    now: int = property(attrgetter("_now"))  # type: ignore[assignment]  # asked all the time
    """The current time in ps."""

    @staticmethod
    def trigger(event: Event) -> None:
        """Trigger `event` now, bypassing the queue: whoever waits runs before this returns.

        Only from callbacks of events. The queue would run it after others of this instant.
        """
        waiting, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        event._ok, event._value = True, None
        for call in waiting:
            call(event)

    def call_after(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay` ps, rounded up; now if that is negative."""
        # A thousandth of a ps of float noise must not cost a whole one.
        alarm = self.timeout(max(math.ceil(delay - 1e-3), 0))
        assert alarm.callbacks is not None
        alarm.callbacks.append(lambda _: action())

    def last_word(self, action: Callable[[], None]) -> None:
        """Call `action` after everything else that happens at this instant."""
        event = Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: action())
        self.schedule(event, priority=_LATE)
