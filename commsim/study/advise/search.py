"""
Best first: bounds, floors, estimates, simulations, each only if the one before leaves hope.

One queue holds layouts by the least that they can take, as far as is known. The lowest is looked
at more closely: a relaxed layout becomes those that it stands for, a bound becomes the memory and
floors of all ways to shard, a floor becomes an estimate by thin models if that is cheaper than a
run, and then a simulation. When the lowest is above the slowest of the `top` best, what is left
cannot be among them. `_WINDOW` runs are begun before the result of the first is asked for, so that
the answer is the same however many processes work.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial

from commsim.models import Recompute
from commsim.study.advise.few_layers import worth
from commsim.study.advise.judge import Judge, Judged, least_of
from commsim.study.advise.layouts import Candidate, Degrees, variants_of
from commsim.study.advise.simulate import Pool, Ran

__all__ = ["MOST", "SLACK", "SURE", "Known", "Search", "search"]

_WINDOW = 4
SLACK = 1.003
"""How far a floor may lie above a step: what two short steps leave of a long one, and what hides
at the edges of a step. None of all layouts of small cases (`test_floor.py`) is faster than its
floor by more; a run that is says so in the notes."""
SURE = {"zero-2": 1.02}
"""How far an estimate by thin models may lie above a step: buckets that are reduced in every
microbatch fall otherwise over few layers (1.1 % in `test_few_layers.py`)."""
_SURE = 1.005  # other ways to shard; 0.1 % at most in `test_few_layers.py`
MOST = 300
"""Simulations of one call: where floors are weak, so many best by floor are tried."""

Allowed = Callable[[Candidate], bool]
Entry = tuple[float, Candidate, "Known"]
"""The least seconds that a layout can take, the layout, and by what that is known."""


class Known(IntEnum):
    """By what the least that a layout can take is known; a relaxed one stands for its variants."""

    RELAXED = 0
    BOUND = 1
    FLOOR = 2
    ESTIMATE = 3


class Search:
    """What is known of all layouts of a training: bounds, judged ones, simulated ones."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.judged: dict[Candidate, Judged] = {}
        self.ran: dict[Candidate, Ran] = {}
        self.considered = 0
        self.estimated = 0
        self.queue: list[Entry] = []
        """A heap."""
        self._dead: dict[Degrees, bool] = {}

    def open(self, tick: Callable[[], None]) -> None:
        """Queue every layout that can run, those that differ little by one bound."""
        for degrees in self.judge.degrees():
            ways = len(self.judge.shardings(degrees))
            for bound, shape, count in self.judge.relaxed(degrees):
                self.considered += count * ways
                self.queue.append((bound / SLACK, shape, Known.RELAXED))
            tick()
        heapq.heapify(self.queue)

    def expand(self, shape: Candidate, known: Known) -> None:
        """Look at a layout of a bound more closely, and queue what comes of it if that may fit."""
        if self._nothing_fits(shape.degrees):
            return
        if known == Known.RELAXED:
            for bound, variant in self.judge.variants(shape):
                self.push(bound / SLACK, variant, Known.BOUND)
            return
        for judged in self.judge.ways(shape):
            self.judged[judged.candidate] = judged
            if judged.fits:
                self.push(judged.floor / SLACK, judged.candidate, Known.FLOOR)

    def push(self, seconds: float, candidate: Candidate, known: Known) -> None:
        """Queue a layout by the least that it can take."""
        heapq.heappush(self.queue, (seconds, candidate, known))

    def known(self, candidate: Candidate) -> Judged | None:
        """Judge a layout unless that has been done; None if it cannot run."""
        if candidate not in self.judged:
            judged = self.judge.one(candidate)
            if judged is None:
                return None
            self.judged[candidate] = judged
        return self.judged[candidate]

    def floor(self, allowed: Allowed) -> float:
        """Return what no layout that was not simulated takes less than, of those `allowed`."""
        while True:
            found = self._lowest(allowed)
            if found is None:
                return float("inf")
            seconds, candidate, known = found
            if known != Known.RELAXED:
                return seconds
            self.queue.remove(found)
            self.expand(candidate, known)

    def _lowest(self, allowed: Allowed) -> Entry | None:
        """Return the entry with the lowest seconds that stands for an `allowed` layout."""
        self.queue.sort()  # which leaves it a heap, and costs nothing the next time
        for entry in self.queue:
            _, candidate, known = entry
            if known in (Known.FLOOR, Known.ESTIMATE):
                if allowed(candidate) and candidate not in self.ran:
                    return entry
            elif any(
                allowed(one._replace(shard=shard))
                and self._may_fit(one.degrees, shard, one.recompute)
                for one in self._stands_for(candidate, known)
                for shard in self.judge.shardings(candidate.degrees)
            ):
                return entry
        return None

    def _stands_for(self, shape: Candidate, known: Known) -> Iterator[Candidate]:
        if known == Known.BOUND:
            yield shape
        else:
            yield from variants_of(shape, self.judge.recomputes)

    def least(self, allowed: Allowed) -> Judged | None:
        """Return the layout that needs least memory, of those `allowed`; None if none can run."""
        found = list(self.smallest(allowed))
        found += [one for one in self.judged.values() if allowed(one.candidate)]
        return min(found, key=lambda one: (one.use.total, one.candidate), default=None)

    def smallest(self, allowed: Allowed = lambda _: True) -> Iterator[Judged]:
        """Yield, for all degrees, ways to shard and to recompute, the layout that needs least.

        Only of those `allowed`: the others are not even judged.
        """
        for degrees in self.judge.degrees():
            for shard in self.judge.shardings(degrees):
                for recompute in self.judge.recomputes:
                    if not allowed(least_of(degrees, shard, recompute)):
                        continue
                    found = self.judge.least(degrees, shard, recompute)
                    if found is not None:
                        yield found

    def _may_fit(self, degrees: Degrees, shard: str, recompute: Recompute) -> bool:
        found = self.judge.least(degrees, shard, recompute)
        return found is not None and found.fits

    def _nothing_fits(self, degrees: Degrees) -> bool:
        """Whether nothing fits on `degrees`, however it is sharded and recomputed."""
        if degrees not in self._dead:
            self._dead[degrees] = not any(
                self._may_fit(degrees, shard, recompute)
                for recompute in reversed(self.judge.recomputes)
                for shard in self.judge.shardings(degrees)
            )
        return self._dead[degrees]


