"""Types of numpy arrays, named once; distinct values of an array, distinct columns of a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Bools", "Floats", "Ints", "Ints32", "Singles", "distinct", "distinct_columns"]

Ints: TypeAlias = npt.NDArray[np.int64]
Ints32: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]
Singles: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]

_Number = TypeVar("_Number", np.int64, np.int32, np.float64, np.uint8)

_LARGEST = int(np.iinfo(np.int64).max)


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
