"""
Typed settings: turn what a user wrote into frozen structs, strictly, and say what is wrong.

Each room declares its part of a scenario as a `Section`; `decode` fills it from plain data
(dicts, lists, text, numbers). An unknown field, a missing one, a wrong type, a quantity
without its unit and a NaN are ScenarioErrors that carry the path of the field as written.
"""

from __future__ import annotations

import math
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from commsim.errors import ScenarioError, UnitError, did_you_mean
from commsim.setting_names import setting_for, type_error_text, value_hint
from commsim.setting_types import choices_at, fields_at, struct_in, value_at, written_steps
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
_PATH = re.compile(r"(?s)(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?\Z")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_CHOICE = re.compile(r"Invalid enum value '(?P<value>[^']*)'")
_EXPECTED = re.compile(r"Expected `(?P<types>[a-z |]+)`(?:, got `[a-z]+`)?")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


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


def decode(data: Any, kind: type[T], where: str) -> T:
    """Return `data` as a `kind`; `where` is the file (or flag) that errors should name.

    Raises:
        ScenarioError: with the path of the offending field and, for a misspelt one, the
            nearest known name.
    """
    for path, value in _numbers(data, ""):
        if not math.isfinite(value):
            raise ScenarioError(f"{where}: {path.lstrip('.')}: {value} is not a number to use.")
    try:
        return _convert(data, kind)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: {_explain(str(error), kind, data)}") from None
    except UnicodeEncodeError as error:
        raise ScenarioError(f"{where}: {error.object!r} is not text (half a surrogate).") from None


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


def _explain(message: str, kind: type, data: Any) -> str:
    """Rewrite a msgspec message: the field's path first, then what to do."""
    match = _PATH.match(message)
    assert match is not None  # any text matches
    what, steps = match["what"], written_steps(match["path"] or "", kind, data, _convert)
    path = ".".join(steps)
    unknown, missing, choice = _UNKNOWN.match(what), _MISSING.match(what), _CHOICE.match(what)
    expected = _EXPECTED.fullmatch(what)
    if unknown:
        known = fields_at(kind, steps)
        field = unknown["field"]
        listing = f" Known: {', '.join(known)}." if known else ""
        hint = _hint(field, kind, steps, data)
        what = f"unknown setting {field!r}.{hint}{listing}"
        path = f"{path}.{field}".lstrip(".")
    elif missing:
        inside_a_list = [f"{path}.{missing['field']}".lstrip(".")]
        lacking = [repr(name) for name in _lacking(data, kind) or inside_a_list]
        what = f"the setting {lacking[0]} is missing."
        if len(lacking) > 1:
            what = f"the settings {', '.join(lacking[:-1])} and {lacking[-1]} are missing."
        path = ""
    elif choice:
        options = choices_at(kind, steps)
        hint = value_hint(choice["value"]) or did_you_mean(choice["value"], options)
        what = f"{choice['value']!r} is not one of: {', '.join(options)}.{hint}"
    elif expected and match["key"]:
        key = next(one for one in value_at(data, steps) if not isinstance(one, str))
        what = type_error_text(expected["types"], key)
    elif expected:
        what = type_error_text(expected["types"], value_at(data, steps))
    else:
        what = what.replace("`", "").rstrip(".") + "."
    return f"{path}: {what}" if path else what


def _hint(field: str, kind: Any, above: tuple[str, ...], data: Any) -> str:
    """Say what an unknown setting is called here, or where the setting of that name stands."""
    if other := setting_for(field):
        return f" Here it is {other!r}."
    plain, known = field.replace("-", "_"), fields_at(kind, above)
    if plain in known:
        return f" Did you mean {plain!r}?"
    from commsim.setting_paths import settings_meant  # looks at types: only where one is wrong

    value, words = value_at(data, above)[field], [plain]
    while isinstance(value, Mapping) and len(value) == 1:
        [(key, value)] = value.items()
        words.append(str(key))
    inside = isinstance(value, Mapping)
    if meant := settings_meant(kind, words, data, above=above, section=inside):
        return f" Write {' or '.join(meant)}."
    return did_you_mean(field, known)


def _lacking(data: Any, kind: Any, path: str = "") -> list[str]:
    """Return the paths of all settings that `data` must have as a `kind` and has not."""
    kind = struct_in(kind)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    if not isinstance(data, dict):
        return []
    hints, found = typing.get_type_hints(kind), []
    for field in msgspec.structs.fields(kind):
        name = f"{path}.{field.encode_name}".lstrip(".")
        if field.encode_name in data:
            found += _lacking(data[field.encode_name], hints[field.name], name)
        elif field.required:
            found.append(name)
    return found
