"""Waiting for what a page draws: by frames, never by a time that a busy machine may not keep."""

from __future__ import annotations

from typing import Any

__all__ = ["wait_until_drawn"]


def wait_until_drawn(page: Any) -> None:
    """Wait until what was asked before this has been drawn: two frames later it has."""
    page.evaluate("() => new Promise(done => requestAnimationFrame("
                  "() => requestAnimationFrame(() => setTimeout(done))))")  # fmt: skip
