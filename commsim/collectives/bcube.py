"""
BCube: ranks as numbers with several digits, one exchange per digit (Gloo's allreduce_bcube).

n is cut into factors of 2 and what odd rest remains. In round k the ranks that differ in digit
k only form a group, and each hands every other the part that the other's digit stands for. For
powers of two this is recursive halving and doubling; a prime n is one direct exchange.
"""

from __future__ import annotations

from commsim.collectives.program import Program, ProgramBuilder

__all__ = ["all_gather", "all_reduce", "reduce_scatter"]

NAME = "bcube"


def _strides(n: int) -> list[tuple[int, int]]:
    """Return (digit's stride, its base) from the most significant digit on."""
    strides, left = [], n
    while left > 1:
        base = 2 if left % 2 == 0 else left
        left //= base
        strides.append((left, base))
    return strides


def _exchanges(n: int) -> list[list[tuple[int, int, range]]]:
    """Return per round (rank, peer, the chunks that the peer stands for)."""
    rounds = []
    for stride, base in _strides(n):
        pairs = []
        for turn in range(1, base):
            for rank in range(n):
                digit = rank // stride % base
                peer = rank + ((digit + turn) % base - digit) * stride
                first = peer // stride * stride
                pairs.append((rank, peer, range(first, first + stride)))
        rounds.append(pairs)
    return rounds


def _scatter(program: ProgramBuilder, n: int) -> int:
    """Reduce towards the owners; return the next step."""
    for step, pairs in enumerate(_exchanges(n)):
        for rank, peer, chunks in pairs:
            program.reduce(chunks, rank, peer, step=step, phase=step)
    return len(_exchanges(n))


def _gather(program: ProgramBuilder, n: int, *, first: int) -> None:
    """Hand out what the owners hold, the rounds backwards."""
    for step, pairs in enumerate(reversed(_exchanges(n)), start=first):
        for rank, peer, chunks in pairs:
            program.copy(chunks, peer, rank, step=step, phase=step)


def all_reduce(n: int) -> Program:
    """Reduce-scatter digit by digit, then all-gather in the opposite order."""
    program = ProgramBuilder("all_reduce", NAME, n, [1 / n] * n)
    _gather(program, n, first=_scatter(program, n))
    return program.build()


def reduce_scatter(n: int) -> Program:
    """The first half of the all-reduce."""
    program = ProgramBuilder("reduce_scatter", NAME, n, [1 / n] * n)
    _scatter(program, n)
    return program.build()


def all_gather(n: int) -> Program:
    """The second half of the all-reduce."""
    program = ProgramBuilder("all_gather", NAME, n, [1 / n] * n)
    _gather(program, n, first=0)
    return program.build()
