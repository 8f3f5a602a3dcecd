"""
Time: a SimPy environment whose clock is integer picoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

import simpy
from simpy.events import NORMAL, Event, EventPriority

__all__ = ["Clock"]

_LATE = EventPriority(2)  # after SimPy's URGENT (0) and NORMAL (1)


class Call:
    """An event of SimPy's queue that is one call and nothing else: nobody can wait for it."""

    __slots__ = ("callbacks",)
    _ok = True  # as SimPy's queue asks of what it takes

    def __init__(self, act: Callable[[Any], None]) -> None:
        self.callbacks: tuple[Callable[[Any], None], ...] | None = (act,)


class Clock(simpy.Environment):
    """SimPy's environment, in picoseconds, with calls and a last word per instant."""

    now: int = property(attrgetter("_now"))  # type: ignore[assignment]  # asked all the time
    """The current time in ps."""

    @staticmethod
    def trigger(event: Event) -> None:
        """Trigger `event` now, bypassing the queue: its callbacks run before this returns.

        Only from callbacks of events. The queue would run it after others of this instant.
        """
        waiting, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        event._ok, event._value = True, None
        for call in waiting:
            call(event)

    def call_after(self, delay: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay` ps, rounded up; now if that is negative."""
        # A thousandth of a ps of float noise must not cost a whole one.
        self.call(lambda _: action(), max(math.ceil(delay - 1e-3), 0))

    def last_word(self, action: Callable[[], None]) -> None:
        """Call `action` after everything else that happens at this instant."""
        self.call(lambda _: action(), priority=_LATE)

    def call(
        self, act: Callable[[Any], None], delay: int = 0, *, priority: EventPriority = NORMAL
    ) -> None:
        """Call `act` after `delay` ps, in the order in which an event would happen then."""
        event: Any = Call(act)
        heappush(self._queue, (self._now + delay, priority, next(self._eid), event))

    def run(self, until: Any = None) -> Any:
        """Run until no event is left, as SimPy does; without a call per event."""
        if until is not None:
            return super().run(until)
        queue = self._queue
        while queue:
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        return None
