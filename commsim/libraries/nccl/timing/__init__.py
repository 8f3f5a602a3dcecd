"""
NCCL's predicted time: a calibrated model of what a choice takes on an idle cluster.

In: choices (`runs`), what they ask of the cluster's links (`link_use`) and the fitted constants
(timing.yaml, read by `constants`). Out: seconds per run and what they are made of (`predict`).
`edges` gives latency and rate of each hop, `programs` the messages, `clocks` and `shapes` the time
of a whole program.
"""

from commsim.libraries.nccl.timing.constants import default_terms, usual_launch
from commsim.libraries.nccl.timing.edges import hop_latency, reach_latency
from commsim.libraries.nccl.timing.link_use import Latency, LinkSeconds, latency_of, use_of
from commsim.libraries.nccl.timing.predict import PredictedTime, time_runs
from commsim.libraries.nccl.timing.programs import ProgramEdges, chain_edges, ring_edges, tree_edges
from commsim.libraries.nccl.timing.runs import LinkKind, NicWay, Runs
from commsim.libraries.nccl.timing.wires import PAIRWISE, Wires, runs_of, wires_of

__all__ = [
    "PAIRWISE",
    "Latency",
    "LinkKind",
    "LinkSeconds",
    "NicWay",
    "PredictedTime",
    "ProgramEdges",
    "Runs",
    "Wires",
    "chain_edges",
    "default_terms",
    "hop_latency",
    "latency_of",
    "reach_latency",
    "ring_edges",
    "runs_of",
    "time_runs",
    "tree_edges",
    "use_of",
    "usual_launch",
    "wires_of",
]
