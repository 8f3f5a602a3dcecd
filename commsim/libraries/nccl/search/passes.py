"""
The two passes of a search: which constraint is relaxed next, and what is widened at the end.

Follows ncclTopoCompute and ncclTopoDupChannels (src/graph/search.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from fractions import Fraction

from commsim.libraries.nccl.search.budget import Budget, SearchRun
from commsim.libraries.nccl.search.channel_search import PERFECT
from commsim.libraries.nccl.search.facts import SearchFacts
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType, Pattern

__all__ = ["Passes"]

_WIDE = 25_000  # MB/s of a channel: narrower ones are not split (ncclTopoDupChannels)
_HOPPER_WIDE = 50_000  # the same after Ampere, if there are over four channels


class Passes:
    """The two passes for one pattern: what to try next after each search."""

    def __init__(self, facts: SearchFacts, best: Trial) -> None:
        self._facts = facts
        self._best = best
        self._trial = best.copy()
        self._speeds = facts.speeds
        self._total = facts.total_bw
        self._budget = Budget(facts, best)
        self._same = best.same_channels
        self._cross_nic = best.cross_nic or facts.cross_nic(best.pattern)
        self._index = self._first_speed()

    def _first_speed(self) -> int:
        """Return the first speed that a path and all channels' links could carry."""
        facts, best = self._facts, self._best
        total, gpus = Fraction(self._total), facts.gpus
        if gpus > 1 and best.pattern != Pattern.RING:
            total = total * gpus / (gpus - 1)
        index = 0
        while index < len(self._speeds) - 1 and (
            self._speeds[index] > facts.max_bw or self._speeds[index] * best.min_channels > total
        ):
            index += 1
        return index

    def run(self) -> None:
        """Fill the best graph."""
        trial = self._trial
        trial.bw_intra = trial.bw_inter = self._speeds[self._index]
        going = True
        while going:
            run = self._budget.run(trial)
            going = run is not None and not self._is_enough(run) and self._relax(run)
        self._budget.forget()
        self._double()
        self._widen()

    def _is_enough(self, run: SearchRun) -> bool:
        best = self._best
        return run.time == PERFECT or best.channels * best.bw_inter >= self._total

    def _relax(self, run: SearchRun) -> bool:
        """Relax the next constraint, or lower the speed; False when nothing is left to try."""
        trial, best = self._trial, self._best
        if trial.same_channels and not self._through_amd():
            trial.same_channels = False
            return True
        trial.same_channels = self._same
        if self._budget.is_spent_after(run):
            return False
        if self._facts.capability >= 90 and trial.pattern == Pattern.BALANCED_TREE:
            trial.pattern = Pattern.TREE
            return True
        trial.pattern = best.pattern
        return self._relax_types() or self._relax_nics() or self._slow_down()

    def _through_amd(self) -> bool:
        cpu = self._facts.system.cpus[0]
        amd = cpu.arch == CpuArch.X86 and cpu.vendor == CpuVendor.AMD
        return amd and self._trial.type_intra == PathType.SYS

    def _relax_types(self) -> bool:
        trial, best, facts = self._trial, self._best, self._facts
        farthest = trial.type_inter if facts.inter else facts.farthest[0]
        if trial.type_intra < farthest and (
            not best.channels or trial.type_intra < best.type_intra
        ):
            trial.type_intra = PathType(trial.type_intra + 1)
            if trial.type_intra < PathType.DIS:
                return True
        trial.type_intra = facts.nearest[0]
        if (
            facts.inter
            and trial.type_inter < facts.farthest[1]
            and (
                not best.channels
                or trial.type_inter < best.type_inter
                or trial.type_inter < PathType.PXN
            )
        ):
            trial.type_inter = PathType(trial.type_inter + 1)
            if trial.type_inter < PathType.DIS:
                return True
        trial.type_inter = facts.nearest[1]
        return False

    def _relax_nics(self) -> bool:
        trial = self._trial
        swaps = self._best.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
        if self._cross_nic == 2 and trial.cross_nic == 0 and swaps:
            trial.cross_nic = 2
            return True
        trial.cross_nic = int(self._cross_nic == 1)
        return False

    def _slow_down(self) -> bool:
        best, following = self._best, self._index + 1
        if following >= len(self._speeds):
            return False
        if best.channels and self._speeds[following] <= best.bw_inter * Fraction(49, 100):
            return False
        self._index = following
        self._trial.bw_intra = self._trial.bw_inter = self._speeds[following]
        return True

    def _double(self) -> None:
        """Split each channel in two if one is wider than a channel should be."""
        best = self._best
        if not best.channels or best.pattern == Pattern.NVLS or best.bw_intra < _WIDE:
            return
        if self._facts.capability > 80 and best.bw_intra < _HOPPER_WIDE and best.channels > 4:
            return
        count = min(2 * best.channels, best.max_channels)
        parts = -(-count // best.channels)
        more = count - best.channels
        best.intra += [list(row) for row in best.intra[:more]]
        best.inter += [list(row) for row in best.inter[:more]]
        best.bw_intra //= parts
        best.bw_inter //= parts
        best.channels = count

    def _widen(self) -> None:
        """Try higher bandwidths with as many channels as were found, until one search times out."""
        best, trial = self._best, self._trial
        trial.take(best)
        index = 0
        while index < len(self._speeds) - 1 and self._speeds[index] > best.bw_inter:
            index += 1
        trial.bw_intra = trial.bw_inter = self._speeds[index]
        trial.min_channels = best.channels
        runs: list[SearchRun] = []
        while index > 0 and self._raise(index):
            index -= 1
            if self._facts.bound.can_improve(trial, best):
                if any(self._budget.time_of(run) == 0 for run in runs):
                    return
                runs = []
            run = self._budget.run(trial)
            if run is not None:
                runs.append(run)

    def _raise(self, index: int) -> bool:
        """Set the next higher bandwidth; False if the pattern has no use for it."""
        trial, best, higher = self._trial, self._best, self._speeds[index - 1]
        if best.pattern == Pattern.RING:
            trial.bw_intra = trial.bw_inter = higher
            return True
        if (
            best.pattern == Pattern.NVLS
            and trial.bw_inter == best.bw_inter
            and trial.bw_inter < 2 * trial.bw_intra
        ):
            trial.min_channels = trial.max_channels = best.channels
            trial.bw_inter = higher
            return True
        if trial.bw_intra == best.bw_intra and trial.bw_intra < 2 * trial.bw_inter:
            trial.bw_intra = higher
            return True
        return False
