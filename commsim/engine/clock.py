"""
Time: a SimPy environment whose clock is integer picoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import simpy
from simpy.events import Event, EventPriority

__all__ = ["Clock"]

_LATE = EventPriority(2)  # after SimPy's URGENT (0) and NORMAL (1)


class Clock(simpy.Environment):
    """SimPy's environment, in picoseconds, with a last word per instant."""

    @property
    def now(self) -> int:
        """The current time in ps."""
        return cast(int, self._now)

    def last_word(self, action: Callable[[], None]) -> None:
        """Call `action` after everything else that happens at this instant."""
        event = Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: action())
        self.schedule(event, priority=_LATE)
