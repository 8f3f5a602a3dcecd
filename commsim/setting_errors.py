"""
What is wrong with a setting, in plain words: its path, what was found, and what to write.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from commsim.errors import did_you_mean
from commsim.setting_names import (
    bound_text,
    setting_for,
    short_for,
    type_error_text,
    value_hint,
)
from commsim.setting_search import settings_meant
from commsim.setting_types import choices_at, fields_at, struct_in, value_at, written_steps

__all__ = ["told"]

_PATH = re.compile(r"(?s)(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?\Z")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_CHOICE = re.compile(r"Invalid enum value '(?P<value>[^']*)'")
_EXPECTED = re.compile(r"Expected `(?P<types>[a-z |]+)`(?:, got `[a-z]+`)?")
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<how>[<>]=?) (?P<bound>\S+)")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


def told(
    message: str, kind: type, data: Any, convert: Callable[[Any, Any], Any], *, path: str = ""
) -> str:
    """Return a message of msgspec's in our words: the field's path first, then what to do.

    `convert` (value, type) is how values are read; `path` leads to `data`.
    """
    match = _PATH.match(message)
    assert match is not None  # any text matches
    what, steps = match["what"], written_steps(match["path"] or "", kind, data, convert)
    above, path = path, ".".join((path, *steps)).lstrip(".")
    unknown, missing, choice = _UNKNOWN.match(what), _MISSING.match(what), _CHOICE.match(what)
    expected, bound = _EXPECTED.fullmatch(what), _BOUND.fullmatch(what)
    if unknown:
        known = fields_at(kind, steps)
        field = _whole_field(unknown["field"], value_at(data, steps), known)
        listing = f" Known: {', '.join(known)}." if known else ""
        hint = _hint(field, kind, steps, data)
        what = f"unknown setting {field!r}.{hint}{listing}"
        path = f"{path}.{field}".lstrip(".")
    elif missing:
        inside_a_list = [".".join((*steps, missing["field"]))]
        lacking = [repr(name) for name in _lacking(data, kind) or inside_a_list]
        what = f"the setting {lacking[0]} is missing."
        if len(lacking) > 1:
            what = f"the settings {', '.join(lacking[:-1])} and {lacking[-1]} are missing."
        path = above
    elif choice:
        options = choices_at(kind, steps)
        hint = value_hint(choice["value"]) or did_you_mean(choice["value"], options)
        what = f"{choice['value']!r} is not one of: {', '.join(options)}.{hint}"
    elif expected and match["key"]:
        key = next(one for one in value_at(data, steps) if not isinstance(one, str))
        what = type_error_text(expected["types"], "~" if key is None else key)
    elif expected:
        known = fields_at(kind, steps)
        what = type_error_text(expected["types"], value_at(data, steps), known)
    elif bound:
        what = bound_text(bound["how"], float(bound["bound"]), value_at(data, steps))
    else:
        what = what.replace("`", "").rstrip(".") + "."
    return f"{path}: {what}" if path else what


def _whole_field(field: str, given: Mapping[Any, Any], known: Sequence[str]) -> str:
    """Return an unknown setting in full, of which a message shows what stands before a backtick."""
    if field in given:
        return field
    return next((key for key in given if isinstance(key, str) and key not in known), field)


def _hint(field: str, kind: Any, above: tuple[str, ...], data: Any) -> str:
    """Say what an unknown setting is called here, or where the setting of that name stands."""
    if other := setting_for(field):
        return f" Here it is {other!r}."
    plain, known = field.replace("-", "_"), fields_at(kind, above)
    if meant_here := plain if plain in known else short_for(plain, known):
        return f" Did you mean {meant_here!r}?"
    value, words = value_at(data, above).get(field), [plain]
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
