"""
What did happen: traces of real runs, read into a measured timeline and a graph to replay.

In: trace files, or a program to capture. Out: a `Trace` (measured timeline, tables) and a graph to
replay. `formats` reads files, `rebuild` finds what each rank did and joins the ranks, `capture`
runs a script without GPUs; `load` and `trace` put these together.
"""

from commsim.traces.capture import capture
from commsim.traces.load import Imported, import_graph, load_trace
from commsim.traces.rebuild.rank import RankPace, StepPace
from commsim.traces.table import CollectiveRow, CollectiveTable, MessageRow
from commsim.traces.trace import Trace

__all__ = [
    "CollectiveRow",
    "CollectiveTable",
    "Imported",
    "MessageRow",
    "RankPace",
    "StepPace",
    "Trace",
    "capture",
    "import_graph",
    "load_trace",
]
