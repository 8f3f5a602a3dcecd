"""
The catalogue of node types: one cluster file per preset, each value with its source.
"""

from __future__ import annotations

from functools import cache

from commsim.cluster.files import HERE, read_mapping
from commsim.cluster.section import ClusterSection
from commsim.errors import ScenarioError, did_you_mean
from commsim.sections import decode

__all__ = ["preset_names", "preset_section", "preset_text"]

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


@cache
def preset_section(name: str) -> ClusterSection:
    """Return a preset as a cluster section. Raises ScenarioError for an unknown name."""
    path = _FOLDER / f"{_known(name)}.yaml"
    return decode(read_mapping(path), ClusterSection, path.name)


def _known(name: str) -> str:
    if name in preset_names():
        return name
    raise ScenarioError(
        f"unknown preset {name!r}.{did_you_mean(name, preset_names())}"
        f" Known: {', '.join(preset_names())}."
    )
