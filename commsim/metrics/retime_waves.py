"""
Times of a plan under several changes at once: wave by wave, as columns.

A wave is all spans whose needs have ended in the waves before. What it adds is the same arithmetic
in the same order as span by span (`retime`), so the times are the same to the bit; it pays where
spans times changes are many more than waves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.metrics.meetings import Meetings

__all__ = ["SpanWaves", "in_waves"]

_NEVER = -np.inf


class SpanWaves:
    """The spans of a plan by the wave in which they arrive, and by that in which they end.

    `arrives` and `ends` are these waves per span, `first` and `needs` are what each waits for, as
    CSR; `meetings` are the spans that are waited for together.
    """

    def __init__(
        self,
        arrives: Ints,
        ends: Ints,
        first: Ints,
        needs: Ints,
        meetings: Meetings,
    ) -> None:
        count = int(ends.max()) + 1
        self.count = count
        self._arriving, self._ending = (np.argsort(one, kind="stable") for one in (arrives, ends))
        self._arrival_cuts, self._end_cuts = _cuts(arrives, count), _cuts(ends, count)
        at_end = _places(self._ending)
        number = np.diff(first)[self._arriving]
        self._need_cuts = np.concatenate(([0], np.cumsum(number)))
        entry = np.arange(len(needs)) + np.repeat(
            first[self._arriving] - self._need_cuts[:-1], number
        )
        self._edge, self._need = entry, at_end[needs[entry]]
        self._arrived = _places(self._arriving)[self._ending]
        self._gather(arrives, meetings)

    def _gather(self, arrives: Ints, meetings: Meetings) -> None:
        """Lay out what is met by the wave in which the last of its members arrives."""
        sizes, start, wave = np.diff(meetings.first), meetings.first[:-1], meetings.latest(arrives)
        order = np.argsort(wave, kind="stable")
        self._met_cuts = _cuts(wave, self.count)
        self._member_cuts = np.concatenate(([0], np.cumsum(sizes[order])))
        entry = np.arange(len(meetings.member)) + np.repeat(
            start[order] - self._member_cuts[:-1], sizes[order]
        )
        self._member = _places(self._arriving)[meetings.member[entry]]
        met = np.append(_places(order), len(order))  # the last: nobody is met
        self._met = met[meetings.of[self._ending]]

    def times(
        self, begin: Floats, slack: Floats, lasting: Floats, delay: Floats, alone: Bools | None
    ) -> tuple[Floats, Floats]:
        """Return the (arrival, end) of every span under every change, spans by changes.

        `lasting` is spans by changes; `delay` is what passes after each need, by needs and changes
        or one for all, minus infinity where a change undoes the need; spans in `alone` meet nobody.
        """
        changes = lasting.shape[1]
        begin, slack = begin[self._arriving, None], slack[self._ending, None]
        delay = delay[self._edge]
        end, arrive = lasting[self._ending], np.empty((len(begin), changes))
        met = np.full((len(self._member_cuts), changes), _NEVER)
        alone = None if alone is None else alone[self._ending]
        starts, of_members = self._need_cuts[:-1], self._member_cuts[:-1]
        needs, members = self._need_cuts.tolist(), self._member_cuts.tolist()
        groups = len(met) > 1
        for wave in range(self.count):
            low, high = self._arrival_cuts[wave : wave + 2]
            if low < high:
                come = begin[low:high]
                if (some := needs[low]) < needs[high]:
                    ended = end.take(self._need[some : needs[high]], axis=0)
                    ended += delay[some : needs[high]]
                    latest = np.maximum.reduceat(ended, starts[low:high] - some, axis=0)
                    come = np.maximum(come, latest)
                arrive[low:high] = come
            low, high = self._met_cuts[wave : wave + 2]
            if low < high:
                some = members[low]
                came = arrive.take(self._member[some : members[high]], axis=0)
                met[low:high] = np.maximum.reduceat(came, of_members[low:high] - some, axis=0)
            low, high = self._end_cuts[wave : wave + 2]
            if low < high:
                start = arrive.take(self._arrived[low:high], axis=0)
                if groups:
                    others = met.take(self._met[low:high], axis=0)
                    if alone is not None:
                        others[alone[low:high]] = _NEVER
                    np.maximum(start, others, out=start)
                start += slack[low:high]
                end[low:high] += start
        return arrive[_places(self._arriving)], end[_places(self._ending)]


def in_waves(
    order: Sequence[int],
    first: Ints,
    needs: Ints,
    meetings: Meetings,
) -> SpanWaves | None:
    """Return the waves of spans; None if `order` is none in which each comes after its needs."""
    cuts, flat = first.tolist(), needs.tolist()
    arrives, ends = [-1] * len(order), [-1] * len(order)
    members, places, meets = (
        column.tolist() for column in (meetings.member, meetings.first, meetings.of)
    )
    met = [-1] * len(meetings)

    def arrival(span: int) -> int:
        """Return the wave of a span, -1 if that of a need is not known."""
        wave = 0
        for need in flat[cuts[span] : cuts[span + 1]]:
            ended = ends[need]
            if ended < 0:
                return -1
            if ended >= wave:
                wave = ended + 1
        arrives[span] = wave
        return wave

    for span in order:
        wave = arrives[span]
        if wave < 0:
            wave = 0
            for need in flat[cuts[span] : cuts[span + 1]]:  # as in `arrival`: a call takes longer
                ended = ends[need]
                if ended < 0:
                    return None
                if ended >= wave:
                    wave = ended + 1
            arrives[span] = wave
        together = meets[span]
        if together >= 0:
            if met[together] < 0:
                waited = members[places[together] : places[together + 1]]
                waves = [w if (w := arrives[one]) >= 0 else arrival(one) for one in waited]
                if min(waves) < 0:
                    return None
                met[together] = max(waves)
            wave = max(wave, met[together])
        ends[span] = wave
    arriving, ending = (np.array(one, dtype=np.int64) for one in (arrives, ends))
    return SpanWaves(arriving, ending, first, needs, meetings)


def _cuts(waves: Ints, count: int) -> list[int]:
    """Return where each wave begins among entries that are sorted by wave, and where all end."""
    return [0, *np.cumsum(np.bincount(waves, minlength=count)).tolist()]


def _places(order: Ints) -> Ints:
    """Return where each entry has gone."""
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.arange(len(order))
    return found
