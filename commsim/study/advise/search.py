"""
Best first: bounds, then floors, then simulations, each only where the one before leaves hope.

One queue holds layouts by what is known of them. The lowest is looked at more closely: a bound
becomes the memory and floors of all ways to shard, a floor becomes a simulation. When the lowest
lies above the slowest of the `top` best by more than `SLACK`, what is left cannot be among them.
`_WINDOW` simulations are begun before the result of the first is asked for, so that the answer is
the same however many processes work.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator

from commsim.study.advise.judge import Judge, Judged
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.simulate import Pool, Ran

__all__ = ["MOST", "SLACK", "Search", "search"]

_WINDOW = 4
SLACK = 1.03
"""How far a floor may lie above a step: ranks leave a collective before its end, and the start of
a message hides where its receiver waits already. Of all layouts of small cases (`test_floor.py`)
pipelines of two small stages are up to 2.1 % faster than their floors; a run that is faster by more
than this says so in the notes."""
MOST = 300
"""Simulations of one call: where floors are weak, so many best by floor are tried."""

Allowed = Callable[[Candidate], bool]


class Search:
    """What is known of all layouts of a training: bounds, judged ones, simulated ones."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.judged: dict[Candidate, Judged] = {}
        self.ran: dict[Candidate, Ran] = {}
        self.considered = 0
        self.queue: list[tuple[float, Candidate, bool]] = []
        """Bound or floor, layout, whether it is judged: a heap."""
        self._dead: dict[Degrees, bool] = {}

    def open(self, tick: Callable[[], None]) -> None:
        """Queue every layout that can run, by its bound."""
        for degrees in self.judge.degrees():
            shapes = self.judge.shapes(degrees)
            self.considered += len(shapes) * len(self.judge.shardings(degrees))
            self.queue += [(bound, shape, False) for bound, shape in shapes]
            tick()
        heapq.heapify(self.queue)

    def expand(self, shape: Candidate) -> None:
        """Judge a layout with every way to shard; queue those that fit."""
        if self._nothing_fits(shape.degrees):
            return
        for judged in self.judge.ways(shape):
            self.judged[judged.candidate] = judged
            if judged.fits:
                heapq.heappush(self.queue, (judged.floor, judged.candidate, True))

    def known(self, candidate: Candidate) -> Judged | None:
        """Judge a layout unless that has been done; None where it cannot run."""
        if candidate not in self.judged:
            judged = self.judge.one(candidate)
            if judged is None:
                return None
            self.judged[candidate] = judged
        return self.judged[candidate]

    def floor(self, allowed: Allowed) -> float:
        """Return what no layout that was not simulated takes less than, of those `allowed`."""
        for seconds, candidate, judged in sorted(self.queue):
            if judged and allowed(candidate) and candidate not in self.ran:
                return seconds
            if not judged and any(
                allowed(candidate._replace(shard=shard))
                and self._may_fit(candidate.degrees, shard, candidate.recompute)
                for shard in self.judge.shardings(candidate.degrees)
            ):
                return seconds
        return float("inf")

    def least(self, allowed: Allowed) -> Judged | None:
        """Return the layout that needs least memory, of those `allowed`; None if none can run."""
        found = [one for one in self.smallest() if allowed(one.candidate)]
        found += [one for one in self.judged.values() if allowed(one.candidate)]
        return min(found, key=lambda one: (one.use.total, one.candidate), default=None)

    def smallest(self) -> Iterator[Judged]:
        """Yield, for all degrees, ways to shard and to recompute, the layout that needs least."""
        for degrees in self.judge.degrees():
            for shard in self.judge.shardings(degrees):
                for recompute in self.judge.recomputes:
                    found = self.judge.least(degrees, shard, recompute)
                    if found is not None:
                        yield found

    def _may_fit(self, degrees: Degrees, shard: str, recompute: str) -> bool:
        found = self.judge.least(degrees, shard, recompute)
        return found is not None and found.fits

    def _nothing_fits(self, degrees: Degrees) -> bool:
        """Whether nothing fits on `degrees`, however it is sharded and recomputed."""
        if degrees not in self._dead:
            self._dead[degrees] = not any(
                self._may_fit(degrees, shard, recompute)
                for shard in self.judge.shardings(degrees)
                for recompute in self.judge.recomputes
            )
        return self._dead[degrees]


def search(pool: Pool, found: Search, *, top: int, tick: Callable[[], None]) -> None:
    """Simulate what may be among the `top` best, up to `MOST`; `tick` hears of each."""
    best: list[float] = []  # a heap of the `top` best, negated: the slowest is first
    waiting: deque[tuple[Candidate, Callable[[], Ran]]] = deque()

    def settle() -> None:
        candidate, result = waiting.popleft()
        one = found.ran[candidate] = result()
        if one.fits:
            heapq.heappush(best, -one.metrics.step_time_s)
            if len(best) > top:
                heapq.heappop(best)
        tick()

    while found.queue and len(found.ran) + len(waiting) < MOST:
        seconds, candidate, judged = found.queue[0]
        if len(best) == top and seconds > -best[0] * SLACK:
            break
        heapq.heappop(found.queue)
        if not judged:
            found.expand(candidate)
            continue
        if len(waiting) >= _WINDOW:
            settle()
        waiting.append((candidate, pool.run(candidate)))
    while waiting:
        settle()
