"""
What a sweep varies: "PATH=a,b,c", or a range.

    cluster.nodes=1..64x2      cluster.overrides.nic.bandwidth=100Gbps..800Gbpsx2
    workload.training.batch.micro=2..8+2
    cluster.nodes=1,2,4; workload.training.parallel.dp=8,16,32     side by side
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, product
from math import prod
from typing import Any

import msgspec
from msgspec.structs import replace

from commsim.errors import ScenarioError

__all__ = ["Settings", "SweepAxis", "axes_of", "axis_of", "combinations", "range_meant"]

Settings = tuple[tuple[str, str], ...]
"""(path, value as text) of every axis, as `--set` takes them."""

_MOST_VALUES = 100_000
_RANGE = re.compile(
    r"(?P<first>\d+(?:\.\d+)?)(?P<unit>[A-Za-z/]*?)\.\."
    r"(?P<last>\d+(?:\.\d+)?)(?P<last_unit>[A-Za-z/]*?)"
    r"(?:(?P<kind>[x+])(?P<by>\d+(?:\.\d+)?))?"
)


_LIKE_RANGE = re.compile(
    r"(\d+(?:\.\d+)?[A-Za-z/]*)\s*(?:-|:|\.{2,}|to)\s*(\d+(?:\.\d+)?[A-Za-z/]*)?.*"
)


class SweepAxis(msgspec.Struct, frozen=True):
    """A setting by its path, and the values that it takes, as text.

    `beside` is the path of the setting whose values these go with, one by one; "" for none.
    """

    path: str
    values: tuple[str, ...]
    beside: str = ""


def axis_of(text: str, *, option: str = "--vary") -> SweepAxis:
    """Read "PATH=a,b,c" or "PATH=1..64x2"; `option` is where it was given, for errors.

    Raises:
        ScenarioError: no "=", no value, or a range that leads nowhere.
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip() or not values.strip():
        raise ScenarioError(
            f"{option} {text}: write a path, '=' and values, like {option} cluster.nodes=1,2,4 or"
            f" {option} cluster.nodes=1..64x2."
        )
    found = tuple(_values(values.strip(), f"{option} {text}"))
    if "" in found:
        raise ScenarioError(f"{option} {text}: a value is empty. Write one comma between values.")
    return SweepAxis(path.strip(), found)


def range_meant(value: str) -> str:
    """Return how to write the range that a value looks like ("1-4", "1:64:2"), "" if it does not.

    It may be right as it stands, a name; so this is for who was refused it.
    """
    found = _LIKE_RANGE.fullmatch(value)
    if found is None:
        return ""
    ends = f"{found[1]}..{found[2] or 'LAST'}"
    return f" A range is written {ends}, {ends}xFACTOR or {ends}+STEP."


def axes_of(
    vary: Iterable[str | SweepAxis] | Mapping[str, Any],
    zipped: bool | Sequence[Sequence[str]] = False,
) -> tuple[SweepAxis, ...]:
    """Return the axes of texts, or of a mapping from paths to lists or texts.

    Settings in one text, with ";" between, go side by side; `zipped` takes all so, or lists the
    paths of those that do.

    Raises:
        ScenarioError: as `axis_of`; nothing to vary; a path that is varied twice; settings side by
            side that have different numbers of values.
    """
    if isinstance(vary, Mapping):
        axes = [_axis_of_value(path, values) for path, values in vary.items()]
    else:
        axes = [axis for one in vary for axis in _axes_of_text(one)]
    if not axes:
        raise ScenarioError("nothing to vary: give --vary PATH=a,b,c, or a section `sweep`.")
    paths = [axis.path for axis in axes]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ScenarioError(f"--vary {twice}: is varied twice. List all its values in one.")
    groups = [paths] if zipped is True else zipped or []
    return _beside_each_other(axes, groups)


def _axes_of_text(text: str | SweepAxis) -> list[SweepAxis]:
    if isinstance(text, SweepAxis):
        return [text]
    first, *others = [axis_of(part) for part in _parts(text, ";") if part] or [axis_of(text)]
    return [first, *(replace(axis, beside=first.path) for axis in others)]


