"""
The catalogue of node types: one cluster file per preset, each value with its source.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from commsim.cluster.files import HERE, read_mapping, suggestion
from commsim.errors import ScenarioError

__all__ = ["preset_data", "preset_names", "preset_text"]

_FOLDER = HERE / "presets"


@cache
def preset_names() -> tuple[str, ...]:
    """Return the names of all cluster presets, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def preset_text(name: str) -> str:
    """Return the file of a preset as it stands: a cluster file to start from.

    Raises:
        ScenarioError: no such preset; suggests the nearest.
    """
    return (_FOLDER / f"{_known(name)}.yaml").read_text(encoding="utf-8")


def preset_data(name: str) -> dict[str, Any]:
    """Return a preset's file as plain data. Raises ScenarioError for an unknown name."""
    return read_mapping(_FOLDER / f"{_known(name)}.yaml")


def _known(name: str) -> str:
    """Return the name as the folder spells it; upper and lower case do not matter."""
    if name.lower() in preset_names():
        return name.lower()
    raise ScenarioError(
        f"unknown preset {name!r}.{suggestion(name, preset_names())}"
        f" `commsim presets clusters` lists all {len(preset_names())}."
    )
