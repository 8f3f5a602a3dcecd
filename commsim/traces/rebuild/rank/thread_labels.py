"""
What a CPU thread was doing at some times: its outermost op, else the annotation.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Bools, Ints
from commsim.graph import Phase
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.activity import AUTOGRAD
from commsim.traces.rebuild.rank.calls import Thread

__all__ = ["thread_labels"]

_STEP, _OPTIMIZER, _NO_NAME = "ProfilerStep", "Optimizer.step", "cpu"


def thread_labels(
    thread: Thread, times: Ints, *, backward: bool
) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Return the name (an index of the names that come with it) and the phase of each time."""
    events = thread.events
    names = (*events.names, _NO_NAME)
    inner = _innermost(thread, times)
    ops = _outermost(thread, events.kind == EventKind.CPU_OP)
    notes = events.kind == EventKind.ANNOTATION
    named = _nearest(thread, notes & ~events.named(lambda name: name.startswith(_STEP)))
    optimizes = _nearest(thread, notes & events.named(lambda name: name.startswith(_OPTIMIZER)))
    shown = np.where(ops[inner] >= 0, ops[inner], named[inner])
    name = np.where(shown >= 0, events.name[shown], len(names) - 1)
    of_backward = np.array([backward or each.startswith(AUTOGRAD) for each in names])
    of_optimizer = np.where(optimizes[inner] >= 0, int(Phase.OPTIMIZER), int(Phase.NONE))
    return name, np.where(of_backward[name], int(Phase.BACKWARD), of_optimizer), names


def _innermost(thread: Thread, times: Ints) -> Ints:
    """Return the innermost event that lasts over each time, -1 for none.

    What encloses an event ends no sooner than it does.
    """
    parents = thread.parent
    found = np.searchsorted(thread.events.start, times, side="right") - 1
    ends = thread.events.end
    early = np.flatnonzero((found >= 0) & (ends[found] < times))
    while early.size:
        found[early] = parents[found[early]]
        early = early[(found[early] >= 0) & (ends[found[early]] < times[early])]
    return found


def _nearest(thread: Thread, fits: Bools) -> Ints:
    """Return the innermost that fits of each event and what encloses it; -1 (also last): none."""
    own = np.arange(len(fits), dtype=np.int64)
    return _followed(np.append(np.where(fits, own, thread.parent), -1))


def _outermost(thread: Thread, fits: Bools) -> Ints:
    """Return the outermost that fits of each event and what encloses it; -1 (also last): none."""
    nearest = _nearest(thread, fits)
    above = nearest[thread.parent]
    last = _followed(np.append(np.where(above >= 0, above, nearest[:-1]), -1))
    return last[nearest]


def _followed(link: Ints) -> Ints:
    """Return where each link leads in the end: to one that leads to itself, or to -1."""
    while not np.array_equal(further := link[link], link):
        link = further
    return link
