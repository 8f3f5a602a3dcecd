"""
`--set key.path=value`: change plain data before it is decoded.

The path is made of keys and list indices joined by dots: `cluster.nodes=4`,
`workload.collectives.0.bytes=1GiB`. What it does not find it makes, so that a misspelt key is
reported by the decoder, which knows the right ones. Values are YAML: `true`, `4`, `[0, 1]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from commsim.errors import ScenarioError
from commsim.yaml_file import parse_yaml

__all__ = ["apply_sets", "merge_settings"]

_BRACKETS = re.compile(r"\[(\d+)\]")


def apply_sets(data: Any, sets: Iterable[str]) -> Any:
    """Return a copy of `data` with each "key.path=value" applied, in order.

    Raises:
        ScenarioError: data without an end, no "=", an empty key, a path through a value that has no
            keys, an index outside its list.
    """
    try:
        data = _apart(data)
    except RecursionError:
        raise ScenarioError("the scenario: is nested too deeply, or contains itself.") from None
    for text in sets:
        path, value = _split(text)
        data = {} if data is None else data
        _assign(data, path, value, text)
    return data


def merge_settings(data: Any, settings: Mapping[str, Any]) -> Any:
    """Return a copy of `data` with `settings` laid over it; mappings are merged, the rest replaced.

    A key may be a path: "cluster.nodes".
    """
    merged = dict(data) if isinstance(data, Mapping) else {}
    for key, value in settings.items():
        name, _, rest = key.partition(".")
        inner = {rest: value} if rest else value
        if isinstance(inner, Mapping):
            inner = merge_settings(merged.get(name), inner)
        merged[name] = inner
    return merged


def _apart(data: Any) -> Any:
    """Copy plain data; what a YAML alias shares is shared no more, so that one can change."""
    if isinstance(data, Mapping):
        return {key: _apart(value) for key, value in data.items()}
    return [_apart(value) for value in data] if isinstance(data, list | tuple) else data


def _split(text: str) -> tuple[list[str], Any]:
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise ScenarioError(
            f"--set {text}: write a path, '=' and a value, like --set cluster.nodes=4."
        )
    if _BRACKETS.search(name):
        dotted = _BRACKETS.sub(r".\1", name)
        raise ScenarioError(
            f"--set {text}: a place in a list is written with a dot. Write --set {dotted}={value}."
        )
    return path, parse_yaml(value, f"--set {text}")


def _assign(data: Any, path: list[str], value: Any, text: str) -> None:
    for depth, step in enumerate(path[:-1]):
        here = ".".join(path[:depth])
        key = _key(data, step, here, text)
        if isinstance(data, dict) and data.get(key) is None:
            data[key] = {}
        data = data[key]
    here = ".".join(path[:-1])
    data[_key(data, path[-1], here, text)] = value


def _key(data: Any, step: str, here: str, text: str) -> Any:
    """Return the key or index by which `step` enters `data`."""
    if isinstance(data, dict):
        number = int(step) if step.isdecimal() and len(step) < 10 else None
        return number if number is not None and number in data else step
    if isinstance(data, list):
        if step.isdecimal() and int(step[:10]) < len(data):
            return int(step)
        last = f"0..{len(data) - 1}" if data else "none: it is empty"
        raise ScenarioError(f"--set {text}: {here!r} is a list; give an index ({last}).")
    raise ScenarioError(f"--set {text}: {here!r} is {data!r}, which has no settings inside.")
