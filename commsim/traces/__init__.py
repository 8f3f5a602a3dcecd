"""
What did happen: traces of real runs, read into a measured timeline and a graph to replay.

`files` opens and unpacks, `kineto` and `execution_trace` read, `activity` and `collectives` say
what each rank did, `matching` and `deskew` join the ranks, `streams` and `threads` find what
waited for what, `to_graph` and `measured` build the two waists; `load` and `trace` are the face.
"""

from commsim.traces.capture import capture
from commsim.traces.load import Imported, import_graph, load_trace
from commsim.traces.table import CollectiveRow, CollectiveTable, MessageRow
from commsim.traces.trace import Trace

__all__ = [
    "CollectiveRow",
    "CollectiveTable",
    "Imported",
    "MessageRow",
    "Trace",
    "capture",
    "import_graph",
    "load_trace",
]
