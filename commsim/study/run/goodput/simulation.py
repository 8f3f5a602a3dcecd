"""
Months of a training as SimPy processes: work, checkpoints, failures, restarts, repairs.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from commsim.study.run.goodput.closed_form import Recovery, replicas_lost

__all__ = ["simulate_progress"]

_Process = Generator[simpy.Event, Any, Any]


class _Training:
    """One training: `done` is progress that is safe or not lost yet, in seconds of whole work."""

    def __init__(self, one: Recovery, interval: float, seed: int) -> None:
        self.env = simpy.Environment()
        self.one, self.interval = one, interval
        self.random = np.random.default_rng(seed)
        self.done = self.safe = 0.0
        self.missing = 0
        self.back = self.env.event()
        self.env.process(self.run())

    def run(self) -> _Process:
        """Work from checkpoint to checkpoint; a failure throws back to the last safe one."""
        one, pending = self.one, None  # (progress, when it is safe)
        while True:
            while self.missing > one.spares and not one.elastic:
                yield self.back
            next_failure = self.random.exponential(1 / one.rate)
            while True:
                whole = self.interval + one.blocked
                took = min(whole, next_failure)
                pace = 1 - replicas_lost(one, self.missing - one.spares) if one.elastic else 1.0
                begun = self.env.now
                yield self.env.timeout(took)
                if pending is not None and pending[1] <= self.env.now:
                    self.safe, pending = pending[0], None
                if took < whole:
                    break
                next_failure -= took
                self.done += self.interval * pace
                # What is written now is safe later; what was written before is by then.
                if one.safe_after <= 0:
                    self.safe = self.done
                else:
                    pending = (self.done, begun + whole + one.safe_after)
            self.done, pending = self.safe, None
            yield from self.recover()

    def recover(self) -> _Process:
        """Take the failed node away, and restart; a failure meanwhile begins it anew."""
        one = self.one
        while True:
            if one.hardware and self.random.random() < one.hardware / one.rate:
                self.missing += 1
                self.env.process(self.repair())
            again = self.random.exponential(1 / one.rate)
            yield self.env.timeout(min(again, one.recover))
            if again >= one.recover:
                return

    def repair(self) -> _Process:
        """Bring a node back."""
        yield self.env.timeout(self.one.repair)
        self.missing -= 1
        back, self.back = self.back, self.env.event()
        back.succeed()


def simulate_progress(one: Recovery, interval: float, seconds: float, *, seed: int = 0) -> float:
    """Return the share of `seconds` that was progress in one simulated training."""
    training = _Training(one, interval, seed)
    training.env.run(until=seconds)
    return training.done / seconds
