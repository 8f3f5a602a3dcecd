"""
Goodput: the share of a training's time that is progress, with failures, checkpoints and restarts.

In: a `GoodputSection`, a cluster, the facts of the training and its step. Out: a `Goodput`.
`closed_form` has the formulas, `simulation` months of SimPy that they are held against.
"""

from commsim.study.run.goodput.closed_form import Recovery, best_interval, progress
from commsim.study.run.goodput.goodput import Goodput, goodput_of
from commsim.study.run.goodput.simulation import simulate_progress

__all__ = [
    "Goodput",
    "Recovery",
    "best_interval",
    "goodput_of",
    "progress",
    "simulate_progress",
]
