"""
Where NCCL forgoes a direct way: GPUs without peer access and NICs without GPUDirect go through
host memory, in what they load as in what they are timed by.
"""

from __future__ import annotations

from collections.abc import Callable

from commsim.cluster import Cluster, Links, Route
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Communicator, PathType
from commsim.libraries.nccl.timing import NicWay

__all__ = ["used_by"]


def used_by(cluster: Cluster, comm: Communicator, way: NicWay, knobs: Knobs) -> Cluster:
    """Return the cluster as a communicator uses it; itself if it forgoes nothing."""
    level = _peer_level(comm, knobs)
    if level is PathType.SYS and way is not NicWay.STAGED:
        return cluster
    return cluster.through_host(_within(level, cluster.links), reads_gpus=way is not NicWay.STAGED)


def _peer_level(comm: Communicator, knobs: Knobs) -> PathType:
    """Return the farthest way over which GPUs read each other's memory."""
    if knobs.p2p_disable:
        return PathType.LOC
    if knobs.p2p_level is not None:
        return knobs.p2p_level
    return PathType.SYS if comm.peer_access else PathType.PXB  # ncclTopoCheckP2p's default


def _within(level: PathType, links: Links) -> Callable[[Route], bool]:
    return lambda way: _kind_of(way, links) <= level


def _kind_of(way: Route, links: Links) -> PathType:
    """Return NCCL's name for a way between two GPUs of a node."""
    kinds = {links.kinds[link] for link in way.link}
    ends = {
        end.split("/")[-1] for link in way.link for end in (links.source[link], links.target[link])
    }
    if kinds <= {"nvlink"}:
        return PathType.NVL
    if "cpu" in kinds:
        return PathType.SYS
    if any(end.startswith("cpu") for end in ends):
        return PathType.PHB
    return PathType.PXB if sum(end.startswith("pcie") for end in ends) > 1 else PathType.PIX
