"""
A recording's own account of a rank without a GPU: unions of its events, with nothing inferred.

Which call a piece of Gloo's work belongs to, and what a thread waited for in a gap, the import
works out (`gloo_work`, `gloo_waits`). Here are only facts of the events as they are read, which a
replay has to meet whatever the import made of them: when Gloo was at work, and in what time of
that the rank can have computed at most and at least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from commsim.ops import op_of
from commsim.traces.formats import Event, EventKind, KinetoFile

__all__ = ["HostAccount", "host_account"]

Span = tuple[int, int]
_WORK, _ISSUE, _WAIT = "gloo:", "c10d::", "_c10d_functional::wait_tensor"
_MESSAGES = ("send", "recv")
_AT_ONCE = 200_000_000  # ps: a shorter wait may have found the message done


class HostAccount(msgspec.Struct, frozen=True):
    """Times in ps: `communication` (at least, at most) in which Gloo works for the rank.

    What is hidden counts. A message is marked from its post until a wait for it has returned: by
    the Python frames it may have been done before that wait. Without frames its mark is all there
    is.

    The rank computed for no less than `least` and no more than `most`. They are one where its
    only thread has Python frames, which show each wait.
    """

    communication: tuple[int, int]
    least: int
    most: int

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Return what the recording allows for parts of the rank's time: (least, most)."""
        return {"compute": (self.least, self.most), "communication": self.communication}


def host_account(file: KinetoFile, begin: int, end: int) -> HostAccount | None:
    """Return the account of a window of a rank, None if Gloo did nothing in it."""
    events = list(file.events)

    def spans(chosen: Callable[[Event], bool]) -> list[Span]:
        found = ((max(begin, e.start), min(end, e.end)) for e in events if chosen(e))
        return [span for span in found if span[0] < span[1]]

    surely, marked = spans(_moves), spans(_is_message)
    gloo = surely + marked
    if not gloo:
        return None
    waits, work = spans(_waits), spans(_works)
    most = end - begin - _both(gloo, waits)
    framed = any(event.kind == EventKind.WAIT for event in events)
    threads = {event.thread for event in events if _works(event)}
    least = most if framed and len(threads) <= 1 else _length(work) - _both(work, waits)
    held = [wait for wait in waits if wait[1] - wait[0] > _AT_ONCE]
    whole = _length(gloo)
    waited = _both(gloo, surely + held) if framed else whole  # surely, or marked and waited for
    return HostAccount((waited, whole), min(least, most), most)


def _moves(event: Event) -> bool:
    """Whether Gloo works, or posts a message, which it does before that is marked."""
    if event.kind == EventKind.ANNOTATION:
        return event.name.startswith(_WORK) and not _is_message(event)
    return event.name.startswith(_ISSUE) and op_of(event.name) in _MESSAGES


def _is_message(event: Event) -> bool:
    """Whether this marks a message, from its post until the wait for it has returned."""
    marks = event.kind == EventKind.ANNOTATION and event.name.startswith(_WORK)
    return marks and op_of(event.name) in _MESSAGES


def _waits(event: Event) -> bool:
    return event.kind == EventKind.WAIT or event.name == _WAIT


def _works(event: Event) -> bool:
    return event.kind == EventKind.CPU_OP and not (
        event.name.startswith(_ISSUE) or event.name == _WAIT
    )


def _both(some: list[Span], others: list[Span]) -> int:
    return _length(some) + _length(others) - _length([*some, *others])


def _length(spans: Iterable[Span]) -> int:
    """Return the length of a union."""
    length, reach = 0, -1
    for start, end in sorted(spans):
        length += max(0, end - max(start, reach))
        reach = max(reach, end)
    return length
