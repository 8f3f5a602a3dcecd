"""
What people ask for: run a scenario, bench collectives, replay a trace.
"""

from commsim.study.bench import BenchResult, bench
from commsim.study.result import Result
from commsim.study.run import run

__all__ = ["BenchResult", "Result", "bench", "run"]
