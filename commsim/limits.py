"""
How large a run may be: the memory that it may take, by what each operation of it needs; and how
long: the simulated time that its clock can hold.

The number of operations is checked while they are made, so that what is too large is refused
before it fills the machine. Without a stated limit it is nine tenths of the machine's memory, or of
what its control group grants.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from commsim.compiled import can_compile
from commsim.errors import ScenarioError
from commsim.units import GIB, MOST_PICOSECONDS, format_size, format_time

__all__ = [
    "BYTES_PER_CHUNK",
    "BYTES_PER_COPIED_OP",
    "BYTES_PER_LINK",
    "BYTES_PER_MESSAGE",
    "BYTES_PER_NODE_LINK",
    "BYTES_PER_OP",
    "BYTES_PER_PAIR",
    "BYTES_PER_ROUTE",
    "BYTES_PER_SERVICE",
    "BYTES_PER_WRITTEN_OP",
    "COMPILED_FROM",
    "FEWER_MESSAGES",
    "check_size",
    "limited_to",
    "memory_limit",
    "most",
    "op_bytes",
    "run_by_simpy",
    "stated_limit",
    "too_long",
]

# Peak memory of a run over its number of operations (of message services on links, in steps), in
# the engine on SimPy, measured from 100,000 to 400,000 of them: 1,300 to 1,700 bytes; with the
# headline, 1,960 of 1.2 million where every rank differs.
BYTES_PER_OP = 2000
# The same in compiled code (benchmarks/op_memory.py, from 300,000 to 9 million): 810 to 900 where
# operations are written one by one, 370 to 450 where ranks are copies of each other.
BYTES_PER_WRITTEN_OP = 850
BYTES_PER_COPIED_OP = 420
COMPILED_FROM = 200_000
"""Operations: the engine on SimPy takes seconds for so many, as loading numba and its code does."""
BYTES_PER_SERVICE = 1700
BYTES_PER_MESSAGE = 150  # of a program that is alone on its links: its columns
BYTES_PER_LINK = 900  # of a fabric: 440 MiB for 500,000 between groups of a dragonfly
BYTES_PER_NODE_LINK = 300  # of nodes that are alike: 330 MiB for 1.4 million of 16,384 nodes
# An all-to-all of 512 and 1,024 ranks: a message of the program takes 410 bytes while it is made
# and each further chunk of it 150, a route with what its links charge 2,700; a flow of all pairs
# at once 540 each.
BYTES_PER_CHUNK = 200
BYTES_PER_ROUTE = 2700
BYTES_PER_PAIR = 550
FEWER_MESSAGES = "Take fewer ranks, or an algorithm by which each sends to fewer others."
_SHARE = 0.9  # of the machine's memory
_UNKNOWN = 8 * GIB  # taken for a machine that does not say what it has
_CGROUP = Path("/sys/fs/cgroup/memory.max")

_limit: ContextVar[int | None] = ContextVar("limit", default=None)
_compiles: ContextVar[bool] = ContextVar("compiles", default=True)


@contextmanager
def limited_to(size: int | None) -> Iterator[None]:
    """Let runs in the block take `size` bytes of memory; None leaves the limit as it is."""
    if size is None:
        yield
        return
    token = _limit.set(size)
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def run_by_simpy(asked: bool) -> Iterator[None]:
    """Count operations in the block as the engine on SimPy holds them, if that is asked."""
    token = _compiles.set(not asked)
    try:
        yield
    finally:
        _compiles.reset(token)


def stated_limit() -> int | None:
    """Return the bytes that were stated (`limited_to`), None for the machine's own limit."""
    return _limit.get()


def memory_limit() -> int:
    """Return the bytes that a run may take."""
    stated = stated_limit()
    return int(_SHARE * _machine()) if stated is None else stated


def most(each: int) -> int:
    """Return how many things of `each` bytes a run may have."""
    return memory_limit() // each


def check_size(count: int, each: int, what: str, advice: str) -> None:
    """Raise ScenarioError if `count` things of `each` bytes are more than the limit allows.

    `what` says what there is so much of, `advice` how there is less of it.
    """
    if count > most(each):
        raise ScenarioError(
            f"{what} need about {format_size(count * each)} of memory, more than the limit of"
            f" {format_size(memory_limit())}. {advice} Or raise the limit (--limit)."
        )


def op_bytes(count: int, *, copied: bool = False) -> int:
    """Return the bytes that each of `count` operations takes, by the engine that would run them.

    `copied`: they are copies by columns, none is written by itself.
    """
    # numba is looked for only if it matters: that takes as long as a small run.
    few = count < COMPILED_FROM or count <= most(BYTES_PER_OP)
    if few or not _compiles.get() or not can_compile():
        return BYTES_PER_OP
    return BYTES_PER_COPIED_OP if copied else BYTES_PER_WRITTEN_OP


def too_long(what: str, advice: str) -> ScenarioError:
    """Return the error for something that takes more simulated time than the clock can hold.

    `what` says what takes so long, `advice` how it gets shorter.
    """
    return ScenarioError(
        f"{what} takes longer than commsim can hold ({format_time(MOST_PICOSECONDS)}, 53 days)."
        f" {advice}"
    )


def _machine() -> int:
    found = [_UNKNOWN]
    try:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
        granted = _CGROUP.read_text().strip()
        found += [int(granted)] if granted.isdigit() else []
    except (OSError, ValueError, AttributeError):  # no such name, or no such file
        pass
    return min(found)
