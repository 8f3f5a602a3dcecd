"""
Logarithmic rounds among any number of ranks: Bruck, dissemination, and PAT.

In round k every rank talks to one at distance 2^k. Bruck et al. 1997 ("Efficient algorithms
for all-to-all communications in multiport message-passing systems") gather or exchange in
ceil(log2 n) rounds; Hensgen, Finkel, Manber 1988 ("Two algorithms for barrier
synchronization") disseminate tokens in as many. PAT (Jeaugey 2025, "PAT: a new algorithm for
all-gather and reduce-scatter operations at scale") sends the farthest first, so that the
largest messages go to near ranks.
"""

from __future__ import annotations

from commsim.collectives.program import Program, ProgramBuilder

__all__ = ["all_gather", "all_to_all", "barrier", "pat_all_gather", "pat_reduce_scatter"]


def _rounds(n: int) -> int:
    return (n - 1).bit_length()


def all_gather(n: int) -> Program:
    """Double what a rank has in every round: its own chunk and those of the ranks after it."""
    program = ProgramBuilder("all_gather", "bruck", n, [1 / n] * n)
    for k in range(_rounds(n)):
        held = min(1 << k, n - (1 << k))
        for i in range(n):
            chunks = [(i + j) % n for j in range(held)]
            program.copy(chunks, i, (i - (1 << k)) % n, step=k, phase=k)
    return program.build()


def all_to_all(n: int) -> Program:
    """Move each chunk by the binary digits of its distance, the smallest first."""
    program = ProgramBuilder("all_to_all", "bruck", n, [1 / n] * (n * n))
    for k in range(_rounds(n)):
        far = [distance for distance in range(1, n) if distance >> k & 1]
        for i in range(n):
            first = [(i - distance % (1 << k)) % n for distance in far]
            chunks = [a * n + (a + d) % n for a, d in zip(first, far, strict=True)]
            program.copy(chunks, i, (i + (1 << k)) % n, step=k, phase=k)
    return program.build()


def barrier(n: int) -> Program:
    """In round k send the rank 2^k ahead all that has arrived."""
    program = ProgramBuilder("barrier", "dissemination", n, [0.0] * n)
    for k in range(_rounds(n)):
        for i in range(n):
            tokens = [(i - j) % n for j in range(1 << k)]
            program.copy(tokens, i, (i + (1 << k)) % n, step=k, phase=k)
    return program.build()


def _hops(n: int) -> list[tuple[int, int, int, list[int]]]:
    """Return (round, rank, next rank, chunks): a binomial tree per chunk, farthest edge first."""
    hops = []
    for k in reversed(range(_rounds(n))):
        offsets = range(0, n - (1 << k), 2 << k)  # distances from the owner that have it by then
        for i in range(n):
            chunks = [(i - offset) % n for offset in offsets]
            hops.append((_rounds(n) - 1 - k, i, (i + (1 << k)) % n, chunks))
    return hops


def pat_all_gather(n: int) -> Program:
    """Each chunk goes down a binomial tree of its own; trees share their messages."""
    program = ProgramBuilder("all_gather", "pat", n, [1 / n] * n)
    for step, rank, peer, chunks in _hops(n):
        program.copy(chunks, rank, peer, step=step, phase=step)
    return program.build()


def pat_reduce_scatter(n: int) -> Program:
    """The all-gather backwards: each chunk comes up its tree and is added on the way."""
    program = ProgramBuilder("reduce_scatter", "pat", n, [1 / n] * n)
    for step, rank, peer, chunks in _hops(n):
        last = _rounds(n) - 1 - step
        program.reduce(chunks, peer, rank, step=last, phase=last)
    return program.build()