def search(pool: Pool, found: Search, *, top: int, tick: Callable[[], None]) -> None:
    """Simulate what may be among the `top` best, up to `MOST`; `tick` hears of each run."""
    best: list[float] = []  # a heap of the `top` best, negated: the slowest is first
    waiting: deque[Callable[[], None]] = deque()
    begun = 0

    def simulated(candidate: Candidate, result: Callable[[], Ran]) -> None:
        one = found.ran[candidate] = result()
        if one.fits:
            heapq.heappush(best, -one.metrics.step_time_s)
            if len(best) > top:
                heapq.heappop(best)

    def estimated(candidate: Candidate, least: float, result: Callable[[], float]) -> None:
        found.estimated += 1
        sure = SURE.get(candidate.shard, _SURE)
        found.push(max(result() / sure, least), candidate, Known.ESTIMATE)

    def settle() -> None:
        waiting.popleft()()
        tick()

    while True:
        lowest = found.queue[0][0] if found.queue else float("inf")
        if begun == MOST or lowest == float("inf") or (len(best) == top and lowest > -best[0]):
            if not waiting or begun == MOST:
                break
            settle()  # which may say of a layout that it has hope
            continue
        least, candidate, known = heapq.heappop(found.queue)
        if known <= Known.BOUND:
            found.expand(candidate, known)
            continue
        if len(waiting) >= _WINDOW:
            settle()
        thin = known == Known.FLOOR and worth(found.judge.shape, found.judge.section(candidate))
        if thin:
            waiting.append(partial(estimated, candidate, least, pool.estimate(candidate)))
        else:
            begun += 1
            waiting.append(partial(simulated, candidate, pool.run(candidate)))
    while waiting:
        settle()
