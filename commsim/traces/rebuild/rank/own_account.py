"""
A recording's own account of a GPU's step: unions of its events, with nothing inferred.

It is taken from the events as they are read, before groups, waits and dependencies are made of
them, so that a replay can be checked against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.host_account import HostAccount, host_account

__all__ = ["OwnAccount", "own_account", "window_of"]

_COMPUTE, _COMMUNICATION, _COPY = range(3)


@dataclass(frozen=True, slots=True)
class OwnAccount:
    """Times in ps: `compute`, `communication` that no compute hides, and the rest of `copy`.

    Communication counts from the start of its kernel, waits included.
    """

    compute: int
    communication: int
    copy: int

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Return what the recording allows for parts of the rank's time: (least, most)."""
        parts = {
            "compute": self.compute,
            "exposed communication": self.communication,
            "exposed copy": self.copy,
        }
        return {part: (time, time) for part, time in parts.items()}


def own_account(activity: Activity) -> OwnAccount | HostAccount | None:
    """Return the account of a rank's window, None for one without GPU work and without Gloo's."""
    begin, end = window_of(activity)
    if not any(op.event.on_gpu and not op.is_gloo for op in activity.gpu):
        return host_account(activity.file, begin, end)
    spent = [0, 0, 0]
    for start, until, kind in _swept(_marks(activity, begin, end)):
        spent[kind] += until - start
    return OwnAccount(*spent)


def window_of(activity: Activity) -> tuple[int, int]:
    """Return the profiled step, else the whole recording of the main thread, in ps."""
    if activity.step:
        return activity.step.start, activity.step.end
    events = activity.threads[activity.main].events
    return events[0].start, max(event.end for event in events)


def _marks(activity: Activity, begin: int, end: int) -> list[tuple[int, int, int]]:
    """Return (time, kind, +1 or -1) of what runs in the window, in order of time."""
    marks: list[tuple[int, int, int]] = []
    for op in activity.gpu:
        start, until = max(begin, op.event.start), min(end, op.event.end)
        if start < until:
            kernel = op.event.kind == EventKind.KERNEL
            kind = _COMMUNICATION if op.communicates else _COMPUTE if kernel else _COPY
            marks += [(start, kind, 1), (until, kind, -1)]
    return sorted(marks)


def _swept(marks: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, kind) of each stretch, by the first kind that runs in it."""
    running, before = [0, 0, 0], 0
    for time, kind, change in marks:
        first = next((k for k, count in enumerate(running) if count), -1)
        if first >= 0 and time > before:
            yield before, time, first
        running[kind] += change
        before = time
