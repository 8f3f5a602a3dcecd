"""
The room's own data files: GPU tables, presets, defaults. Small YAML, read once each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from commsim.errors import ScenarioError

__all__ = ["HERE", "read_mapping"]

HERE = Path(__file__).parent

# libyaml is ten times as fast; PyYAML has it wherever it is installed from a wheel.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds.

    Raises:
        ScenarioError: the file is missing, unreadable, empty, or not a mapping.
    """
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(data, dict):
        what = "empty" if data is None else f"a {type(data).__name__}"
        raise ScenarioError(f"{path}: {what}; a cluster file is a mapping such as 'preset: ...'.")
    return data
