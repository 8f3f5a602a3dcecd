"""
Gloo's algorithms as chunk programs, and what each waits for before it sends.

Sources: github pytorch/gloo, gloo/{broadcast,reduce,alltoall,alltoallv,gather,scatter,barrier}.cc,
allreduce.cc (bcube) and allreduce_halving_doubling.h. Members are numbered as in the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.collectives import Program, ProgramBuilder, direct_all_to_all, direct_all_to_all_v
from commsim.libraries.gloo import rings

__all__ = [
    "all_to_all", "barrier", "bcube_all_reduce", "broadcast", "gather", "halving_doubling",
    "message", "reduce", "scatter",
]  # fmt: skip

Splits = Sequence[Sequence[int]]


def broadcast(n: int, root: int) -> Program:
    """A binomial tree from the root: in round i those that have it send 2^i places on."""
    build = ProgramBuilder("broadcast", "binomial", n, [1.0], root=root)
    for i in range((n - 1).bit_length()):
        for virtual in range(1 << i):
            peer = virtual + (1 << i)
            if peer < n:
                build.copy(0, (virtual + root) % n, (peer + root) % n, step=i)
    return build.build()


def reduce(n: int, root: int, total: int, element: int) -> Program:
    """A ring reduce-scatter, then every member sends its chunk to the root."""
    ring = rings.reduce_scatter(n, total, element)
    build = ProgramBuilder("reduce", "ring", n, rings.shares(ring), root=root)
    rings.add_to(build, ring)
    step = ring.phases[0].rounds + 1
    per_member = len(ring.length) // n
    for member in range(n):
        own = range(member * per_member, (member + 1) * per_member)
        chunks = [chunk for chunk in own if ring.length[chunk] > 0]
        if member != root and chunks:
            build.copy(chunks, member, root, step=step, phase=1)
    return build.build()


def all_to_all(n: int, splits: Splits | None) -> Program:
    """Every pair at once: member i sends to i + 1, i + 2, ..."""
    return direct_all_to_all(n) if splits is None else direct_all_to_all_v(n, splits)


def message() -> Program:
    """One message from member 0 to member 1."""
    build = ProgramBuilder("broadcast", "send_recv", 2, [1.0], root=0)
    build.copy(0, 0, 1, step=0)
    return build.build()


def gather(n: int, root: int) -> Program:
    """Every member sends to the root, all at once."""
    build = ProgramBuilder("gather", "direct", n, [1 / n] * n, root=root)
    for member in range(n):
        if member != root:
            build.copy(member, member, root, step=0)
    return build.build()


def scatter(n: int, root: int) -> Program:
    """The root sends to every member, all at once."""
    build = ProgramBuilder("scatter", "direct", n, [1 / n] * n, root=root)
    for member in range(n):
        if member != root:
            build.copy(member, root, member, step=0)
    return build.build()


def barrier(n: int) -> Program:
    """Dissemination: in round i every member tells the one 2^i places on what it has heard."""
    build = ProgramBuilder("barrier", "dissemination", n, [0.0] * n)
    for i in range((n - 1).bit_length()):
        for member in range(n):
            heard = [(member - back) % n for back in range(1 << i)]
            build.copy(heard, member, (member + (1 << i)) % n, step=i)
    return build.build()


def bcube_all_reduce(n: int) -> Program:
    """Reduce-scatter within groups of two (one of the odd factor that is left), and back."""
    build = ProgramBuilder("all_reduce", "bcube", n, [1 / n] * n)
    sizes = _group_sizes(n)
    step = 0
    for level in range(len(sizes)):
        for member, peer, _, theirs in _exchanges(n, sizes, level):
            build.reduce(theirs, member, peer, step=step, phase=step)
        step += 1
    for level in reversed(range(len(sizes))):
        for member, peer, mine, _ in _exchanges(n, sizes, level):
            build.copy(mine, member, peer, step=step, phase=step)
        step += 1
    return build.build()


def _group_sizes(n: int) -> list[int]:
    """Return the factors 2 of n, then what is left of it."""
    sizes = []
    while n % 2 == 0:
        sizes.append(2)
        n //= 2
    return [*sizes, n] if n > 1 else sizes


def _exchanges(n: int, sizes: list[int], level: int) -> list[tuple[int, int, list[int], list[int]]]:
    """Return (member, peer, the member's chunks, the peer's) of one level's groups."""
    distance = 1
    for size in sizes[:level]:
        distance *= size
    found = []
    for member in range(n):
        place = member // distance % sizes[level]
        for other in range(sizes[level]):
            if other != place:
                peer = member + (other - place) * distance
                mine, theirs = _held(member, n, sizes, level), _held(peer, n, sizes, level)
                found.append((member, peer, mine, theirs))
    return found


