"""
All-reduces whose sums the network makes, as messages: CollNet, and NVLS over several nodes.

Which of a fabric's switches add is not known link by link. What is: a rank sends what its node has
summed into the network once, and gets the result once. So it sends to the rank at its place on
the next node, and goes on when all that the network adds have been sent: over every NIC pass the
bytes of both directions, as in the flow. The programs are proven with the network as a switch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from commsim.collectives import IN_NETWORK, IN_NODE, Program, ProgramBuilder, dependencies, program

__all__ = ["between_ranks", "chains_over_nodes", "direct_over_nodes", "nvls_over_nodes"]


def direct_over_nodes(ranks: int, per_node: int, pieces: int) -> Program:
    """CollNetDirect: rank h of a node adds up part h of it and hands out the result."""
    return program("all_reduce", "collnet_direct", ranks, per_node=per_node, pieces=pieces)


def chains_over_nodes(ranks: int, chains: Sequence[Sequence[int]], pieces: int) -> Program:
    """CollNetChain: each channel's chain through the places of a node ends in the network.

    The first place of a chain is the one at the network, as in NCCL's graph.
    """
    m, count = len(chains[0]), len(chains) * pieces
    made = ProgramBuilder(
        "all_reduce", "collnet_chain", ranks, [1 / count] * count, switches=(IN_NETWORK,)
    )
    for channel, chain in enumerate(chains):
        for piece in range(pieces):
            chunk = channel * pieces + piece
            for first in range(0, ranks, m):
                for at in range(m - 1, 0, -1):
                    up = {"source": first + chain[at], "target": first + chain[at - 1]}
                    made.reduce(chunk, **up, step=piece + m - 1 - at)
                    down = {"source": up["target"], "target": up["source"]}
                    made.copy(chunk, **down, step=piece + m + at)
                made.reduce(chunk, first + chain[0], ranks, step=piece + m - 1)
                made.copy(chunk, ranks, first + chain[0], step=piece + m)
    return made.build()


def nvls_over_nodes(ranks: int, per_node: int, pieces: int) -> Program:
    """NVLS: the NVSwitch sums part h of a node at rank h, and multicasts what the network adds."""
    m, nodes = per_node, ranks // per_node
    switches = (*[IN_NODE] * nodes, IN_NETWORK)
    chunks, network = m * pieces, ranks + nodes
    made = ProgramBuilder("all_reduce", "nvls", ranks, [1 / chunks] * chunks, switches=switches)
    for piece in range(pieces):
        parts = [h * pieces + piece for h in range(m)]
        for node in range(nodes):
            switch = ranks + node
            for h in range(m):
                rank = node * m + h
                made.reduce(parts, rank, switch, step=piece)
                made.copy(parts[h], switch, rank, step=piece + 1)
                made.reduce(parts[h], rank, network, step=piece + 2)
                made.copy(parts[h], network, rank, step=piece + 3)
                made.copy(parts[h], rank, switch, step=piece + 4)
                made.copy(parts, switch, rank, step=piece + 5)
    return made.build()


def between_ranks(made: Program, per_node: int) -> Program:
    """Return a program whose last switch is the network with messages between ranks in its place.

    What a rank gets from the network comes with what others send to its like: who waited for it
    waits for these.
    """
    network = made.actors - 1
    ptr, dep = (column.tolist() for column in dependencies(made))
    out = made.source == network
    number, handed = np.cumsum(~out) - 1, out.tolist()
    place = number.tolist()
    needs: list[list[int]] = []
    for message in np.flatnonzero(~out).tolist():
        own: dict[int, None] = {}
        for before in dep[ptr[message] : ptr[message + 1]]:
            several = dep[ptr[before] : ptr[before + 1]] if handed[before] else (before,)
            own.update(dict.fromkeys(place[one] for one in several))
        needs.append(list(own))
    rows = ~out[made.message]
    target = np.where(made.target == network, (made.source + per_node) % made.n, made.target)
    return replace(
        made,
        message=number[made.message[rows]],
        chunk=made.chunk[rows],
        step=made.step[~out],
        source=made.source[~out],
        target=target[~out],
        reduce=made.reduce[~out],
        phase=made.phase[~out],
        switches=made.switches[:-1],
        needs=(
            np.concatenate(([0], np.cumsum([len(own) for own in needs]))).astype(np.int64),
            np.array([one for own in needs for one in own], dtype=np.int64),
        ),
    )
