"""
The room's own data files: GPU tables, presets, defaults. Small YAML, read once each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

__all__ = ["HERE", "read_mapping"]

HERE = Path(__file__).parent

# libyaml is ten times as fast; PyYAML has it wherever it is installed from a wheel.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that one of the room's files holds; tests read them all strictly."""
    data: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    return data
