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

from commsim.errors import ScenarioError
from commsim.units import GIB, MOST_PICOSECONDS, format_size, format_time

__all__ = [
    "BYTES_PER_LINK",
    "BYTES_PER_MESSAGE",
    "BYTES_PER_OP",
    "BYTES_PER_SERVICE",
    "check_size",
    "limited_to",
    "memory_limit",
    "most",
    "too_long",
]

# Peak memory of a run over its number of operations (of message services on links, in steps),
# measured from 100,000 to 400,000 of them: 1,300 to 1,700 bytes; with the headline, 1,960 of
# 1.2 million where every rank differs.
BYTES_PER_OP = 2000
BYTES_PER_SERVICE = 1700
BYTES_PER_MESSAGE = 150  # of a program that is alone on its links: its columns
BYTES_PER_LINK = 900  # of a fabric: 440 MiB for 500,000 between groups of a dragonfly
_SHARE = 0.9  # of the machine's memory
_UNKNOWN = 8 * GIB  # taken for a machine that does not say what it has
_CGROUP = Path("/sys/fs/cgroup/memory.max")

_limit: ContextVar[int | None] = ContextVar("limit", default=None)


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


def memory_limit() -> int:
    """Return the bytes that a run may take."""
    stated = _limit.get()
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
