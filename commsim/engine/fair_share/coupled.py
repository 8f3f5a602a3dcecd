"""
Fair shares if progressive filling stalls: say, two flows that each load another link more.

Each link has a level, the share per connection that it grants; a flow runs at the smallest
level * conns / load of its links. Sweep over the links in order of their ids and set each level
so that the link is full given all the others (Gauss-Seidel); damp when that swings. Once every
flow keeps its limiting link, the levels solve a linear system: solve it, and accept the
solution if it holds everywhere.

The allocation is not unique in this case: the order of links decides, and runs that come
here say so in their notes.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats, Ints

__all__ = ["coupled_rates"]

# Of 575,000 random cases in which filling got stuck, all but two settled within 564 sweeps.
_SWEEPS = 2000
_LONGEST_WAIT = 64  # sweeps between two tries to solve for the levels
_SETTLED = 1e-15  # relative change of a level that is no change any more
_LARGEST_SYSTEM = 200  # links; beyond, sweeping alone decides
_TOLERANCE = 1 + 1e-12  # float noise of a solution that holds
_DAMPING = ((40, 1.0), (120, 0.5), (400, 0.2))  # up to which sweep; found by the same cases
_LAST_DAMPING = 0.05


def coupled_rates(
    ptr: Ints, link: Ints, load: Floats, conns: Floats, cap: Floats, room: Floats, rate: Floats
) -> None:
    """Give a rate to every flow whose `rate` is NaN, in place; `room` is what others left."""
    stuck = _StuckFlows(ptr, link, load, conns, cap, room, np.flatnonzero(np.isnan(rate)))
    rate[stuck.flows] = stuck.solve()


class _StuckFlows:
    """The flows that are left, on the links that they use, as dense matrices (they are few)."""

    def __init__(
        self,
        ptr: Ints,
        link: Ints,
        load: Floats,
        conns: Floats,
        cap: Floats,
        room: Floats,
        flows: Ints,
    ) -> None:
        self.flows = flows
        self.cap = cap[flows]
        entries = [np.arange(ptr[f], ptr[f + 1]) for f in flows.tolist()]
        links = np.unique(link[np.concatenate(entries)])
        self.room = np.maximum(room[links], 0.0)
        self.load = np.zeros((len(flows), len(links)))
        self.conns = np.zeros((len(flows), len(links)))
        for row, entry in enumerate(entries):
            columns = np.searchsorted(links, link[entry])
            self.load[row, columns] = load[entry]
            self.conns[row, columns] = conns[entry]
        with np.errstate(divide="ignore", invalid="ignore"):
            self.gain = np.where(self.load > 0, self.conns / self.load, np.inf)

    def solve(self) -> Floats:
        """Return the rate of each flow.

        Sweeps alone converge slowly or swing, but the link that limits each flow soon stays the
        same. Then the levels are the solution of a linear system, which is exact at once; where it
        does not hold (a flow would be limited elsewhere) more sweeps come before the next try.
        """
        level = self.room / self.conns.sum(axis=0)
        before = np.full(len(self.flows), -2)
        patience, wait = 0, 1
        for sweep in range(_SWEEPS):
            changed = self._sweep(level, _damping(sweep))
            limiter = self._limiter(level)
            patience = patience + 1 if np.array_equal(limiter, before) else 0
            before = limiter
            if patience >= wait:
                exact = self._eliminate(limiter)
                if exact is not None:
                    return exact
                patience, wait = 0, min(2 * wait, _LONGEST_WAIT)
            if changed < _SETTLED:
                break
        return self._within_capacity(np.minimum(self.cap, self._limits(level).min(axis=1)))

    def _limits(self, level: Floats) -> Floats:
        """Return the rate that each link would let each flow have, shape (flows, links)."""
        with np.errstate(invalid="ignore"):
            limits: Floats = np.where(np.isinf(self.gain), np.inf, level * self.gain)
        return limits

    def _limiter(self, level: Floats) -> Ints:
        """Return which link limits each flow; -1 for its own cap."""
        limits = self._limits(level)
        return np.where(self.cap <= limits.min(axis=1), -1, limits.argmin(axis=1))

    def _sweep(self, level: Floats, damping: float) -> float:
        """Reset each level in turn so that its link is full; return the largest change."""
        largest = 0.0
        limits = self._limits(level)
        for at in range(len(level)):
            limits[:, at] = np.inf
            others = np.minimum(self.cap, limits.min(axis=1))
            new = self._fill_link(at, others)
            old = level[at]
            if np.isfinite(new) and np.isfinite(old) and old > 0 and damping < 1:
                new = old * (new / old) ** damping
            if new != old:
                both = np.isfinite(new) and np.isfinite(old)
                largest = max(largest, abs(new - old) / max(new, old) if both else 1.0)
            level[at] = new
            limits[:, at] = self._limits(level)[:, at]
        return largest

    def _fill_link(self, at: int, others: Floats) -> float:
        """Return the level at which link `at` is full when flows are held to `others` elsewhere.

        Flows that others hold below their share give the rest back, which lifts the level, which
        may free more of them: so their set only grows, and the loop ends.
        """
        on = self.load[:, at] > 0
        load, conns, want = self.load[on, at], self.conns[on, at], others[on]
        need = load * want
        if need.sum() <= self.room[at]:
            return float("inf")
        frozen = np.zeros(len(load), dtype=bool)
        while True:
            level = (self.room[at] - need[frozen].sum()) / conns[~frozen].sum()
            more = ~frozen & (need <= level * conns)
            if not more.any() or (frozen | more).all():
                return float(level)
            frozen |= more

    def _eliminate(self, limiter: Ints) -> Floats | None:
        """Solve for the levels of the limiting links; None if that does not hold up.

        One row per limiting link: the loads of all flows on it, each at its limiter's level times
        its gain (or at its cap), fill the link.
        """
        active = np.unique(limiter[limiter >= 0])
        if not 0 < len(active) <= _LARGEST_SYSTEM:
            return None
        system = np.zeros((len(active), len(active)))
        right = self.room[active].copy()
        for flow, by in enumerate(limiter.tolist()):
            if by < 0:
                right -= self.load[flow, active] * self.cap[flow]
            else:
                column = int(np.searchsorted(active, by))
                system[:, column] += self.load[flow, active] * self.gain[flow, by]
        try:
            solved = np.linalg.solve(system, right)
        except np.linalg.LinAlgError:
            return None
        if not (solved > 0).all():
            return None
        level = np.full(len(self.room), np.inf)
        level[active] = solved
        chosen = np.where(limiter >= 0, limiter, 0)
        rows = np.arange(len(limiter))
        rate = np.where(limiter >= 0, level[chosen] * self.gain[rows, chosen], self.cap)
        bounds = np.minimum(self.cap, self._limits(level).min(axis=1))
        full = (self.load * rate[:, None]).sum(axis=0)
        holds = (rate <= bounds * _TOLERANCE).all() and (full <= self.room * _TOLERANCE).all()
        return rate if holds else None

    def _within_capacity(self, rate: Floats) -> Floats:
        """Scale flows down link by link until nothing is over capacity (feasible, maybe unfair)."""
        for at in range(len(self.room)):
            use = float((self.load[:, at] * rate).sum())
            if use > self.room[at] > 0:
                rate = np.where(self.load[:, at] > 0, rate * (self.room[at] / use), rate)
        return rate


def _damping(sweep: int) -> float:
    """Return the exponent that holds swings back: none at first, more later."""
    return next((damping for until, damping in _DAMPING if sweep < until), _LAST_DAMPING)
