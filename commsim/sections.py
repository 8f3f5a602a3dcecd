"""
Typed settings: turn what a user wrote into frozen structs, strictly, and say what is wrong.

Each room declares its part of a scenario as a `Section`; `decode` fills it from plain data
(dicts, lists, text, numbers). An unknown field, a missing one, a wrong type, a quantity
without its unit and a NaN are ScenarioErrors that carry the path of the field as written.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from commsim.errors import ScenarioError, UnitError
from commsim.units import (
    Bandwidth,
    Duration,
    Size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)

__all__ = ["DecodesItself", "Durations", "Section", "decode"]

T = TypeVar("T")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every part of a scenario: immutable, keyword-only, no unknown fields."""

    either: ClassVar[tuple[str, ...]] = ()  # settings of which one stands alone


class DecodesItself(ABC):
    """Base of a setting that reads plain data by rules of its own."""

    @classmethod
    @abstractmethod
    def decode(cls, data: Any) -> Self:
        """Return the setting that `data` means. Raises ValueError with what is wrong."""


class Durations(tuple[int, ...]):
    """One time for all, or a list with one per stage, in picoseconds."""

    __slots__ = ()


def decode(data: Any, kind: type[T], where: str, *, path: str = "") -> T:
    """Return `data` as a `kind`; `where` is the file (or flag) that errors should name.

    `path` leads to `data` from there: "library".

    Raises:
        ScenarioError: with the path of the offending field and, for a misspelt one, the
            nearest known name.
    """
    file = f"{where}: " if where else ""
    for place, value in _numbers(data, path):
        if not math.isfinite(value):
            raise ScenarioError(f"{file}{place.lstrip('.')}: {value} is not a number to use.")
    try:
        return _convert(data, kind)
    except msgspec.ValidationError as error:
        from commsim.setting_errors import told  # looks at types: only where one is wrong

        what = told(str(error), kind, data, _convert, path=path)
        raise ScenarioError(f"{file}{what}") from None
    except AttributeError as error:
        if error.name != "keys":
            raise
        found = type(error.obj).__name__  # msgspec takes what has items for a mapping
        raise ScenarioError(f"{file}{path}: a value of type {found} is none to use.") from None
    except UnicodeEncodeError as error:
        raise ScenarioError(f"{file}{error.object!r} is not text (half a surrogate).") from None


def _convert(data: Any, kind: type[T]) -> T:
    return msgspec.convert(data, kind, dec_hook=_quantity)


def _quantity(kind: type, value: Any) -> Any:
    """Read a quantity; msgspec adds the path to a ValueError."""
    try:
        if issubclass(kind, DecodesItself):
            return kind.decode(value)
        if kind is Duration:
            return parse_duration(value)
        if kind is Size:
            return parse_size(value)
        if kind is Bandwidth:
            return parse_bandwidth(value)
        if kind is Durations:
            values = value if isinstance(value, list | tuple) else [value]
            return Durations(parse_duration(v) for v in values)
    except UnitError as error:
        raise ValueError(str(error)) from None
    raise NotImplementedError(kind)


def _numbers(data: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(data, float):
        yield path, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _numbers(value, f"{path}.{key}")
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _numbers(value, f"{path}.{index}")
