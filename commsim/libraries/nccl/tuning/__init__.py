"""
NCCL's tuning model: the algorithm, protocol, channels, threads and chunks that it chooses.

In: a communicator, an op, its bytes and the environment. Out: a `Choice` per size (`choose`) with
NCCL's own cost of every candidate (`model`, from `bandwidth` and `latency`), and channels per
peer for sends and receives (`p2p`). The constants of each release stand in versions.yaml.
"""

from commsim.libraries.nccl.tuning.algo_filter import check_list
from commsim.libraries.nccl.tuning.choose import FLOAT_SUM, Tuner
from commsim.libraries.nccl.tuning.chunks import STEPS
from commsim.libraries.nccl.tuning.nvls import nvls_setup
from commsim.libraries.nccl.tuning.p2p import PeerToPeer
from commsim.libraries.nccl.tuning.reduction import Reduction
from commsim.libraries.nccl.tuning.releases import is_release, release_of, starts_channels_slowly
from commsim.libraries.nccl.tuning.tables import tables_of

__all__ = [
    "FLOAT_SUM",
    "STEPS",
    "PeerToPeer",
    "Reduction",
    "Tuner",
    "check_list",
    "is_release",
    "nvls_setup",
    "release_of",
    "starts_channels_slowly",
    "tables_of",
]
