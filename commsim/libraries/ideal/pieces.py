"""
In how many pieces a pipelined chain or tree sends its buffer, and how long many pieces take.

One piece takes latencies + bytes over every hop of its way; many overlap, so that the fill of the
pipeline shrinks with 1 / pieces and what remains is what the busiest link has to carry.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.cluster import Links
from commsim.collectives import Program
from commsim.libraries.expansion import arrivals, busiest, part_of, whole
from commsim.libraries.plan import PlanPart, RoutedProgram

__all__ = ["Pipeline"]

_FILL = 0.005  # share of the time that filling the pipeline may cost
_HOPS_A_PIECE = 4  # latencies of a hop that a piece lasts if no window holds it up
_STEP = 1.25  # between the numbers of pieces that are tried
_MOST_TRIED = 8_192  # messages of a program that is only tried
_MOST_MESSAGES = 32_768  # more are not timed one by one: a few pieces tell what each more takes


class Pipeline(msgspec.Struct, frozen=True):
    """A collective that is sent in pieces: `program(k)` is its program of k of them.

    `lay(program, bytes)` lays a program that carries so many bytes onto routes. `window`: ranks
    have only so many pieces under way, so that small ones wait for the latency of those before.
    """

    program: Callable[[int], Program]
    lay: Callable[[Program, float], RoutedProgram]
    size: float
    links: Links
    window: bool

    def best_count(self) -> int:
        """Return the number of pieces that takes the least time, within a hundredth or so.

        Without a window more pieces are never slower: then it is the least number whose fill
        costs no more than `_FILL`. So it is under a window, while a piece keeps the busiest link
        busy for longer than the latency of a hop or two; smaller pieces are tried.
        """
        shape = self.program(1)
        one = self.lay(shape, self.size)
        latency = float(arrivals(self.lay(shape, 0.0), self.links).max())
        busy = busiest(one, self.links)
        fill = float(arrivals(one, self.links).max()) - latency - busy
        enough = fill / (_FILL * (latency + busy)) if latency + busy else 1.0
        most = max(1, math.ceil(min(enough, self.size)))
        hop = float(np.mean([route.latency for route in one.routes]))
        if not self.window or most * hop <= busy / _HOPS_A_PIECE:
            return most
        under_way = shape.steps + 2
        if under_way * len(shape) > _MOST_TRIED:
            return min(most, max(math.ceil(busy / hop), under_way))
        return self._tried([busy / hop, under_way, under_way / 2], most)

    def _tried(self, starts: list[float], most: int) -> int:
        """Return the best of some numbers of pieces up to `most`, and of those around it."""
        steps = math.ceil(math.log(most, _STEP)) + 1
        grid = sorted({min(most, round(_STEP**k)) for k in range(steps)})
        grid = [n for n in grid if n * len(self.program(1)) <= _MOST_TRIED]
        times: dict[int, float] = {}

        def time(at: int) -> float:
            if not 0 <= at < len(grid):
                return math.inf
            if at not in times:
                times[at] = float(arrivals(self.messages(grid[at]), self.links).max())
            return times[at]

        places = (min(bisect_left(grid, start), len(grid) - 1) for start in starts)
        best = min(places, key=time)
        for way in (-1, 1):
            while min(time(best + way), time(best + 2 * way)) < time(best):
                best += way if time(best + way) <= time(best + 2 * way) else 2 * way
        return grid[best]

    def messages(self, pieces: int) -> RoutedProgram:
        """Return every message of every piece."""
        return self.lay(self.program(pieces), self.size)

    def part(self, pieces: int, members: int, *, together: bool) -> PlanPart:
        """Return the part of a plan that `pieces` pieces become.

        Once the pipeline is full each piece takes as long as the one before. So of more pieces
        than can be timed one by one a few are, of the same size, and the others added: each takes
        what it keeps the busiest link busy, or more if those timed last took more.
        """
        shape = self.program(1)
        timed = max(_MOST_MESSAGES // len(shape), 4)
        if pieces <= timed:
            return self._part(pieces, pieces, members, together=together)
        last = self._part(timed, pieces, members, together=together)
        each = busiest(self.lay(shape, self.size / pieces), self.links)
        if timed > 3 * shape.steps:  # the pipeline was full for the second half of them
            half = self._part(timed // 2, pieces, members, together=together)
            each = max(each, (last.idle - half.idle) / (timed - timed // 2))
        return _continued(last, whole(each * (pieces - timed)), pieces / timed)

    def _part(self, count: int, pieces: int, members: int, *, together: bool) -> PlanPart:
        """Return the part of `count` of so many pieces."""
        shape = self.program(count)
        messages = self.lay(shape, self.size * count / pieces)
        return part_of(messages, shape.phase, members, self.links, together=together)


def _continued(part: PlanPart, more: int, growth: float) -> PlanPart:
    """Return a part that goes on for `more` ps with `growth` times its bytes."""
    idle = part.idle + more
    flows = [
        replace(flow, idle=round(flow.idle * idle / part.idle), load=flow.load * growth)
        for flow in part.phases
    ]
    rest = idle - sum(flow.idle for flow in flows[:-1])
    flows[-1] = replace(flows[-1], idle=rest)  # rounding must not change the sum
    leaves = np.where(part.leaves < 0, part.leaves, part.leaves + more)
    return PlanPart(tuple(flows), part.joins, leaves)
