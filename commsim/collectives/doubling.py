"""
Recursive halving and doubling: partners at distance n/2, n/4, ... and back.

For n that is no power of two, the ranks past the largest power hand their part to a partner
first and get the result back last.
"""

from __future__ import annotations

from commsim.collectives.program import Program, ProgramBuilder

__all__ = ["all_gather", "all_reduce", "barrier", "broadcast", "reduce", "reduce_scatter"]

NAME = "halving_doubling"


def _core(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _owned(member: int, n: int) -> list[int]:
    """Return the chunks of a core member: its own, and those of the extra rank it serves."""
    core = _core(n)
    return [member, member + core] if member + core < n else [member]


def _block(member: int, span: int, n: int) -> list[int]:
    """Return the chunks of the aligned block of `span` core members that holds `member`."""
    first = member // span * span
    return [chunk for m in range(first, first + span) for chunk in _owned(m, n)]


def _halve(program: ProgramBuilder, n: int, first: int) -> int:
    """Reduce-scatter among the core; return the next step."""
    core, step = _core(n), first
    span = core // 2
    while span:
        for member in range(core):
            partner = member ^ span
            program.reduce(_block(partner, span, n), member, partner, step=step, phase=step)
        span //= 2
        step += 1
    return step


def _double(program: ProgramBuilder, n: int, first: int) -> int:
    """All-gather among the core; return the next step."""
    core, step, span = _core(n), first, 1
    while span < core:
        for member in range(core):
            program.copy(_block(member, span, n), member, member ^ span, step=step, phase=step)
        span *= 2
        step += 1
    return step


def _extras(n: int) -> list[tuple[int, int]]:
    core = _core(n)
    return [(rank, rank - core) for rank in range(core, n)]


def all_reduce(n: int) -> Program:
    """Halve, then double."""
    program = ProgramBuilder("all_reduce", NAME, n, [1 / n] * n)
    for extra, partner in _extras(n):
        program.reduce(range(n), extra, partner, step=0)
    step = _double(program, n, _halve(program, n, 1))
    for extra, partner in _extras(n):
        program.copy(range(n), partner, extra, step=step, phase=step)
    return program.build()


def reduce_scatter(n: int) -> Program:
    """Halve; an extra rank gets its chunk from its partner."""
    program = ProgramBuilder("reduce_scatter", NAME, n, [1 / n] * n)
    for extra, partner in _extras(n):
        program.reduce(range(n), extra, partner, step=0)
    step = _halve(program, n, 1)
    for extra, partner in _extras(n):
        program.copy(extra, partner, extra, step=step, phase=step)
    return program.build()


def all_gather(n: int, *, op: str = "all_gather", share: float | None = None) -> Program:
    """Double; an extra rank hands its chunk in first and gets all of them last."""
    each = 1 / n if share is None else share
    program = ProgramBuilder(op, NAME, n, [each] * n)
    for extra, partner in _extras(n):
        program.copy(extra, extra, partner, step=0)
    step = _double(program, n, 1)
    for extra, partner in _extras(n):
        program.copy(range(n), partner, extra, step=step, phase=step)
    return program.build()


def barrier(n: int) -> Program:
    """Tokens, exchanged like an all-gather."""
    return all_gather(n, op="barrier", share=0.0)


def broadcast(n: int, root: int) -> Program:
    """Scatter from the root by halves, then double."""
    program = ProgramBuilder("broadcast", NAME, n, [1 / n] * n, root=root)
    place, step, span = _at_root(n, root), 0, _core(n) // 2
    while span:
        for member in range(0, _core(n), 2 * span):
            far = member + span
            program.copy(_block(far, span, n), place[member], place[far], step=step, phase=step)
        span //= 2
        step += 1
    span = 1
    while span < _core(n):
        for member in range(_core(n)):
            source, target = place[member], place[member ^ span]
            program.copy(_block(member, span, n), source, target, step=step, phase=step)
        span *= 2
        step += 1
    for extra, partner in _extras(n):
        program.copy(range(n), place[partner], place[extra], step=step, phase=step)
    return program.build()


def reduce(n: int, root: int) -> Program:
    """Halve, then gather to the root by doubling blocks."""
    program = ProgramBuilder("reduce", NAME, n, [1 / n] * n, root=root)
    place = _at_root(n, root)
    for extra, partner in _extras(n):
        program.reduce(range(n), place[extra], place[partner], step=0)
    step, span = 1, _core(n) // 2
    while span:
        for member in range(_core(n)):
            partner = member ^ span
            chunks = _block(partner, span, n)
            program.reduce(chunks, place[member], place[partner], step=step, phase=step)
        span //= 2
        step += 1
    span = 1
    while span < _core(n):
        for member in range(0, _core(n), 2 * span):
            far = member + span
            program.copy(_block(far, span, n), place[far], place[member], step=step, phase=step)
        span *= 2
        step += 1
    return program.build()


def _at_root(n: int, root: int) -> list[int]:
    """Return the ranks renumbered so that the root is core member 0."""
    return [(root + v) % n for v in range(n)]
