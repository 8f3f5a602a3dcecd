"""
Which of Gloo's runs belongs to which c10d op.

A group runs its collectives in the order of issue, on threads of its own (two unless told
otherwise: ProcessGroupGloo's `threads`), and groups run beside each other: of two groups' calls
issued one after the other, either may begin first. So a run is matched within its group: a
thread's group is that of the runs on it that can belong to one group alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from commsim.traces.formats import Event

__all__ = ["IssuedOp", "matched_runs"]

_Thread = tuple[str, str]


class IssuedOp(NamedTuple):
    """A c10d op, what its run is called, and the name of its group or "" if that is unknown."""

    event: Event
    kind: str
    group: str


def matched_runs(
    issued: Sequence[IssuedOp], runs: Mapping[str, Sequence[Event]]
) -> list[Event | None]:
    """Return the run of each c10d op, None without one.

    `issued` is in order of start, and `runs` by kind too.
    """
    found: list[Event | None] = [None] * len(issued)
    of_kind = {
        kind: [place for place, one in enumerate(issued) if one.kind == kind] for kind in runs
    }
    threads = _groups_of_threads(
        (run, group)
        for kind, places in of_kind.items()
        for run, group in _certain([issued[place] for place in places], runs[kind])
    )
    for kind, places in of_kind.items():
        own = [issued[place] for place in places]
        for place, run in zip(places, _matched(own, runs[kind], threads), strict=True):
            found[place] = run
    return found


def _groups_of_threads(certain: Iterable[tuple[Event, str]]) -> dict[_Thread, str]:
    votes: dict[_Thread, Counter[str]] = defaultdict(Counter)
    for run, group in certain:
        votes[run.thread][group] += 1
    return {thread: count.most_common(1)[0][0] for thread, count in votes.items()}


def _certain(issued: Sequence[IssuedOp], runs: Sequence[Event]) -> Iterator[tuple[Event, str]]:
    """Yield the runs that can belong to one group alone: all that waits to begin is of it.

    After a run that could belong to several groups nothing is certain until all that was issued
    has begun.
    """
    waiting: deque[str] = deque()
    at, certain = 0, True
    for run in runs:
        while at < len(issued) and issued[at].event.start <= run.start:
            waiting.append(issued[at].group)
            at += 1
        if not waiting:
            continue
        certain = certain and len(set(waiting)) == 1
        if certain and waiting[0]:
            yield run, waiting[0]
        waiting.popleft()
        certain = certain or not waiting


def _matched(
    issued: Sequence[IssuedOp], runs: Sequence[Event], threads: Mapping[_Thread, str]
) -> list[Event | None]:
    """Return the runs of ops of one kind, of each group in order.

    A run on a thread of no known group goes to one with more ops than runs on known threads.
    """
    found: list[Event | None] = [None] * len(issued)
    spare = Counter(one.group for one in issued)
    spare.subtract(threads[run.thread] for run in runs if run.thread in threads)
    waiting: dict[str, deque[int]] = defaultdict(deque)
    at = 0
    for run in runs:
        while at < len(issued) and issued[at].event.start <= run.start:
            waiting[issued[at].group].append(at)
            at += 1
        group = threads.get(run.thread)
        if group is None or not waiting[group]:
            ready = [one for one, places in waiting.items() if places]
            if not ready:
                continue
            group = min(ready, key=lambda one: (spare[one] <= 0, waiting[one][0]))
            spare[group] -= run.thread not in threads
        found[waiting[group].popleft()] = run
    return found
