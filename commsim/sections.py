"""
Typed settings: turn what a user wrote into frozen structs, strictly, and say what is wrong.

Each room declares its part of a scenario as a `Section`; `decode` fills it from plain data
(dicts, lists, text, numbers). An unknown field, a missing one, a wrong type, a quantity
without its unit and a NaN are ScenarioErrors that carry the path of the field as written.
"""

from __future__ import annotations

import math
import re
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeVar

import msgspec

from commsim.errors import ScenarioError, UnitError, did_you_mean
from commsim.setting_names import setting_for, type_error_text, value_hint
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
        return msgspec.convert(data, kind, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: {_explain(str(error), kind, data)}") from None
    except UnicodeEncodeError as error:
        raise ScenarioError(f"{where}: {error.object!r} is not text (half a surrogate).") from None


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
            yield from _numbers(value, f"{path}[{index}]")


def _explain(message: str, kind: type, data: Any) -> str:
    """Rewrite a msgspec message: the field's path first, then what to do."""
    match = _PATH.match(message)
    what, path = (match["what"], (match["path"] or "").lstrip(".")) if match else (message, "")
    unknown, missing, choice = _UNKNOWN.match(what), _MISSING.match(what), _CHOICE.match(what)
    expected = _EXPECTED.fullmatch(what)
    if unknown:
        known = _fields_at(kind, path)
        field = unknown["field"]
        listing = f" Known: {', '.join(known)}." if known else ""
        hint = _hint(field, kind, path, known)
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
        options = _choices_at(kind, path)
        hint = value_hint(choice["value"]) or did_you_mean(choice["value"], options)
        what = f"{choice['value']!r} is not one of: {', '.join(options)}.{hint}"
    elif expected and match and match["key"]:
        key = next(one for one in _value_at(data, path) if not isinstance(one, str))
        what = type_error_text(expected["types"], key)
    elif expected:
        what = type_error_text(expected["types"], _value_at(data, path))
    else:
        what = what.replace("`", "").rstrip(".") + "."
    return f"{path}: {what}" if path else what


def _hint(field: str, kind: Any, path: str, known: list[str]) -> str:
    """Say what an unknown setting is called here, or where the setting of that name stands."""
    if other := setting_for(field):
        return f" Here it is {other!r}."
    plain = field.replace("-", "_")
    if plain in known:
        return f" Did you mean {plain!r}?"
    from commsim.setting_paths import paths_of  # inspects types: only where something is wrong

    of_name = [one for one in paths_of(kind) if one.endswith(f".{plain}")]
    near = max((_shared(one, path) for one in of_name), default=0)
    meant = dict.fromkeys(one for one in of_name if _shared(one, path) == near)
    if 0 < len(meant) <= _FEW:
        return f" Write {' or '.join(meant)}."
    return did_you_mean(field, known)


_FEW = 2  # settings of one name that are all said


def _shared(one: str, other: str) -> int:
    """Return how many steps two paths have in common from the top."""
    steps = zip(one.split("."), other.split("."), strict=False)
    return next((at for at, (a, b) in enumerate(steps) if a != b), len(other.split(".")))


def _lacking(data: Any, kind: Any, path: str = "") -> list[str]:
    """Return the paths of all settings that `data` must have as a `kind` and has not."""
    kind = _struct_in(kind)
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


def _value_at(data: Any, path: str) -> Any:
    """Return what the user wrote at a path such as "workload.collectives[0].bytes"."""
    for step in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        if step.startswith("[") and isinstance(data, list | tuple):
            data = data[int(step[1:-1])]
        elif isinstance(data, Mapping):
            data = data.get(step)
    return data


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the field names of the struct that `path` leads to, for suggestions."""
    kind = _struct_in(_type_at(kind, path))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [f.encode_name for f in msgspec.structs.fields(kind)]
    return []


def _choices_at(kind: Any, path: str) -> list[str]:
    """Return the words that the setting at `path` may be."""
    kind = _type_at(kind, path)
    options = [kind, *typing.get_args(kind)]
    literal = next((k for k in options if typing.get_origin(k) is typing.Literal), None)
    return [str(word) for word in typing.get_args(literal)]


def _type_at(kind: Any, path: str) -> Any:
    """Return the type that is declared for the setting at `path`."""
    steps = re.findall(r"[^.\[\]]+|\[[^\]]*\]", path)
    for step in steps:
        kind = _struct_in(kind) if not step.startswith("[") else kind
        if step.startswith("["):
            kind = _element(kind)
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            hints = typing.get_type_hints(kind)
            names = {f.encode_name: f.name for f in msgspec.structs.fields(kind)}
            kind = hints.get(names.get(step, step))
    return kind


def _struct_in(kind: Any) -> Any:
    """Return the struct among the options of a union, or `kind` itself."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        options = [k for k in typing.get_args(kind) if isinstance(k, type)]
        return next((k for k in options if issubclass(k, msgspec.Struct)), kind)
    return kind


def _element(kind: Any) -> Any:
    """Return the element type of a list, tuple or dict type."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        kind = next(
            (k for k in options if typing.get_origin(k) not in (None, typing.Literal)), kind
        )
    arguments = [k for k in typing.get_args(kind) if k is not Ellipsis]
    return arguments[-1] if arguments else None