def _held(member: int, n: int, sizes: list[int], level: int) -> list[int]:
    """Return the chunks that a member is responsible for once `level` is done."""
    first, length, rest = 0, n, member
    for size in sizes[: level + 1]:
        length //= size
        first += rest % size * length
        rest //= size
    return list(range(first, first + length))


def halving_doubling(n: int) -> Program:
    """The class AllreduceHalvingDoubling: binary blocks, largest first, one per bit of n.

    Each block halves by itself; from the smallest block on, each adds its result to the next
    larger one's; the total comes back the same way, and each block doubles.
    """
    blocks = _blocks(n)
    largest = blocks[0][1]
    build = ProgramBuilder("all_reduce", "halving_doubling", n, [1 / largest] * largest)
    halving = largest.bit_length() - 1
    for first, size in blocks:
        for k in range(size.bit_length() - 1):
            for rank in range(size):
                theirs = _range(rank ^ (1 << k), k + 1, largest)
                build.reduce(theirs, first + rank, first + (rank ^ (1 << k)), step=k)
    last = _between_blocks(build, blocks, halving) + halving - 1
    for first, size in blocks:
        for k in reversed(range(size.bit_length() - 1)):
            for rank in range(size):
                mine = _range(rank, k + 1, largest)
                build.copy(mine, first + rank, first + (rank ^ (1 << k)), step=last - k)
    return build.build()


def _between_blocks(build: ProgramBuilder, blocks: list[tuple[int, int]], step: int) -> int:
    """Add results up to the largest block and hand the total back; return the next step."""
    largest = blocks[0][1]
    pairs = list(zip(blocks[1:], blocks, strict=False))  # (smaller, larger), largest first
    for smaller, larger in reversed(pairs):
        for source, target, chunks in _shared(smaller, larger, largest):
            build.reduce(chunks, source, target, step=step)
        step += 1
    for smaller, larger in pairs:
        for source, target, chunks in _shared(smaller, larger, largest):
            build.copy(chunks, target, source, step=step)
        step += 1
    return step


def _shared(
    smaller: tuple[int, int], larger: tuple[int, int], largest: int
) -> list[tuple[int, int, list[int]]]:
    """Return (rank of the smaller block, rank of the larger, the chunks that both hold)."""
    found = []
    for a in range(smaller[1]):
        mine = _range(a, smaller[1].bit_length() - 1, largest)
        for b in range(larger[1]):
            theirs = _range(b, larger[1].bit_length() - 1, largest)
            if theirs[0] in mine:
                found.append((smaller[0] + a, larger[0] + b, theirs))
    return found


def _blocks(n: int) -> list[tuple[int, int]]:
    """Return (first rank, size) of the blocks, largest first."""
    blocks, first = [], 0
    for bit in reversed(range(n.bit_length())):
        if n >> bit & 1:
            blocks.append((first, 1 << bit))
            first += 1 << bit
    return blocks


def _range(rank: int, steps: int, chunks: int) -> list[int]:
    """Return the chunks that a rank of a block holds after `steps` halvings by its low bits."""
    length, first = chunks, 0
    for k in range(steps):
        length //= 2
        first += (rank >> k & 1) * length
    return list(range(first, first + length))
