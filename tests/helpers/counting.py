"""How much work a call does, counted in calls of Python functions: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["python_calls"]


def python_calls(work: Callable[[], Any]) -> int:
    """Run `work` and return how many Python functions (and generator steps) it called."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
