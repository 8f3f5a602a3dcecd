"""
Switches that work along: the NVSwitch of a node, and the switches of the network.

    nvls             one node: its NVSwitch adds what all GPUs hold, and multicasts the sum
    nvls_tree        nvls within each node, a pair of trees across nodes per GPU of a node
    sharp            all ranks hang on switches that add and multicast (one rank per node)
    collnet_direct   rank h of a node collects part h of it, the network adds those of all nodes
    collnet_chain    a chain within each node, the network adds the ends of the chains

The network counts as one switch. Its own tree of switches adds on every level, so what a rank
sends and gets is the same as with a single one. Names and shapes are NCCL's (NVLS, NVLSTree,
CollNetDirect, CollNetChain); sharp is CollNet with one rank per node.
"""

from __future__ import annotations

from commsim.collectives.program import IN_NETWORK, IN_NODE, Program, ProgramBuilder
from commsim.collectives.tree import parents

__all__ = [
    "collnet_chain", "collnet_direct", "nvls_all_gather", "nvls_all_reduce",
    "nvls_reduce_scatter", "nvls_tree", "sharp_all_gather", "sharp_all_reduce", "sharp_barrier",
    "sharp_broadcast", "sharp_reduce", "sharp_reduce_scatter",
]  # fmt: skip


def _nvls(op: str, n: int, pieces: int) -> ProgramBuilder:
    chunks = n * pieces
    return ProgramBuilder(op, "nvls", n, [1 / chunks] * chunks, switches=(IN_NODE,))


def _sharp(op: str, n: int, chunks: int, *, root: int = -1) -> ProgramBuilder:
    share = 0.0 if op == "barrier" else 1 / chunks
    return ProgramBuilder(op, "sharp", n, [share] * chunks, root=root, switches=(IN_NETWORK,))


def _slice(n: int, pieces: int, piece: int) -> list[int]:
    """Return piece `piece` of every rank's part."""
    return [owner * pieces + piece for owner in range(n)]


def _sum_to_owners(program: ProgramBuilder, n: int, pieces: int) -> None:
    """Let the switch add a piece of all parts, and hand each owner its part."""
    for piece in range(pieces):
        for rank in range(n):
            program.reduce(_slice(n, pieces, piece), rank, n, step=piece)
        for owner in range(n):
            program.copy(owner * pieces + piece, n, owner, step=piece + 1)


def _owners_to_all(program: ProgramBuilder, n: int, pieces: int, *, first: int) -> None:
    """Let every owner multicast its part; the hardware hands it back to the owner as well."""
    for piece in range(pieces):
        for owner in range(n):
            program.copy(owner * pieces + piece, owner, n, step=first + piece)
        for rank in range(n):
            program.copy(_slice(n, pieces, piece), n, rank, step=first + piece + 1)


def nvls_all_reduce(n: int, pieces: int) -> Program:
    """The switch adds up, each rank gets the sum of its part and multicasts it."""
    program = _nvls("all_reduce", n, pieces)
    _sum_to_owners(program, n, pieces)
    _owners_to_all(program, n, pieces, first=2)
    return program.build()


def nvls_reduce_scatter(n: int, pieces: int) -> Program:
    """The switch adds up, each rank gets the sum of its part."""
    program = _nvls("reduce_scatter", n, pieces)
    _sum_to_owners(program, n, pieces)
    return program.build()


def nvls_all_gather(n: int, pieces: int) -> Program:
    """Each rank multicasts its part."""
    program = _nvls("all_gather", n, pieces)
    _owners_to_all(program, n, pieces, first=0)
    return program.build()


def sharp_all_reduce(n: int, pieces: int) -> Program:
    """All ranks send to the network, and all get the sum."""
    program = _sharp("all_reduce", n, pieces)
    for piece in range(pieces):
        for rank in range(n):
            program.reduce(piece, rank, n, step=piece)
            program.copy(piece, n, rank, step=piece + 1)
    return program.build()


def sharp_reduce(n: int, root: int, pieces: int) -> Program:
    """Everybody sends to the network, and the root gets the sum."""
    program = _sharp("reduce", n, pieces, root=root)
    for piece in range(pieces):
        program.reduce_at(piece, n, range(n), root, step=piece)
    return program.build()


def sharp_broadcast(n: int, root: int, pieces: int) -> Program:
    """The root sends once, and the network multiplies."""
    program = _sharp("broadcast", n, pieces, root=root)
    others = [rank for rank in range(n) if rank != root]
    for piece in range(pieces):
        program.multicast(piece, n, root, others, step=piece)
    return program.build()


