"""
The share of time that is progress, in closed form.

    l    failures per second of the job            R    from a failure until work goes on
    t    work between two checkpoints              d    what a checkpoint keeps everybody from work
    L    how much later it is safe                 a = t + d

Every attempt at a segment takes a seconds or ends in a failure. It begins at a checkpoint that is
safe, or at one that is so only L later; a failure before that loses the segment behind it too. The
chain of attempts has two states, and its mean gain over its mean time is

    progress = l t exp(-l (L + R)) / (exp(l a) - 1)

failures while recovering included. With L = 0 it is Daly's (FGCS 22, 2006, equation 20); its best t
is near Young's sqrt(2 d / l) (CACM 17, 1974).

With k nodes away for repair at a time (S: seconds of repair, s: spares) a job that cannot go on
without them stands still while k > s: as nothing fails meanwhile that is Erlang's loss formula. One
that goes on with fewer replicas loses those.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

__all__ = ["Recovery", "away", "best_interval", "longest_interval", "progress", "standing"]

_ROUNDS = 200
_MANY = 1e6  # nodes in repair at a time, of which a thousandth more or less is rare


class Recovery(msgspec.Struct, frozen=True):
    """What failures and checkpoints cost, in seconds; `rate` is the job's failures per second.

    `blocked`: what a checkpoint keeps everybody from work; `safe_after`: how much later it is safe;
    `recover`: from a failure until work goes on. `hardware` is the rate of failures that take a
    node away, for `repair` seconds; `replicas` and `nodes` say what a missing node costs a job
    that is `elastic`.
    """

    rate: float
    blocked: float
    safe_after: float
    recover: float
    hardware: float = 0.0
    repair: float = 0.0
    spares: int = 0
    elastic: bool = False
    replicas: int = 1
    nodes: int = 1

    def with_rate(self, rate: float) -> Recovery:
        """Return the same with other failures per second."""
        return replace(self, rate=rate)


def progress(one: Recovery, interval: float) -> float:
    """Return the share of time that is progress, with so many seconds of work per checkpoint."""
    if one.rate <= 0:
        return interval / (interval + one.blocked)
    whole = one.rate * (interval + one.blocked)
    lost = one.rate * (one.safe_after + one.recover)
    if whole > 700:  # no segment is ever done
        return 0.0
    return one.rate * interval * math.exp(-lost) / math.expm1(whole)


def best_interval(one: Recovery, *, step: float = 1.0) -> float:
    """Return the work (s) between checkpoints with the most progress: by golden section.

    A checkpoint that is not safe before the next one begins would queue: never less than that, and
    never less than a `step` (s).
    """
    least = max(one.safe_after - one.blocked, one.blocked, step)
    if one.rate <= 0:
        return max(least, 86400.0)
    low, high = math.log(least), math.log(max(10 / one.rate, 2 * least))
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(_ROUNDS):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if progress(one, math.exp(a)) < progress(one, math.exp(b)):
            low = a
        else:
            high = b
    return math.exp((low + high) / 2)


def longest_interval(one: Recovery, best: float, *, within: float = 1e-3) -> float:
    """Return the longest work (s) between checkpoints that keeps so near to the progress at `best`.

    Progress is flat around its best: where a checkpoint blocks for milliseconds, the best is
    seconds and minutes cost next to nothing.
    """
    if one.rate <= 0:
        return best
    wanted = (1 - within) * progress(one, best)
    low, high = best, max(10 / one.rate, 2 * best)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if progress(one, middle) >= wanted:
            low = middle
        else:
            high = middle
    return low


def standing(one: Recovery) -> float:
    """Return the share of time in which a job stands still because nodes are missing."""
    load = one.hardware * one.repair
    if one.elastic or load <= 0:
        return 0.0
    if load > _MANY:  # as good as always so many
        return max(0.0, 1 - one.spares / load)
    blocked = 1.0
    for servers in range(1, one.spares + 2):  # Erlang B, by its recursion
        blocked = load * blocked / (servers + load * blocked)
        if blocked == 0.0:  # as it stays from here on
            break
    return blocked


def away(one: Recovery) -> float:
    """Return the mean share of replicas that an elastic job is without."""
    load = one.hardware * one.repair
    if not one.elastic or load <= 0:
        return 0.0
    if load > _MANY:  # as good as always so many
        return replicas_lost(one, math.ceil(load) - one.spares)
    spread = 12 * math.sqrt(load) + 40
    first = max(1, one.spares + 1, math.floor(load - spread))
    lost = 0.0
    for missing in range(first, math.ceil(load + spread)):
        chance = math.exp(missing * math.log(load) - load - math.lgamma(missing + 1))
        lost += chance * replicas_lost(one, missing - one.spares)
    return min(lost, 1.0)


def replicas_lost(one: Recovery, missing: int) -> float:
    """Return the share of replicas that so many missing nodes take, each another one's."""
    if missing <= 0:
        return 0.0
    of_each = max(1.0, one.replicas / one.nodes)  # replicas on a node
    return min(missing * of_each / one.replicas, 1.0)
