"""Values that may be missing, where a test needs one to be there."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["present"]

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that is not None; None fails the test."""
    assert value is not None
    return value
