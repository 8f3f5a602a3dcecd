"""
The activity of one rank, from its own file alone.

In: Kineto events and, if there is one, an Execution Trace. Out: a `RankPart`: its communication
(`collectives`, `message_kernels`, `gloo_calls`), its CPU threads (`threads`) and GPU streams
(`streams`), what each waited for (`causes`), and its part of the graph (`fragment`).
"""

from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage, RankCollectives
from commsim.traces.rebuild.rank.fragment import Fragment
from commsim.traces.rebuild.rank.host_account import HostAccount
from commsim.traces.rebuild.rank.own_account import OwnAccount
from commsim.traces.rebuild.rank.pace import RankPace, StepPace
from commsim.traces.rebuild.rank.part import RankPart, rank_part
from commsim.traces.rebuild.rank.suspects import Suspect, waiting_like_communication

__all__ = [
    "CollectiveCall",
    "Fragment",
    "HostAccount",
    "KernelMessage",
    "OwnAccount",
    "RankCollectives",
    "RankPace",
    "RankPart",
    "StepPace",
    "Suspect",
    "rank_part",
    "waiting_like_communication",
]
