"""
Out of time: simulated time ends at `MOST_PICOSECONDS`, and work is left that would go on then.
"""

from __future__ import annotations

import numpy as np

from commsim.engine.recorder import Recorder
from commsim.errors import ScenarioError
from commsim.graph import Graph
from commsim.limits import too_long
from commsim.units import MOST_PICOSECONDS, format_time

__all__ = ["first_late", "out_of_time"]


def first_late(recorder: Recorder) -> int:
    """Return the first op that time has ended on: one that was under way, if any was."""
    late = np.asarray(recorder.end) < 0
    under_way = np.flatnonzero(late & (np.asarray(recorder.start) >= 0))
    return int(under_way[0] if len(under_way) else np.flatnonzero(late)[0])


def out_of_time(graph: Graph, op: int, start: int) -> ScenarioError:
    """Return the error for a run that is too long, by an op that does not end in time.

    `start` is when it began, in ps; -1 if it did not.
    """
    begun = f"begun at {format_time(start)}, " if 0 <= start < MOST_PICOSECONDS else ""
    return too_long(
        "the run",
        f"{graph.describe(op)}, {begun}has not ended by then. Check the units of durations,"
        " latencies and bandwidths; or run less: fewer steps, microbatches or bytes.",
    )
