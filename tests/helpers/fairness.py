"""How far an allocation of links to flows is from fair, by the definition."""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats
from commsim.engine.fair_share import Flows

__all__ = ["unfairness"]


def unfairness(flows: Flows, capacity: Floats, rate: Floats) -> float:
    """Return by how much an allocation breaks the rule, as a fraction; 0 is fair.

    The largest of: a link over its capacity, a flow over its cap, and, for each flow, how far
    it is from both its cap and being a top share on a full link.
    """
    owner = np.repeat(np.arange(len(flows)), np.diff(flows.ptr))
    use = np.bincount(flows.link, weights=flows.load * rate[owner], minlength=len(capacity))
    fullness = use / capacity
    share = flows.load * rate[owner] / flows.conns
    top = np.zeros(len(capacity))
    np.maximum.at(top, flows.link, share)
    lack = np.maximum(np.abs(1 - fullness[flows.link]), 1 - share / top[flows.link])
    nearest = np.full(len(flows), np.inf)
    np.minimum.at(nearest, owner, lack)
    nearest = np.minimum(nearest, 1 - rate / flows.cap)
    over = max(float(np.max(fullness, initial=0.0)) - 1, float(np.max(rate / flows.cap)) - 1)
    return max(over, float(nearest.max()))
