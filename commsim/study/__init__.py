"""
What people ask for: run a scenario, bench collectives, replay a trace, compare, advise,
plan, explain.
"""

from commsim.study.advise import Advice, advise
from commsim.study.bench import BenchResult, bench
from commsim.study.calibrate import Calibration, CheckResult, calibrate, check
from commsim.study.compare import Comparison, compare
from commsim.study.explain import explain
from commsim.study.next_dollar import NextDollar, next_dollar
from commsim.study.plan import ClusterPlan, plan
from commsim.study.replay import Replay, replay
from commsim.study.run import Result, captured_summary, run
from commsim.study.sweep import Sweep, sweep

__all__ = [
    "Advice",
    "BenchResult",
    "Calibration",
    "CheckResult",
    "ClusterPlan",
    "Comparison",
    "NextDollar",
    "Replay",
    "Result",
    "Sweep",
    "advise",
    "bench",
    "calibrate",
    "captured_summary",
    "check",
    "compare",
    "explain",
    "next_dollar",
    "plan",
    "replay",
    "run",
    "sweep",
]
