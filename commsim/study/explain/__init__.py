"""
Algorithms step by step: who sends which chunk to whom, as a page or a table.

In: the name of an algorithm, its op and ranks, or an MSCCL file. Out: an `Explanation`.
"""

from commsim.study.explain.explain import Explanation, explain, save_together

__all__ = ["Explanation", "explain", "save_together"]
