"""
Recursive halving and doubling: partners at distance n/2, n/4, ... and back.

For n that is no power of two, the ranks past the largest power hand their part to a partner
first and get the result back last. `place[v]` is the rank that stands at v; the core are the
places below the power of two. After Thakur, Rabenseifner, Gropp 2005, "Optimization of
collective communication operations in MPICH".
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


def _halve(program: ProgramBuilder, place: list[int], *, first: int) -> int:
    """Reduce-scatter among the core; return the next step."""
    n, step, span = len(place), first, _core(len(place)) // 2
    while span:
        for member in range(_core(n)):
            partner = member ^ span
            chunks = _block(partner, span, n)
            program.reduce(chunks, place[member], place[partner], step=step, phase=step)
        span //= 2
        step += 1
    return step


def _double(program: ProgramBuilder, place: list[int], *, first: int) -> int:
    """All-gather among the core; return the next step."""
    n, step, span = len(place), first, 1
    while span < _core(n):
        for member in range(_core(n)):
            source, target = place[member], place[member ^ span]
            program.copy(_block(member, span, n), source, target, step=step, phase=step)
        span *= 2
        step += 1
    return step


def _scatter(program: ProgramBuilder, place: list[int], *, first: int) -> int:
    """Hand out the chunks from core member 0 by halves; return the next step."""
    n, step, span = len(place), first, _core(len(place)) // 2
    while span:
        for member in range(0, _core(n), 2 * span):
            far = member + span
            program.copy(_block(far, span, n), place[member], place[far], step=step, phase=step)
        span //= 2
        step += 1
    return step


def _gather(program: ProgramBuilder, place: list[int], *, first: int) -> int:
    """Collect the chunks at core member 0 by doubling blocks; return the next step."""
    n, step, span = len(place), first, 1
    while span < _core(n):
        for member in range(0, _core(n), 2 * span):
            far = member + span
            program.copy(_block(far, span, n), place[far], place[member], step=step, phase=step)
        span *= 2
        step += 1
    return step


def _fold_in(program: ProgramBuilder, place: list[int]) -> None:
    """Let every extra rank add all it has to its partner's, in step 0."""
    n = len(place)
    for extra, partner in _extras(n):
        program.reduce(range(n), place[extra], place[partner], step=0)


def _fold_out(program: ProgramBuilder, place: list[int], *, step: int) -> None:
    """Let every extra rank get everything from its partner."""
    n = len(place)
    for extra, partner in _extras(n):
        program.copy(range(n), place[partner], place[extra], step=step, phase=step)


def _from_root(n: int, root: int) -> list[int]:
    """Return the ranks renumbered so that the root is core member 0."""
    return [(root + v) % n for v in range(n)]


def _extras(n: int) -> list[tuple[int, int]]:
    core = _core(n)
    return [(rank, rank - core) for rank in range(core, n)]


def all_reduce(n: int) -> Program:
    """Halve, then double."""
    program = ProgramBuilder("all_reduce", NAME, n, [1 / n] * n)
    place = list(range(n))
    _fold_in(program, place)
    step = _halve(program, place, first=1)
    step = _double(program, place, first=step)
    _fold_out(program, place, step=step)
    return program.build()


def reduce_scatter(n: int) -> Program:
    """Halve; an extra rank gets its chunk from its partner."""
    program = ProgramBuilder("reduce_scatter", NAME, n, [1 / n] * n)
    place = list(range(n))
    _fold_in(program, place)
    step = _halve(program, place, first=1)
    for extra, partner in _extras(n):
        program.copy(extra, partner, extra, step=step, phase=step)
    return program.build()


def all_gather(n: int, *, op: str = "all_gather", share: float | None = None) -> Program:
    """Double; an extra rank hands its chunk in first and gets all of them last."""
    each = 1 / n if share is None else share
    program = ProgramBuilder(op, NAME, n, [each] * n)
    place = list(range(n))
    for extra, partner in _extras(n):
        program.copy(extra, extra, partner, step=0)
    step = _double(program, place, first=1)
    _fold_out(program, place, step=step)
    return program.build()


def barrier(n: int) -> Program:
    """Exchange tokens as an all-gather does chunks."""
    return all_gather(n, op="barrier", share=0.0)


def broadcast(n: int, root: int) -> Program:
    """Scatter from the root by halves, then double."""
    program = ProgramBuilder("broadcast", NAME, n, [1 / n] * n, root=root)
    place = _from_root(n, root)
    step = _scatter(program, place, first=0)
    step = _double(program, place, first=step)
    _fold_out(program, place, step=step)
    return program.build()


def reduce(n: int, root: int) -> Program:
    """Halve, then gather at the root by doubling blocks."""
    program = ProgramBuilder("reduce", NAME, n, [1 / n] * n, root=root)
    place = _from_root(n, root)
    _fold_in(program, place)
    step = _halve(program, place, first=1)
    _gather(program, place, first=step)
    return program.build()
