"""
How far a piece of work is: whoever wants to know is given a function that says which share is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Follow", "all_done", "followed", "part_of", "unfollowed"]

Follow = Callable[[Callable[[], float]], None]
"""Takes a function that says which share of the work is done; another thread may call that."""

T = TypeVar("T")


def unfollowed(_: Callable[[], float]) -> None:
    """Nobody wants to know."""


def all_done() -> float:
    """Say that all is done, in place of a function that keeps what did it."""
    return 1.0


def part_of(follow: Follow, at: int, of: int) -> Follow:
    """Return what follows the part `at` of `of` parts that count as much each."""
    return lambda share: follow(lambda: (at + share()) / of)


def followed(items: Sequence[T], follow: Follow) -> Iterator[T]:
    """Yield items; which share of them is done is what `follow` gets to know."""
    done = 0
    follow(lambda: done / max(len(items), 1))
    for item in items:
        yield item
        done += 1
