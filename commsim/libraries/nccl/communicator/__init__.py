"""
A group after ncclCommInit: its graphs, channels, rings, trees and NICs.

In: a cluster or a recorded communicator, and the ranks of a group. Out: a `Communicator`. `node`
searches one node, `agreement` takes what all nodes can do, `connect` joins nodes into rings and
trees, `net_ends` places NICs, `placement` shares the result between equivalent groups.
"""

from commsim.libraries.nccl.communicator.communicator import communicator_of
from commsim.libraries.nccl.communicator.placement import Communicators, NicTable

__all__ = ["Communicators", "NicTable", "communicator_of"]
