"""
Runs, measured traces and tables of collectives side by side, and the verdict in sentences.

In: anything that `sources` recognises: scenarios, result files, traces, nccl-tests logs. Out: a
`Comparison` of `runs` (with their `settings`) or of `tables`, and its `verdict`.
"""

from commsim.study.compare.compare import Comparison, compare

__all__ = ["Comparison", "compare"]
