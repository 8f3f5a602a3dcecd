"""
Faults in a graph and in a cluster: durations that grow, links that carry less.

Only ranks that something happens to stand apart from those that they were folded with.
"""

from __future__ import annotations

import copy

import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats, Ints
from commsim.cluster import Cluster
from commsim.engine.faults.draw import DrawnFaults, Noise
from commsim.graph import Device, Graph, OpKind
from commsim.limits import too_long
from commsim.units import MOST_PICOSECONDS

__all__ = ["apart_links", "degraded", "roles_of", "slowed"]

_NOISE = 2  # a stream of chance of its own


def roles_of(faults: DrawnFaults, world: int) -> Ints:
    """Return a number per rank: 0 if nothing happens to it, else one for what does."""
    roles = np.zeros(world, np.int64)
    seen: dict[tuple[object, ...], int] = {}
    for rank in range(world):
        mine: tuple[object, ...] = tuple(
            (one.factor, one.start, one.end) for one in faults.slow_gpus if one.rank == rank
        )
        if any(one.ranks is None or rank in one.ranks for one in faults.noise):
            mine = (*mine, rank)  # noise is each rank's own
        if mine:
            roles[rank] = seen.setdefault(mine, len(seen) + 1)
    return roles


def apart_links(faults: DrawnFaults) -> Ints:
    """Return the links that differ from their like for a time only, which no capacity shows."""
    ids = [link for one in faults.slow_links if one.windows is not None for link in one.links]
    return np.unique(np.array(ids, dtype=np.int64))


def degraded(cluster: Cluster, faults: DrawnFaults) -> Cluster:
    """Return the cluster with the links that are slow all the time."""
    left = np.ones(len(cluster.links))
    for one in faults.slow_links:
        if one.windows is None:
            left[list(one.links)] *= one.left
    if (left == 1.0).all():
        return cluster
    links = cluster.links
    made = copy.copy(cluster)
    made.links = replace(links, bandwidth=links.bandwidth * left, capacity=links.capacity * left)
    return made


def slowed(graph: Graph, faults: DrawnFaults) -> Graph:
    """Return the graph with the compute of slow GPUs and with jitter; lanes are apart already.

    Raises:
        ScenarioError: an op takes longer than the clock can hold.
    """
    factor = np.ones(len(graph))
    compute = (graph.kind == OpKind.COMPUTE) & (graph.duration > 0)
    on_gpu = compute & (graph.device == Device.CUDA)
    rank = graph.lane_rank[graph.lane]
    slow: dict[int, float] = {}
    for one in faults.slow_gpus:
        if one.start is None:
            slow[one.rank] = slow.get(one.rank, 1.0) * one.factor
    for at, times in slow.items():  # equivalent slow ranks share a lane, named by the lowest
        factor[on_gpu & (rank == at)] = times
    random = np.random.default_rng((*faults.seed, _NOISE))
    for noise in faults.noise:
        chosen = compute if noise.ranks is None else compute & np.isin(rank, noise.ranks)
        ops = np.flatnonzero(chosen)
        factor[ops] *= _factors(noise, len(ops), random)
    if (factor == 1.0).all():
        return graph
    slower = np.rint(graph.duration * factor)
    longest = int(np.argmax(slower))
    if slower[longest] >= MOST_PICOSECONDS:
        raise too_long(
            f"faults: {graph.describe(longest)}, {factor[longest]:.4g} times as long,",
            "Give a smaller factor.",
        )
    duration = np.where(compute, slower.astype(np.int64), graph.duration)
    return replace(graph, duration=duration)


def _factors(noise: Noise, count: int, random: np.random.Generator) -> Floats:
    if noise.pool is not None:
        return random.choice(noise.pool, count)
    if noise.distribution == "normal":
        return np.maximum(random.normal(1.0, noise.spread, count), 0.0)
    if noise.distribution == "exponential":
        return 1.0 + random.exponential(noise.spread, count)
    sigma = np.sqrt(np.log1p(noise.spread**2))  # mean 1, standard deviation `spread`
    return random.lognormal(-(sigma**2) / 2, sigma, count)
