"""
From the records of all ranks to one run: common clock, matched collectives, graph, timeline.

In: one `RankPart` per rank (`rank`). Out: offsets of the clocks (`deskew`), which calls belong
together (`matching`, `match_messages`), the measured timeline (`measured`) and the workload graph
(`to_graph`; `assemble` for formats without times).
"""

from commsim.traces.rebuild.assemble import assemble
from commsim.traces.rebuild.deskew import Clocks, Transfer, align, transfer_of
from commsim.traces.rebuild.joined_ops import RankFragment
from commsim.traces.rebuild.match_messages import Exchange, match_messages, move_of
from commsim.traces.rebuild.matching import MatchedCollective, match
from commsim.traces.rebuild.measured import measured_timeline
from commsim.traces.rebuild.to_graph import Built, build_graph

__all__ = [
    "Built",
    "Clocks",
    "Exchange",
    "MatchedCollective",
    "RankFragment",
    "Transfer",
    "align",
    "assemble",
    "build_graph",
    "match",
    "match_messages",
    "measured_timeline",
    "move_of",
    "transfer_of",
]
