"""
What people ask for: run a scenario, bench collectives, replay a trace.
"""

from commsim.study.advise import Advice, advise
from commsim.study.bench import BenchResult, bench
from commsim.study.replay import Replay, replay
from commsim.study.result import Result
from commsim.study.run import run

__all__ = ["Advice", "BenchResult", "Replay", "Result", "advise", "bench", "replay", "run"]
