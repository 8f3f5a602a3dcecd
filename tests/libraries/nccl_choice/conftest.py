"""NCCL's own record of eight machines: what it found, chose and predicted (see SOURCE.md)."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commsim.libraries.nccl.record import recorded_communicator
from commsim.libraries.nccl.shapes import Communicator

DATA = Path(__file__).resolve().parents[2] / "data" / "nccl_choice"


@pytest.fixture(scope="session")
def nccl_records() -> dict[str, dict[str, Any]]:
    """The settings and graphs of each case, by name."""
    records: dict[str, dict[str, Any]] = json.loads((DATA / "records.json").read_text())
    return records


@pytest.fixture(scope="session")
def recorded(nccl_records: dict[str, dict[str, Any]]) -> Callable[[str], Communicator]:
    """Make the communicator of a case."""
    return lambda name: recorded_communicator(nccl_records[name], where=name)


@pytest.fixture(scope="session")
def rows() -> Callable[[str], list[dict[str, str]]]:
    """Read the rows of a table of the record."""

    def read(name: str) -> list[dict[str, str]]:
        with (DATA / name).open(newline="") as file:
            return list(csv.DictReader(file))

    return read
