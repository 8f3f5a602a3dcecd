"""
Values as recordings write them: element types with their bytes, and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from commsim.ops import element_type, op_of

__all__ = ["FAR", "dtype_of", "in_bytes", "integer", "numbers_of", "splits_in_bytes", "uneven_op"]

FAR = 2**62
"""Larger integers are no sizes, ids or times: the sum of two would not fit in 64 bits."""


def dtype_of(name: Any) -> tuple[str, int]:
    """Return (our name, bytes per element) of an element type; ("", -1) if unknown."""
    known = element_type(name)
    return (known.name, known.bytes) if known else ("", -1)


def integer(value: Any, missing: int = -1) -> int:
    """Return an integer that a file may have written as a number or as text."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return missing
    return number if abs(number) < FAR else missing


def in_bytes(elements: int, itemsize: int) -> int:
    """Return the bytes of so many elements; -1 if one is not known, or no buffer is so large."""
    known = elements >= 0 and itemsize > 0 and elements * itemsize < FAR
    return elements * itemsize if known else -1


def splits_in_bytes(splits: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return splits of elements in bytes; nothing if `in_bytes` knows not what they sum to."""
    known = in_bytes(sum(splits), itemsize) >= 0
    return tuple(part * itemsize for part in splits) if known else ()


def numbers_of(value: Any) -> tuple[int, ...]:
    """Return the numbers of [0, 1] or "[0, 1]"; nothing for a list that was cut short ("...")."""
    if isinstance(value, list | tuple):
        return _numbers(value)
    return _numbers_of_text(value) if isinstance(value, str) else ()


@lru_cache(maxsize=256)
def _numbers_of_text(text: str) -> tuple[int, ...]:
    """Read a list once that every call of every rank says again: the ranks of a large group."""
    if "..." in text:
        return ()
    return _numbers(part for part in text.strip("[]() ").split(",") if part.strip())


def _numbers(parts: Iterable[Any]) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in parts)
    except (TypeError, ValueError, OverflowError):
        return ()
    return numbers if all(0 <= number < FAR for number in numbers) else ()


def uneven_op(name: str, *, listed: bool) -> str:
    """Return the op of a torch name: one that takes splits is even if it lists none."""
    op = op_of(name)
    return op if listed or op != "all_to_all_v" else "all_to_all"
