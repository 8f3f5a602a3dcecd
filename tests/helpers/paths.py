"""Where the checkout and its tests are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ROOT", "STEPS", "TESTS"]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
STEPS = TESTS / "data" / "training" / "steps.csv"
"""Published steps of training, each with its source."""
