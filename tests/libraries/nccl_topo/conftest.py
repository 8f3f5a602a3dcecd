"""What the tests of NCCL's topology share: recorded machines, and what NCCL found on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data" / "nccl"


@pytest.fixture(scope="session")
def topology() -> Callable[[str], str]:
    """The topology file of a machine by its name."""
    return lambda name: (DATA / f"{name}.xml").read_text()


@pytest.fixture(scope="session")
def record() -> Callable[[str], dict[str, Any]]:
    """What NCCL found on so many machines ("dgx_h100_2")."""
    return lambda name: json.loads((DATA / f"graphs_{name}.json").read_text())
