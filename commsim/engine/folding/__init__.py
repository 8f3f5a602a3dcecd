"""
Folding: ranks that do the same on symmetric hardware are simulated once.

In: a graph and a cluster. Out: the folded graph, and a planner whose plans carry the loads of all
the groups that they stand for. `refinement` finds the classes of equal ranks, groups and links.
"""

from commsim.engine.folding.folding import FoldedPlanner, folded

__all__ = ["FoldedPlanner", "folded"]
