"""
What is declared for a setting, and what a user wrote there, by the steps that lead to it.

Steps are keys and indices, joined by dots as `--set` takes them: "workload.collectives.0.bytes".
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["choices_at", "fields_at", "struct_in", "type_at", "value_at", "written_steps"]


def written_steps(
    path: str, kind: Any, data: Any, convert: Callable[[Any, Any], Any]
) -> tuple[str, ...]:
    """Return the steps of msgspec's path: ".ranks[...][0]" leads over "ranks", "a" and "0".

    msgspec does not say which key of a mapping is wrong: it is the first whose value `convert`
    (value, type) refuses.
    """
    steps: tuple[str, ...] = ()
    for step in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        key = step.strip("[]")
        if key == "...":
            inner, items = type_at(kind, (*steps, key)), value_at(data, steps).items()
            key = next(str(one) for one, value in items if not _fits(value, inner, convert))
        steps = (*steps, key)
    return steps


def _fits(value: Any, kind: Any, convert: Callable[[Any, Any], Any]) -> bool:
    try:
        convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def value_at(data: Any, steps: Sequence[str]) -> Any:
    """Return what the user wrote after some steps, None where nothing is."""
    for step in steps:
        if isinstance(data, list | tuple):
            data = data[int(step)] if step.isdecimal() and int(step) < len(data) else None
        elif isinstance(data, Mapping):
            data = next((value for key, value in data.items() if str(key) == step), None)
        else:
            return None
    return data


def type_at(kind: Any, steps: Sequence[str]) -> Any:
    """Return the type that is declared for the setting after `steps`."""
    for step in steps:
        struct = struct_in(kind)
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
            hints = typing.get_type_hints(struct)
            names = {f.encode_name: f.name for f in msgspec.structs.fields(struct)}
            if step in names or not _element(kind):
                kind = hints.get(names.get(step, step))
                continue
        kind = _element(kind)
    return kind


def fields_at(kind: Any, steps: Sequence[str]) -> list[str]:
    """Return the names of the settings in the section after `steps`, for suggestions."""
    kind = struct_in(type_at(kind, steps))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [f.encode_name for f in msgspec.structs.fields(kind)]
    return []


def choices_at(kind: Any, steps: Sequence[str]) -> list[str]:
    """Return the words that the setting after `steps` may be."""
    kind = type_at(kind, steps)
    options = [kind, *typing.get_args(kind)]
    literal = next((k for k in options if typing.get_origin(k) is typing.Literal), None)
    return [str(word) for word in typing.get_args(literal)]


def struct_in(kind: Any) -> Any:
    """Return the struct among the options of a union, or `kind` itself."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        options = [k for k in typing.get_args(kind) if isinstance(k, type)]
        return next((k for k in options if issubclass(k, msgspec.Struct)), kind)
    return kind


def _element(kind: Any) -> Any:
    """Return the element type of a list, tuple or dict type, None where there is none."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        kind = next(
            (k for k in options if typing.get_origin(k) not in (None, typing.Literal)), None
        )
    arguments = [k for k in typing.get_args(kind) if k is not Ellipsis]
    return arguments[-1] if arguments else None
