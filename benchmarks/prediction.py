"""What NCCL runs in a measured case, as runs that the timing model can time over and over."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.nccl.timing.runs import Runs
from commsim.libraries.nccl.timing.wires import PAIRWISE
from commsim.libraries.nccl.tuning.tables import versions

__all__ = ["known_version", "runs_for"]


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
    """Return what NCCL runs for `op` at `sizes` on the first GPUs of each node.

    Raises:
        CommsimError: the sections describe no cluster or library, or nothing allowed works.
    """
    built = _cluster(json.dumps(cluster), nodes)
    env = json.dumps(library.get("env") or {}, sort_keys=True)
    nccl = _library(known_version(str(library.get("version") or "2.27")), env, launch)
    ranks = [int(first) + local for first in built.first_rank for local in range(gpus_per_node)]
    group = nccl.group(tuple(ranks), built)
    choices = None if op in PAIRWISE else group.tuner.sweep(op, list(sizes))
    return group.runs(op, sizes, choices, repeated=True)


def known_version(version: str) -> str:
    """Return a release of NCCL, or the newest that commsim knows where it is newer."""
    newest = versions()[-1]
    return newest if _release(version) > _release(newest) else version


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


@functools.cache
def _library(version: str, env: str, launch: str) -> Nccl:
    return Nccl(version=version, env=json.loads(env), launch=launch)


@functools.cache
def _cluster(section: str, nodes: int) -> Cluster:
    return cluster_from({**json.loads(section), "nodes": nodes}, "systems map: cluster")
