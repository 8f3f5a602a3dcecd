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

from commsim.units import MOST_PICOSECONDS

__all__ = ["Clock"]

_FIRST = EventPriority(-1)  # before all else at an instant
_LATE = EventPriority(2)  # after SimPy's URGENT (0) and NORMAL (1)


class Clock(simpy.Environment):
    """SimPy's environment, in picoseconds, with calls and a last word per instant.

    Its queue holds calls beside events: a call is what nobody can wait for, and needs no event.
    """

    cut = False
    """Whether anything was left to happen at the end of time."""

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
        whole = math.ceil(delay - 1e-3) if delay < MOST_PICOSECONDS else MOST_PICOSECONDS
        self.call(lambda _: action(), max(whole, 0))

    def last_word(self, action: Callable[[], None]) -> None:
        """Call `action` after everything else that happens at this instant."""
        self.call(lambda _: action(), priority=_LATE)

    def call(
        self, act: Callable[[Any], None], delay: int = 0, *, priority: EventPriority = NORMAL
    ) -> None:
        """Call `act` after `delay` ps, in the order in which an event would happen then."""
        entry: Any = (self._now + delay, priority, next(self._eid), act)
        heappush(self._queue, entry)

    def end_time(self) -> None:
        """Let time end where 64 bits of it do (`MOST_PICOSECONDS`): what comes then never happens.

        An entry of the queue sees to it, so that no event has to be compared with the limit.
        """
        entry: Any = (MOST_PICOSECONDS, _FIRST, next(self._eid), self._cut_off)
        heappush(self._queue, entry)

    def _cut_off(self, _: object) -> None:
        self.cut = bool(self._queue)
        self._queue.clear()

    def step(self) -> None:
        """Let the next event or call happen, as SimPy does."""
        if self._queue and not isinstance(self._queue[0][3], Event):
            self._now, _, _, act = heappop(self._queue)
            act(None)
        else:
            super().step()

    def run(self, until: Any = None) -> Any:
        """Run until no event is left, as SimPy does; without a call per event."""
        if until is not None:
            return super().run(until)
        queue: Any = self._queue
        while queue:
            self._now, _, _, event = heappop(queue)
            if not isinstance(event, Event):
                event(None)
                continue
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        return None
