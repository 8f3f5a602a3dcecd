"""
Which cluster for a training: sizes and layouts that make it in time, by size, money and speed.

In: a model, tokens, a deadline or a budget, and kinds of nodes. Out: a `ClusterPlan`. `question`
reads what was asked, `option` takes one cluster from bounds to a simulation, `search` looks closer
if that leaves hope, `words` says what decides and what would change the answer.
"""

from commsim.study.plan.option import PlanOption
from commsim.study.plan.plan import ClusterPlan, plan

__all__ = ["ClusterPlan", "PlanOption", "plan"]