def _beside_each_other(
    axes: Sequence[SweepAxis], groups: Sequence[Sequence[str]]
) -> tuple[SweepAxis, ...]:
    """Return the axes with those of a group beside its first."""
    paths = [axis.path for axis in axes]
    first = {}
    for group in groups:
        for path in group:
            if path not in paths or path in first:
                why = "twice" if path in first else "but is not varied"
                raise ScenarioError(f"sweep.zip: {path} is listed {why}.")
            first[path] = group[0]
    found = tuple(
        axis if first.get(axis.path, axis.path) == axis.path
        else replace(axis, beside=first[axis.path])
        for axis in axes
    )  # fmt: skip
    length = {axis.path: len(axis.values) for axis in found}
    for axis in found:
        if axis.beside and length[axis.path] != length[axis.beside]:
            raise ScenarioError(
                "settings side by side need as many values of each:"
                f" {axis.beside} has {length[axis.beside]}, {axis.path} has {length[axis.path]}."
            )
    return found


def combinations(axes: tuple[SweepAxis, ...]) -> list[Settings]:
    """Return the settings of every point: all combinations, of what is side by side as one.

    Raises:
        ScenarioError: too many points.
    """
    leaders = [axis for axis in axes if not axis.beside]
    points = prod(len(axis.values) for axis in leaders)
    if points > _MOST_VALUES:
        raise ScenarioError(f"{points:,} points are more than a sweep takes ({_MOST_VALUES:,}).")
    found = []
    for places in product(*(range(len(axis.values)) for axis in leaders)):
        at = dict(zip((axis.path for axis in leaders), places, strict=True))
        found.append(tuple((one.path, one.values[at[one.beside or one.path]]) for one in axes))
    return found


def _axis_of_value(path: str, values: Any) -> SweepAxis:
    if isinstance(values, str):
        return axis_of(f"{path}={values}")
    if not isinstance(values, list | tuple) or not values:
        raise ScenarioError(f"sweep.vary.{path}: give a list of values, or a range like 1..64x2.")
    return SweepAxis(
        path, tuple(value if isinstance(value, str) else _yaml(value, path) for value in values)
    )


def _yaml(value: Any, path: str) -> str:
    """Write a value as YAML reads it back: JSON is YAML."""
    try:
        return msgspec.json.encode(value, enc_hook=_python_number).decode()
    except (TypeError, ValueError, RecursionError):
        raise ScenarioError(
            f"sweep.vary.{path}: a value of type {type(value).__name__} is none of a scenario."
            " Give numbers, text, lists or mappings."
        ) from None


def _python_number(value: Any) -> Any:
    """Return a number of numpy as Python's. Raises TypeError for what is none."""
    if getattr(value, "ndim", None) != 0:
        raise TypeError
    return value.item()


def _values(text: str, whole: str) -> Iterator[str]:
    for part in _parts(text, ","):
        found = _RANGE.fullmatch(part)
        if found is None:
            yield part
        else:
            yield from _range(found, whole)


def _parts(text: str, separator: str) -> Iterator[str]:
    """Split at separators outside of brackets and quotes."""
    part, depth, quote = "", 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == separator and depth == 0 and not quote:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _range(found: re.Match[str], whole: str) -> Iterator[str]:
    unit = found["last_unit"] or found["unit"]
    if found["unit"] and found["unit"] != unit:
        raise ScenarioError(f"{whole}: {found['unit']} and {unit}: write both ends alike.")
    value, last = float(found["first"]), float(found["last"])
    by, grows = float(found["by"] or 1), found["kind"] == "x"
    if last < value or (by <= 1 if grows else by <= 0) or (grows and value <= 0):
        raise ScenarioError(
            f"{whole}: the range goes nowhere. Write FIRST..LASTxFACTOR with a factor above"
            " 1, or FIRST..LAST+STEP."
        )
    for given in count():
        if value > last * (1 + 1e-9):
            return
        if given == _MOST_VALUES:
            raise ScenarioError(f"{whole}: more than {_MOST_VALUES:,} values.")
        yield f"{value:.12g}{unit}"
        value = value * by if grows else value + by
