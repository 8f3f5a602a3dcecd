"""
NCCL: what it chooses on a machine, how long that takes, and what it does to the links.

From the ground up: `topology` (devices and paths), `search` (channel graphs of a node), `tuning`
(algorithm, protocol, channels, chunks), `communicator` (a group after init), `timing` (predicted
time) and `plans` (what the engine runs). In: a cluster or an NCCL topology file, and the
environment (`env`). Out: an `Nccl` library, and NCCL's view of a machine.
"""

from commsim.libraries.nccl.communicator import communicator_of
from commsim.libraries.nccl.plans import Nccl
from commsim.libraries.nccl.shapes import Algorithm, Choice, Protocol
from commsim.libraries.nccl.timing import PAIRWISE, usual_launch
from commsim.libraries.nccl.topology import cluster_from_xml, cluster_xml, path_tables, view_text
from commsim.libraries.nccl.tuning import (
    check_list,
    is_release,
    release_of,
    starts_channels_slowly,
    tables_of,
)

__all__ = [
    "PAIRWISE",
    "Algorithm",
    "Choice",
    "Nccl",
    "Protocol",
    "check_list",
    "cluster_from_xml",
    "cluster_xml",
    "communicator_of",
    "is_release",
    "path_tables",
    "release_of",
    "starts_channels_slowly",
    "tables_of",
    "usual_launch",
    "view_text",
]
