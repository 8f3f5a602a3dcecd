"""
Plain data with one leaf after another replaced by what no program of sound mind would write there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import click

import commsim as cs
from helpers.invariants import numbers

__all__ = ["HOSTILE", "fault_of", "leaves", "replaced"]

Path = tuple[str | int, ...]

HOSTILE: tuple[Any, ...] = (
    None, "x", "", [], {}, True, -1, 0, 10**400, 2**63 - 1, 2**63, 1e308, -1e308, 1e-320,
    float("nan"), [[1]], "\ud800",
)  # fmt: skip
"""Values that stand where another kind, or a sensible amount, is due."""


def leaves(data: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every leaf, and of every list and mapping; of a list, its first entry."""
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list) and data:
        yield from leaves(data[0], (*path, 0))


def replaced(data: Any, path: Path, value: Any) -> Any:
    """Return a copy of plain data with another value at a path."""
    made = copy.deepcopy(data)
    held = made
    for step in path[:-1]:
        held = held[step]
    held[path[-1]] = value
    return made


def fault_of(read: Callable[[], Any]) -> str | None:
    """Return what is wrong with how something is read, None if it is refused or finite.

    Refused is what ends in one of commsim's own errors, of a few hundred letters.
    """
    try:
        answer = read()
    except (cs.CommsimError, click.ClickException) as error:
        return None if 0 < len(str(error)) < 1000 else f"a message of {len(str(error))} letters"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for where, value in numbers(answer):
        if not math.isfinite(value) or (value < 0 and where.endswith("_s")):
            return f"{where} is {value}"
    return None
