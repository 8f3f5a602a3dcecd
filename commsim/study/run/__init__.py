"""
A scenario run: its cluster, work and library built, simulated, measured.

In: a scenario. Out: a `Result` with its timeline, metrics and notes. `captured` gives graphs of
captured scripts their times, and `guard` names collectives that are predicted below what the
links allow.
"""

from commsim.study.run.captured import captured_summary
from commsim.study.run.goodput import Goodput, goodput_of
from commsim.study.run.guard import too_fast
from commsim.study.run.hardware import KeptHardware, idle_gpus
from commsim.study.run.result import Result
from commsim.study.run.run import run
from commsim.study.run.twice import twice

__all__ = [
    "Goodput",
    "KeptHardware",
    "Result",
    "captured_summary",
    "goodput_of",
    "idle_gpus",
    "run",
    "too_fast",
    "twice",
]
