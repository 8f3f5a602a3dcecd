"""
Which pipeline stage each lane works on.
"""

from __future__ import annotations

import numpy as np

from commsim.arrays import Ints
from commsim.graph import Graph

__all__ = ["lane_stages"]


def lane_stages(graph: Graph) -> Ints:
    """Return the smallest stage that each lane has ops of, -1 for none."""
    none = np.iinfo(np.int64).max
    stage = np.full(len(graph.lane_rank), none)
    staged = graph.stage >= 0
    np.minimum.at(stage, graph.lane[staged], graph.stage[staged])
    return np.where(stage == none, -1, stage)
