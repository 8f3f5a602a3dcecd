"""
Times of a plan under a change, span by span in an order in which each comes after its needs.

`time_spans` is plain code over columns: lists for the interpreter, arrays for a compiler
(`commsim.compiled`), with the same result to the bit.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

__all__ = ["KERNEL", "Altered", "SpanPlan", "SpanTimes", "time_spans"]

UNKNOWN = -1.0


class SpanPlan(NamedTuple):
    """Columns over spans, needs and meetings; all times in ps.

    Spans: the `order` to take them in; the `lane` (which begins at its `offset`), the span
    `before` it on its stream (-1: none), when it `began` and `ended`, the `slack` that it
    started late by, and the meeting that it `meets` (-1: none). Its needs are from `first[i]` to
    `first[i + 1]`: the span in `needs`, and a `delay`. Meeting m waits for
    `member[meeting[m]:meeting[m + 1]]`.
    """

    order: Sequence[int]
    lane: Sequence[int]
    offset: Sequence[int]
    before: Sequence[int]
    began: Sequence[int]
    ended: Sequence[int]
    slack: Sequence[int]
    first: Sequence[int]
    needs: Sequence[int]
    delay: Sequence[int]
    meets: Sequence[int]
    meeting: Sequence[int]
    member: Sequence[int]


class Altered(NamedTuple):
    """Per span: the `factor` of its duration, whether it is `detached`, and the factor `delays` of
    the delays after it.
    """

    factor: Sequence[float]
    detached: Sequence[bool]
    delays: Sequence[float]


class SpanTimes(NamedTuple):
    """What is found: when each span arrives (unknown at first) and ends (0 at first), and when the
    last member of each meeting arrives (unknown at first).
    """

    arrive: MutableSequence[float]
    end: MutableSequence[float]
    met: MutableSequence[float]


def time_spans(plan: SpanPlan, altered: Altered, times: SpanTimes) -> None:
    """Find when each span arrives and ends: behind what it needs, and with those whom it meets.

    A member of a meeting may come later in the order than who waits for it: when it arrives is
    found then, as all that it needs has ended.
    """
    order, lane, offset, before, began, ended, slack = plan[:7]
    first, needs, delay, meets, meeting, member = plan[7:]
    factor, detached, delays = altered
    arrive, end, met = times
    for span in order:
        together = -1 if detached[span] else meets[span]
        low, high = 0, 0
        if together >= 0 and met[together] < 0:
            low, high = meeting[together], meeting[together + 1]
        for place in range(low - 1, high):  # the span itself, then the members
            one = span if place < low else member[place]
            if arrive[one] < 0:
                when, own, alone = float(offset[lane[one]]), before[one], detached[one]
                if own >= 0 and end[own] > when:
                    when = end[own]
                for at in range(first[one], first[one + 1]):
                    need = needs[at]
                    if alone and lane[need] != lane[one]:
                        continue
                    done = end[need] + delay[at] * delays[need]
                    if done > when:
                        when = done
                arrive[one] = when
            if place >= low and arrive[one] > met[together]:
                met[together] = arrive[one]
        start = arrive[span]
        if together >= 0 and met[together] > start:
            start = met[together]
        end[span] = start + slack[span] + (ended[span] - began[span]) * factor[span]


KERNEL = (time_spans,)
