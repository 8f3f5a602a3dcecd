"""The model presets: shapes from `presets/models.yaml`, each with its sources."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from commsim.errors import ScenarioError, did_you_mean
from commsim.models.shape import ModelShape
from commsim.sections import Section, decode
from commsim.yaml_file import read_own_yaml

__all__ = ["ModelPreset", "Published", "model_names", "model_preset", "model_presets", "model_text"]

_FILE = Path(__file__).parent / "presets" / "models.yaml"


class Published(Section, frozen=True, kw_only=True):
    """A printed parameter count: exact, rounded to `unit`, or only the model's name (nominal)."""

    parameters: int
    kind: str
    unit: int
    source: str


class ModelPreset(Section, frozen=True, kw_only=True):
    """A shape that people know by name, and where its figures come from."""

    shape: ModelShape
    published: Published
    active: Published | None = None
    sources: tuple[str, ...]
    note: str = ""


def model_names() -> tuple[str, ...]:
    """Return the names of all presets, in the order of the file."""
    return tuple(_presets())


def model_presets() -> dict[str, ModelPreset]:
    """Return every model preset by name: its `shape` and its `published` parameter count."""
    return dict(_presets())


def model_preset(name: str, *, where: str = "model.preset") -> ModelPreset:
    """Return the preset called `name`.

    Raises:
        ScenarioError: no such preset; names the nearest one.
    """
    if name not in _presets():
        raise ScenarioError(
            f"{where}: no model preset {name!r}.{did_you_mean(name, _presets())}"
            " `commsim presets models` lists them."
        )
    return _presets()[name]


def model_text(name: str) -> str:
    """Return the entry of a preset as its file has it, with its sources."""
    lines = _text().splitlines(keepends=True)
    start = lines.index(f"{name}:\n")
    rest = lines[start + 1 :]
    length = next((at for at, line in enumerate(rest) if line[0] not in " \n"), len(rest))
    return "".join([lines[start], *rest[:length]]).rstrip() + "\n"


def _text() -> str:
    return _FILE.read_text(encoding="utf-8")


@cache
def _presets() -> dict[str, ModelPreset]:
    return decode(read_own_yaml(_FILE), dict[str, ModelPreset], _FILE.name)
