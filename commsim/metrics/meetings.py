"""
Whom each span of a collective or message waited for.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints, Ints32, distinct
from commsim.metrics.bandwidth import instance_numbers
from commsim.timeline import Timeline

__all__ = ["Meetings", "meetings"]


class Meetings(msgspec.Struct, frozen=True, eq=False):
    """Lists of spans that are waited for together, and per span which it waits for.

    Meeting m waits for `member[first[m]:first[m + 1]]`; `of` is the meeting of each span, -1 for
    one that waits for nobody.
    """

    first: Ints32
    member: Ints32
    of: Ints32

    def __len__(self) -> int:
        return len(self.first) - 1

    def latest(self, values: Ints) -> Ints:
        """Return the most of a column over spans among the members of each meeting."""
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        return np.maximum.reduceat(values[self.member], self.first[:-1])


def meetings(timeline: Timeline, arrive: Ints) -> Meetings:
    """Return who waited for whom; `arrive` is when each span came.

    Members that started together waited for the same ones: for all, or where data reaches the
    members one by one, for those that had come by then.
    """
    spans = np.flatnonzero(timeline.communicates).astype(np.int32)
    number = instance_numbers(timeline.graph, timeline.op[spans])
    order = np.argsort(number, kind="stable")
    spans, number = spans[order], number[order]
    first = np.flatnonzero(np.diff(number, prepend=-1))
    counts = np.diff(first, append=len(spans))
    del order, number
    of = np.full(len(timeline), -1, dtype=np.int32)
    several = counts > 1  # one is folded onto a lane: nobody else to wait for
    if not several.any():
        return Meetings(np.zeros(1, np.int32), np.zeros(0, np.int32), of)
    start = timeline.start[spans]
    at_once = np.minimum.reduceat(start, first) == np.maximum.reduceat(start, first)
    whole = several & at_once
    member, sizes = [spans[np.repeat(whole, counts)]], [counts[whole]]
    of[member[0]] = np.repeat(np.arange(int(whole.sum()), dtype=np.int32), sizes[0])
    count = len(sizes[0])
    for at in np.flatnonzero(several & ~at_once).tolist():
        mine = slice(first[at], first[at] + counts[at])
        members, moments = spans[mine], start[mine]
        came = arrive[members]
        for moment in distinct(moments):
            waited, waiting = members[came <= moment], members[moments == moment]
            if len(waited) == 1 and len(waiting) == 1:
                continue
            of[waiting] = count
            member.append(waited)
            sizes.append(np.array([len(waited)]))
            count += 1
    ends = np.cumsum(np.concatenate(sizes), dtype=np.int32)
    return Meetings(np.concatenate((np.zeros(1, np.int32), ends)), np.concatenate(member), of)
