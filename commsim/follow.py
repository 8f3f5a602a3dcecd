"""
How far a piece of work is: whoever wants to know is given a function that says which share is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Follow", "followed", "unfollowed"]

Follow = Callable[[Callable[[], float]], None]
"""Takes a function that says which share of the work is done; another thread may call that."""

T = TypeVar("T")


def unfollowed(_: Callable[[], float]) -> None:
    """Nobody wants to know."""


def followed(items: Sequence[T], follow: Follow) -> Iterator[T]:
    """Yield items; which share of them is done is what `follow` gets to know."""
    done = 0
    follow(lambda: done / max(len(items), 1))
    for item in items:
        yield item
        done += 1
