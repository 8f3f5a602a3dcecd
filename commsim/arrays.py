"""Types of numpy arrays, named once; distinct values and columns; long columns without copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "Bools",
    "Floats",
    "Ints",
    "Ints32",
    "Singles",
    "Whole",
    "distinct",
    "distinct_columns",
    "narrow",
    "parts",
    "taken",
]

Ints: TypeAlias = npt.NDArray[np.int64]
Ints32: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.signedinteger]
"""Whole numbers in 32 bits or in 64: what is computed from them is made 64 bits wide first."""
Singles: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]

_Number = TypeVar("_Number", np.int64, np.int32, np.float64, np.uint8)
_Any = TypeVar("_Any", bound=np.generic)

_LARGEST = int(np.iinfo(np.int64).max)
_LARGEST_32 = int(np.iinfo(np.int32).max)
_PART = 1 << 18


def distinct_columns(rows: Iterable[npt.NDArray[np.integer]]) -> tuple[Ints, Ints]:
    """Return where each distinct column of a table of integers stands first, and each one's number.

    As numpy's unique over axis 1, in its order, but each column becomes one whole number that is
    sorted: numpy compares columns as bytes, which is ten times slower, and copies the table.
    """
    key, span = np.zeros(0, np.int64), 0
    for row in rows:
        digit, width = _digits(row)
        if span * width > _LARGEST:
            key, span = _dense(key)
        if span * width > _LARGEST:
            digit, width = _dense(digit)
        key = key * width + digit if span else digit
        span = max(span, 1) * width
    order, new = _sorted(key)
    return order[new], _numbers(order, new)


def distinct(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the distinct values of an array, ascending.

    As numpy's unique, which loads numpy.ma when it is first called: a twentieth of a small run.
    """
    ordered = np.sort(values, axis=None)
    new = np.empty(len(ordered), np.bool_)
    new[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def narrow(values: Whole) -> Whole:
    """Return whole numbers in 32 bits if all of them fit, in 64 if not."""
    fit = values.min(initial=0) >= -_LARGEST_32 and values.max(initial=0) <= _LARGEST_32
    return values.astype(np.int32 if fit else np.int64, copy=False)


def parts(count: int) -> Iterator[slice]:
    """Yield the parts of a column of millions, of which whole copies would fill the memory."""
    return (slice(at, at + _PART) for at in range(0, count, _PART))


def taken(values: npt.NDArray[_Any], at: Whole) -> npt.NDArray[_Any]:
    """Return `values[at]`, for which numpy would copy a long `at` of 32 bits to 64."""
    found = np.empty(len(at), values.dtype)
    for part in parts(len(at)):
        found[part] = values[at[part]]
    return found


def _digits(row: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    """Return integers less the smallest of them, and how many values they may have."""
    if not len(row):
        return np.zeros(0, np.int64), 1
    low, high = int(row.min()), int(row.max())
    if high - low >= _LARGEST:
        return _dense(row)
    return np.subtract(row, low, dtype=np.int64), high - low + 1


def _dense(row: npt.NDArray[np.integer]) -> tuple[Ints, int]:
    """Number the values of a row in their order; return the numbers and how many there are."""
    order, new = _sorted(row)
    return _numbers(order, new), int(new.sum())


def _sorted(row: npt.NDArray[np.integer]) -> tuple[Ints, Bools]:
    """Return the order of a row, first of equals first, and where in it a new value begins."""
    order = row.argsort(kind="stable").astype(np.int64, copy=False)
    ordered = row[order]
    new = np.ones(len(row), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return order, new


def _numbers(order: Ints, new: Bools) -> Ints:
    """Return which of the sorted values each place has."""
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    return number
