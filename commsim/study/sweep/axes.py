"""
What a sweep varies: "PATH=a,b,c", or a range.

    cluster.nodes=1..64x2      cluster.overrides.nic.bandwidth=100Gbps..800Gbpsx2
    workload.training.batch.micro=2..8+2
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import msgspec

from commsim.errors import ScenarioError

__all__ = ["Settings", "SweepAxis", "axes_of", "axis_of", "combinations"]

Settings = tuple[tuple[str, str], ...]
"""(path, value as text) of every axis, as `--set` takes them."""

_MOST_VALUES = 100_000
_RANGE = re.compile(
    r"(?P<first>\d+(?:\.\d+)?)(?P<unit>[A-Za-z/]*?)\.\."
    r"(?P<last>\d+(?:\.\d+)?)(?P<last_unit>[A-Za-z/]*?)"
    r"(?:(?P<kind>[x+])(?P<by>\d+(?:\.\d+)?))?"
)


class SweepAxis(msgspec.Struct, frozen=True):
    """A setting by its path, and the values that it takes, as text."""

    path: str
    values: tuple[str, ...]


def axis_of(text: str) -> SweepAxis:
    """Read "PATH=a,b,c" or "PATH=1..64x2".

    Raises:
        ScenarioError: no "=", no value, or a range that leads nowhere.
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip() or not values.strip():
        raise ScenarioError(
            f"--vary {text}: write a path, '=' and values, like --vary cluster.nodes=1,2,4 or"
            " --vary cluster.nodes=1..64x2."
        )
    return SweepAxis(path.strip(), tuple(_values(values.strip(), text)))


def axes_of(vary: Iterable[str | SweepAxis] | Mapping[str, Any]) -> tuple[SweepAxis, ...]:
    """Return the axes of texts, or of a mapping from paths to lists or texts.

    Raises:
        ScenarioError: as `axis_of`; nothing to vary; a path that is varied twice.
    """
    if isinstance(vary, Mapping):
        axes = [_axis_of_value(path, values) for path, values in vary.items()]
    else:
        axes = [one if isinstance(one, SweepAxis) else axis_of(one) for one in vary]
    if not axes:
        raise ScenarioError("nothing to vary: give --vary PATH=a,b,c, or a section `sweep`.")
    paths = [axis.path for axis in axes]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ScenarioError(f"--vary {twice}: is varied twice. List all its values in one.")
    return tuple(axes)


def combinations(axes: tuple[SweepAxis, ...], *, zipped: bool) -> list[Settings]:
    """Return the settings of every point: all combinations, or the axes side by side.

    Raises:
        ScenarioError: axes of different lengths cannot stand side by side; too many points.
    """
    lengths = [len(axis.values) for axis in axes]
    if zipped and len(set(lengths)) > 1:
        told = ", ".join(f"{axis.path} has {len(axis.values)}" for axis in axes)
        raise ScenarioError(f"--zip needs as many values of each setting: {told}.")
    count = lengths[0] if zipped else prod(lengths)
    if count > _MOST_VALUES:
        raise ScenarioError(f"{count:,} points are more than a sweep takes ({_MOST_VALUES:,}).")
    paths = [axis.path for axis in axes]
    columns = [axis.values for axis in axes]
    rows = zip(*columns, strict=True) if zipped else product(*columns)
    return [tuple(zip(paths, row, strict=True)) for row in rows]


def _axis_of_value(path: str, values: Any) -> SweepAxis:
    if isinstance(values, str):
        return axis_of(f"{path}={values}")
    if not isinstance(values, list | tuple) or not values:
        raise ScenarioError(f"sweep.vary.{path}: give a list of values, or a range like 1..64x2.")
    return SweepAxis(
        path, tuple(value if isinstance(value, str) else _yaml(value) for value in values)
    )


def _yaml(value: Any) -> str:
    """Write a value as YAML reads it back: JSON is YAML."""
    return msgspec.json.encode(value).decode()


def _values(text: str, whole: str) -> Iterator[str]:
    for part in _parts(text):
        found = _RANGE.fullmatch(part)
        if found is None:
            yield part
        else:
            yield from _range(found, whole)


def _parts(text: str) -> Iterator[str]:
    """Split at commas outside of brackets and quotes."""
    part, depth, quote = "", 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0 and not quote:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _range(found: re.Match[str], whole: str) -> Iterator[str]:
    unit = found["last_unit"] or found["unit"]
    if found["unit"] and found["unit"] != unit:
        raise ScenarioError(f"--vary {whole}: {found['unit']} and {unit}: write both ends alike.")
    value, last = float(found["first"]), float(found["last"])
    by, grows = float(found["by"] or 1), found["kind"] == "x"
    if last < value or (by <= 1 if grows else by <= 0) or (grows and value <= 0):
        raise ScenarioError(
            f"--vary {whole}: the range goes nowhere. Write FIRST..LASTxFACTOR with a factor above"
            " 1, or FIRST..LAST+STEP."
        )
    for _ in range(_MOST_VALUES):
        if value > last * (1 + 1e-9):
            return
        yield f"{value:.12g}{unit}"
        value = value * by if grows else value + by
    raise ScenarioError(f"--vary {whole}: more than {_MOST_VALUES:,} values.")
