"""
NCCL's budget for its searches, kept without running searches that cannot change the result.

Follows the time limits of ncclTopoCompute (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

import msgspec

from commsim.libraries.nccl.search.facts import SearchFacts
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.topology import DeviceKind

__all__ = ["Budget", "SearchRun"]

_BUDGET_ALL = 1 << 19  # NCCL_SEARCH_GLOBAL_TIMEOUT
_BUDGET = 1 << 14  # NCCL_SEARCH_TIMEOUT
_BUDGET_SAME = 1 << 8  # NCCL_SEARCH_TIMEOUT_SAMECHANNELS


class SearchRun(msgspec.Struct):
    """A search and the time that it left over; None if that is not known yet."""

    trial: Trial
    time: int | None


class Budget:
    """Runs searches within NCCL's budget for all of them.

    A search that cannot improve the best graph is postponed. How much it would have spent counts
    only if a later one that can improve would not have been reached: then it is run after all.
    """

    def __init__(self, facts: SearchFacts, best: Trial) -> None:
        self._facts = facts
        self._best = best
        self._tried: dict[object, int] = {}
        self._left = _BUDGET_ALL
        self._owed: list[tuple[int, SearchRun, bool]] = []
        """(spent until then, the search whose time left came back, whether that could end it)."""
        self._spent = 0

    def run(self, trial: Trial) -> SearchRun | None:
        """Search, or postpone the search; None if NCCL would have stopped before."""
        if not self._facts.bound.can_improve(trial, self._best):
            self._spent += _budget_of(trial)
            return SearchRun(trial.copy(), None)
        if self._settle():
            return None
        self._spent += _budget_of(trial)
        return SearchRun(trial.copy(), self._run_postponed(trial))

    def time_of(self, run: SearchRun) -> int:
        """Return the time that a search left over; a postponed one is run now."""
        if run.time is None:
            run.time = self._run_postponed(run.trial)
        return run.time

    def is_spent_after(self, run: SearchRun) -> bool:
        """Give back the time that a search left; say whether nothing is left for more."""
        ends = self._best.channels > 0
        if run.time is None or self._owed:
            self._owed.append((self._spent, run, ends))
            self._spent = 0
            return False
        self._left += run.time - self._spent
        self._spent = 0
        return self._left < 0 and ends

    def forget(self) -> None:
        """Drop the budget: the second pass has no limit over all its searches."""
        self._owed = []

    def _settle(self) -> bool:
        """Say whether the postponed searches would have used up the budget."""
        least = self._left
        doubt = False
        for spent, run, ends in self._owed:
            least += (run.time or 0) - spent
            doubt = doubt or (least < 0 and ends)
        if not doubt:
            return False
        for spent, run, ends in self._owed:
            self._left += self.time_of(run) - spent
            if self._left < 0 and ends:
                return True
        self._owed = []
        return False

    def _run_postponed(self, trial: Trial) -> int:
        key = self._effect(trial)
        if key not in self._tried:
            budget = _budget_of(trial)
            self._tried[key] = self._facts.channels.run(trial, self._best, budget)
        return self._tried[key]

    def _effect(self, trial: Trial) -> object:
        """Return all inputs of a search: one with equal inputs finds nothing better."""
        reached = self._facts.reached
        return (
            trial.pattern,
            trial.same_channels,
            trial.cross_nic,
            trial.bw_intra,
            trial.bw_inter,
            trial.min_channels,
            trial.max_channels,
            reached(DeviceKind.GPU, trial.type_intra),
            reached(DeviceKind.NET, trial.type_inter),
        )


def _budget_of(trial: Trial) -> int:
    return _BUDGET_SAME if trial.same_channels else _BUDGET
