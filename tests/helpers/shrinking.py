"""Shrinking: the smallest plain data that still shows what larger data showed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["shrunk"]

Path = tuple[Any, ...]


def shrunk(data: Any, fails: Callable[[Any], bool], *, tries: int = 300) -> Any:
    """Return `data` with all left out, or made smaller, that is not needed for it to fail.

    At most `tries` smaller ones are tried; the first that fails is taken each time.
    """
    left = tries
    while True:
        for smaller in _smaller(data):
            left -= 1
            if left < 0:
                return data
            if fails(smaller):
                data = smaller
                break
        else:
            return data


def _smaller(data: Any) -> Iterator[Any]:
    """Return copies of `data` with one thing left out or made smaller, the largest steps first."""
    for path in sorted(_places(data), key=len):
        parent, key = _at(data, path[:-1]), path[-1]
        value = parent[key]
        yield _changed(data, path, None, drop=True)
        if isinstance(value, bool):
            continue
        if isinstance(value, int) and value > 1:
            yield _changed(data, path, 1)
            yield _changed(data, path, value // 2)
        elif isinstance(value, list) and len(value) > 3:
            yield _changed(data, path, value[: len(value) // 2])


def _places(data: Any, path: Path = ()) -> Iterator[Path]:
    items: Any = ()
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    for key, value in items:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _changed(data: Any, path: Path, value: Any, *, drop: bool = False) -> Any:
    made = copy.deepcopy(data)
    parent = _at(made, path[:-1])
    if drop:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return made
