"""
Gloo's rings as schedules: who sends which segment in which iteration.

n  members       S  bytes of the op       m  bytes of a segment       K  segments of one member

A schedule becomes a chunk program (small rings, the checker, `network: steps`) or is run by a
recurrence (`ring_time`). Sources: gloo/allreduce.cc, allgather.cc, reduce.cc and
allreduce_ring_chunked.h of github pytorch/gloo, read at 0fdde35, 19f1d3a, 081799c, 85f7353.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from commsim.arrays import Bools, Floats, Ints
from commsim.collectives import Program, ProgramBuilder
from commsim.limits import BYTES_PER_MESSAGE, check_size
from commsim.units import format_size

__all__ = [
    "RingPhase", "RingSchedule", "Segments", "all_gather", "all_reduce", "chunked_all_reduce",
    "program_of", "reduce_scatter", "segments",
]  # fmt: skip


MAX_SEGMENT = 1 << 20  # AllreduceOptions::kMaxSegmentSize
_LEAST_CHUNK = 256  # elements, of the class ring_chunked


class Segments(msgspec.Struct, frozen=True):
    """How a buffer of `total` bytes is cut: `per_member` segments of `size` bytes each."""

    total: int
    size: int
    per_member: int

    def lengths(self, n: int) -> Floats:
        """Return the bytes of each of the n * per_member segments; the last may be empty."""
        begin = np.arange(n * self.per_member, dtype=np.int64) * self.size
        return np.clip(self.total - begin, 0, self.size).astype(np.float64)


class RingPhase(msgspec.Struct, frozen=True):
    """`rounds` iterations from step `first` on: in round i, member r sends chunk `index(i)[r]`."""

    first: int
    rounds: int
    reduces: bool
    index: Callable[[int], Ints]


class RingSchedule(msgspec.Struct, frozen=True, eq=False):
    """A ring of `n` members that send to the one `shift` places on.

    `length` has the bytes of each chunk; a chunk without any is not sent unless `sends_empty`.
    """

    op: str
    algorithm: str
    n: int
    shift: int
    length: Floats
    phases: tuple[RingPhase, ...]
    sends_empty: bool = False

    def sent(self, chunk: Ints) -> Bools:
        """Return whether a message is sent for each of some chunks."""
        return (self.length[chunk] > 0) | self.sends_empty

    def sent_bytes(self) -> Floats:
        """Return the bytes that each member sends, shape (n,)."""
        total = np.zeros(self.n)
        for phase in self.phases:
            for i in range(phase.rounds):
                total += self.length[phase.index(i)]
        return total


def segments(total: int, n: int, element: int) -> Segments:
    """Return how gloo::allreduce cuts a buffer: at least two segments per member, 1 MiB at most.

    Raises:
        ScenarioError: more segments than the limit of memory allows.
    """
    most = element * max(1, MAX_SEGMENT // element)
    count = _round_up(max(-(-total // most), 2 * n), n)
    _check_count(count, n, total)
    return Segments(total, _round_up(-(-total // count), element), count // n)


def reduce_segments(total: int, n: int, element: int) -> Segments:
    """Return how gloo::reduce cuts a buffer. Raises as `segments`."""
    most = element * max(1, MAX_SEGMENT // element)
    size = _round_up(max(min(-(-total // (2 * n)), most), 1), element)
    count = _round_up(max(-(-total // size), 2 * n), n)
    _check_count(count, n, total)
    return Segments(total, size, count // n)


def _check_count(count: int, n: int, total: int) -> None:
    """Refuse more segments than can be held, each of which goes to all members one by one."""
    told = f"{format_size(total)} by Gloo's ring: {count:,} segments over {n} members"
    check_size(count * n, BYTES_PER_MESSAGE, told, "Give fewer bytes.")


def all_reduce(n: int, total: int, element: int) -> RingSchedule:
    """Reduce-scatter, then all-gather, segment by segment, towards the member before.

    The second loop begins when the first has waited for all it had in flight: one step is idle.
    """
    cut = segments(total, n, element)
    k, count = cut.per_member, n * cut.per_member
    own = np.arange(n) * k
    rounds = count - k
    scatter = RingPhase(0, rounds, True, lambda i: (own + k + i) % count)
    gather = RingPhase(rounds + 1, rounds, False, lambda i: (own + i) % count)
    return RingSchedule("all_reduce", "ring", n, -1, cut.lengths(n), (scatter, gather))


def reduce_scatter(n: int, total: int, element: int) -> RingSchedule:
    """The first half of gloo::reduce: it forwards two segments less than there are in all.

    With more than two segments per member some finished ones go one member too far; the gather
    that follows overwrites what they spoil.
    """
    cut = reduce_segments(total, n, element)
    k, count = cut.per_member, n * cut.per_member
    own = np.arange(n) * k
    phase = RingPhase(0, count - 2, True, lambda i: (own + k + i) % count)
    return RingSchedule("reduce", "ring", n, -1, cut.lengths(n), (phase,))


def all_gather(n: int, total: int) -> RingSchedule:
    """Each contribution in two halves, two in flight, towards the next member."""
    each = total // n
    length = np.tile([float(each // 2), float(each - each // 2)], n)
    member = np.arange(n)
    phase = RingPhase(0, 2 * (n - 1), False, lambda i: 2 * ((member - i // 2) % n) + i % 2)
    return RingSchedule("all_gather", "ring", n, 1, length, (phase,), sends_empty=True)


def chunked_all_reduce(n: int, total: int, element: int) -> RingSchedule:
    """The class AllreduceRingChunked: 2n chunks in pairs, of 256 elements at least."""
    chunks = 2 * n
    elements = -(-total // element)
    size = max(_LEAST_CHUNK, -(-elements // chunks)) * element
    length = np.clip(total - np.arange(chunks) * size, 0, size).astype(np.float64)
    member = 2 * np.arange(n)

    def index(i: int) -> Ints:
        return (member - (i & ~1) + (i & 1)) % chunks

    rounds = chunks - 2
    phases = (
        RingPhase(0, rounds, True, index),
        RingPhase(rounds, rounds, False, lambda i: index(i + rounds)),
    )
    return RingSchedule("all_reduce", "ring_chunked", n, 1, length, phases, sends_empty=True)


def program_of(ring: RingSchedule) -> Program:
    """Return the chunk program of a ring that is a whole op."""
    build = ProgramBuilder(ring.op, ring.algorithm, ring.n, shares(ring))
    add_to(build, ring)
    return build.build()


def shares(ring: RingSchedule) -> Floats:
    """Return the share of S that each chunk holds; chunks that are never sent are left out."""
    kept = ring.length if ring.sends_empty else ring.length[ring.length > 0]
    total = float(ring.length.sum())
    return kept / total if total else np.full(len(kept), 1 / max(len(kept), 1))


def add_to(build: ProgramBuilder, ring: RingSchedule) -> None:
    """Add the sends of a ring to a program."""
    for phase in ring.phases:
        add = build.reduce if phase.reduces else build.copy
        for i in range(phase.rounds):
            chunks = phase.index(i)
            for member in np.flatnonzero(ring.sent(chunks)).tolist():
                target = (member + ring.shift) % ring.n
                add(int(chunks[member]), member, target, step=phase.first + i)


def _round_up(value: int, to: int) -> int:
    return -(-value // to) * to
