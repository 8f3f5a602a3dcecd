"""What the tests of the training scripts share: the modules of benchmarks/, and published rows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.paths import ROOT, STEPS

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The modules of benchmarks/, importable as they are when run as scripts."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def rows(scripts: Any) -> dict[str, Any]:
    return {row.case_id: row for row in scripts("training_rows").read_rows(STEPS)}
