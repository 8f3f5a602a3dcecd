"""
NCCL's time, calibrated: what a run takes on an idle cluster, and what it spends it on.

Apart from the tuner's cost model, which only chooses. Every shape is a chunk program on edges of
two kinds (links within a domain, network between), each with a latency and a rate, and its time
is that program's max-plus value after one launch. docs/background/nccl-timing.md tells it whole.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.timing.constants import Terms, default_terms
from commsim.libraries.nccl.timing.edges import larger
from commsim.libraries.nccl.timing.runs import Runs
from commsim.libraries.nccl.timing.shapes import program_time

__all__ = ["PredictedTime", "latencies", "time_runs"]


_STARTS = 4.0  # of the blend of a process's launches with the program: they vary


class PredictedTime(msgspec.Struct, frozen=True, eq=False):
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
    less = np.where(runs.old, terms.launch_old, 1.0)
    host = np.where(np.isnan(runs.host_launch), terms.launch * less, runs.host_launch)
    floor = terms.launch_one_process * (host / terms.launch) * runs.gpus_per_process
    late = terms.launch_channel[runs.old.astype(np.int64)] * runs.channels
    whole = host + late + program
    floor = floor + np.where(floor > 0, late, 0.0)
    launch = larger(whole, floor, _STARTS) - program
    return PredictedTime(launch, program)


def latencies(runs: Runs, terms: Terms | None = None) -> Floats:
    """Return what of each program is latency: its time without bytes, in seconds."""
    empty = msgspec.structs.replace(runs, size=np.zeros_like(runs.size))
    return program_time(empty, terms or default_terms())