def sharp_reduce_scatter(n: int, pieces: int) -> Program:
    """Everybody sends all parts to the network, and each gets the sum of its own."""
    program = _sharp("reduce_scatter", n, n * pieces)
    _sum_to_owners(program, n, pieces)
    return program.build()


def sharp_all_gather(n: int, pieces: int) -> Program:
    """Each rank sends its part once; the network hands it to the others."""
    program = _sharp("all_gather", n, n * pieces)
    for piece in range(pieces):
        for owner in range(n):
            others = [rank for rank in range(n) if rank != owner]
            program.multicast(owner * pieces + piece, n, owner, others, step=piece)
    return program.build()


def sharp_barrier(n: int) -> Program:
    """All ranks signal the network, and the network signals all ranks."""
    program = _sharp("barrier", n, n)
    for rank in range(n):
        program.copy(rank, rank, n, step=0)
        program.copy(range(n), n, rank, step=1)
    return program.build()


def collnet_direct(n: int, m: int, pieces: int) -> Program:
    """Collect part h at rank h of each node, add in the network, hand out in the node."""
    chunks = m * pieces
    program = ProgramBuilder(
        "all_reduce", "collnet_direct", n, [1 / chunks] * chunks, switches=(IN_NETWORK,)
    )
    for piece in range(pieces):
        for rank in range(n):
            part, first = rank % m * pieces + piece, rank // m * m
            others = [peer for peer in range(first, first + m) if peer != rank]
            for peer in others:
                program.reduce(part, peer, rank, step=piece)
            program.reduce(part, rank, n, step=piece + 1)
            program.copy(part, n, rank, step=piece + 2)
            for peer in others:
                program.copy(part, rank, peer, step=piece + 3)
    return program.build()


def collnet_chain(n: int, m: int, pieces: int) -> Program:
    """Add along a chain to the first rank of each node, then in the network, and back."""
    program = ProgramBuilder(
        "all_reduce", "collnet_chain", n, [1 / pieces] * pieces, switches=(IN_NETWORK,)
    )
    for piece in range(pieces):
        for rank in range(n):
            place = rank % m
            if place == 0:
                program.reduce(piece, rank, n, step=piece + m - 1)
                program.copy(piece, n, rank, step=piece + m)
            else:
                program.reduce(piece, rank, rank - 1, step=piece + m - 1 - place)
                program.copy(piece, rank - 1, rank, step=piece + m + place)
    return program.build()


def nvls_tree(n: int, m: int, pieces: int) -> Program:
    """Sum part h of a node at its rank h by the NVSwitch, then up and down trees of nodes."""
    nodes, cuts = n // m, 2 * pieces
    chunks = m * cuts
    program = ProgramBuilder(
        "all_reduce", "nvls_tree", n, [1 / chunks] * chunks, switches=(IN_NODE,) * nodes
    )
    trees = [parents(nodes, 0), parents(nodes, 0, second=True)]
    for tree, parent in enumerate(trees):
        depth = [_depth(parent, node) for node in range(nodes)]
        top = max(depth)
        for piece in range(pieces):
            parts = [h * cuts + tree * pieces + piece for h in range(m)]
            for node in range(nodes):
                _node_turn(program, node, m, n, parts, piece, top)
                above = parent[node]
                for h in range(m) if above >= 0 else ():
                    here, there = node * m + h, above * m + h
                    up, down = 2 + top - depth[node], 2 + top + depth[above]
                    program.reduce(parts[h], here, there, step=piece + up)
                    program.copy(parts[h], there, here, step=piece + down)
    return program.build()


def _node_turn(
    program: ProgramBuilder, node: int, m: int, n: int, parts: list[int], piece: int, top: int
) -> None:
    """Add up within a node before the trees, and multicast the result within it after them."""
    members, switch = range(node * m, node * m + m), n + node
    for rank in members:
        program.reduce(parts, rank, switch, step=piece)
    for h, rank in enumerate(members):
        program.copy(parts[h], switch, rank, step=piece + 1)
        program.copy(parts[h], rank, switch, step=piece + 2 + 2 * top)
    for rank in members:
        program.copy(parts, switch, rank, step=piece + 3 + 2 * top)


def _depth(parent: list[int], node: int) -> int:
    return 0 if parent[node] < 0 else 1 + _depth(parent, parent[node])
