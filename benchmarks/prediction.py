"""Predict a measured case: the cluster of its system, NCCL's choices there, and their times."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries.nccl.choose import Tuner
from commsim.libraries.nccl.communicator import communicator_of
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.shapes import Communicator
from commsim.libraries.nccl.timing_runs import Runs
from commsim.libraries.nccl.timing_wires import PAIRWISE, Wires, runs_of, wires_of

__all__ = ["runs_for"]

_KNOWN = ("2.18", "2.30")
_CHANNELS_COST = (2, 12)
"""Before this NCCL paid for each channel it started."""


def runs_for(
    cluster: Mapping[str, Any],
    library: Mapping[str, Any],
    op: str,
    sizes: Sequence[int],
    *,
    nodes: int,
    gpus_per_node: int,
    launch: str,
) -> Runs:
    """Return what NCCL runs for `op` at `sizes` on the first GPUs of each node."""
    version = str(library.get("version") or "2.27")
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    known = _KNOWN[0] if number < (2, 18) else _KNOWN[1] if number > (2, 30) else version
    env = json.dumps(library.get("env") or {}, sort_keys=True)
    comm, wires = _communicator(json.dumps(cluster), known, env, nodes, gpus_per_node)
    choices = None
    if op not in PAIRWISE:
        choices = Tuner(comm, knobs_of(json.loads(env))).sweep(op, list(sizes))
    return runs_of(
        wires, op, sizes, choices,
        channels=comm.channels,
        gpus_per_process=gpus_per_node if launch == "process" else 0,
        old=number < _CHANNELS_COST,
    )  # fmt: skip


@functools.cache
def _communicator(
    section: str, version: str, env: str, nodes: int, gpus_per_node: int
) -> tuple[Communicator, Wires]:
    cluster = _cluster(section, nodes)
    gpus = [
        int(first) + local for first in cluster.first_rank[:nodes] for local in range(gpus_per_node)
    ]
    knobs = knobs_of(json.loads(env))
    comm = communicator_of(cluster, gpus, version=version, env=knobs)
    return comm, wires_of(cluster, gpus, comm, knobs)


@functools.cache
def _cluster(section: str, nodes: int) -> Cluster:
    return cluster_from({**json.loads(section), "nodes": nodes}, "systems")
