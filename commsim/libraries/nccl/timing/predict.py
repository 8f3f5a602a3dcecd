"""
NCCL's time, calibrated: what a run takes on an idle cluster, and what it spends it on.

Apart from the tuner's cost model, which only chooses. Every shape is a chunk program on edges of
two kinds (links within a domain, network between), each with a latency and a rate, and its time
is that program's max-plus value after one launch. docs/background/nccl-timing.md tells it whole.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.timing.constants import Terms, default_terms
from commsim.libraries.nccl.timing.edges import larger
from commsim.libraries.nccl.timing.runs import Runs
from commsim.libraries.nccl.timing.shapes import program_time

__all__ = ["PredictedTime", "latencies", "time_runs"]


_STARTS = 4.0  # of the blend of a process's launches with the program: they vary


@dataclass(frozen=True, slots=True, eq=False)
class PredictedTime:
    """Seconds of each run: `launch`, then the program."""

    launch: Floats
    program: Floats

    @property
    def seconds(self) -> Floats:
        """The whole time."""
        whole: Floats = self.launch + self.program
        return whole


def time_runs(runs: Runs, terms: Terms | None = None) -> PredictedTime:
    """Return the time of each run on an idle cluster, with the constants `terms`."""
    terms = terms or default_terms()
    program = program_time(runs, terms)
    # One process starts all its GPUs before any of them can end: a floor, not an addend.
    host = np.where(np.isnan(runs.host_launch), terms.launch, runs.host_launch)
    floor = terms.launch_one_process * (host / terms.launch) * runs.gpus_per_process
    whole = host + program
    if runs.old.any():
        whole = whole + np.where(runs.old, _staggered(runs, terms, program), 0.0)
        late = np.where(runs.old, terms.launch_channel * runs.channels, 0.0)
        floor = floor + np.where(floor > 0, late, 0.0)
    launch = larger(whole, floor, _STARTS) - program
    return PredictedTime(launch, program)


def _staggered(runs: Runs, terms: Terms, program: Floats) -> Floats:
    """Return what NCCL before 2.12 loses by starting its channels one after another.

    The last channel starts late, but does without the others' traffic as long as they wait.
    """
    free = np.zeros_like(runs.size)
    alone = dataclasses.replace(runs, local=free, net=free, leaving=free)
    late = terms.launch_channel * runs.channels
    lost: Floats = np.maximum(late - (program - program_time(alone, terms)), 0.0)
    return lost


def latencies(runs: Runs, terms: Terms | None = None) -> Floats:
    """Return what of each program is latency: its time without bytes, in seconds."""
    empty = dataclasses.replace(runs, size=np.zeros_like(runs.size))
    return program_time(empty, terms or default_terms())
