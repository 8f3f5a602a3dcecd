"""
A recorded run replayed: with its recorded transfers, or on a cluster by a library.

In: traces, and what to change (`what_if`). Out: a `Replay`: the simulated run, the measured one,
who was late in which collective (`analysis`), and how far the two are apart (`errors`).
"""

from commsim.study.replay.replay import Replay, replay
from commsim.study.replay.what_if import split_sets

__all__ = ["Replay", "replay", "split_sets"]
