"""Whether a link carries more than it can."""

from __future__ import annotations

import numpy as np

from commsim.arrays import Floats, Ints


def ps_over(start: Ints, end: Ints, rate: Floats, capacity: float) -> float:
    """Return the most ps by which any stretch of time is too short for what a link carries."""
    edges = np.unique(np.concatenate((start, end)))
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, start), rate)
    np.add.at(change, np.searchsorted(edges, end), -rate)
    carried = np.cumsum(np.cumsum(change)[:-1] * np.diff(edges)) / capacity
    ahead = np.concatenate(([0.0], carried)) - (edges - edges[0])
    return float(np.max(ahead - np.minimum.accumulate(ahead)))
