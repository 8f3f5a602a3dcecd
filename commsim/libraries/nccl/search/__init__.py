"""
NCCL's graph search: for each pattern, the channels with the most bandwidth in a node.

In: the paths of a `System` and the limits of a release. Out: one `Graph` per pattern. `passes`
loosens demands in NCCL's order, `channel_search` tries them depth first within a `budget`, and
`bound` skips searches that cannot improve the result.
"""

from commsim.libraries.nccl.search.facts import limits
from commsim.libraries.nccl.search.graph_search import search_all

__all__ = ["limits", "search_all"]
