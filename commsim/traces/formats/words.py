"""
Values as recordings write them: element types with their bytes, and lists of numbers.
"""

from __future__ import annotations

from typing import Any

from commsim.ops import element_type

__all__ = ["dtype_of", "numbers_of"]


def dtype_of(name: Any) -> tuple[str, int]:
    """Return (our name, bytes per element) of an element type; ("", -1) where unknown."""
    known = element_type(name)
    return (known.name, known.bytes) if known else ("", -1)


def numbers_of(value: Any) -> tuple[int, ...]:
    """Return the numbers of [0, 1] or "[0, 1]"; nothing for a list that was cut short ("...")."""
    if isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, str) and "..." not in value:
        parts = [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    else:
        return ()
    try:
        numbers = tuple(int(part) for part in parts)
    except (TypeError, ValueError, OverflowError):
        return ()
    return numbers if all(0 <= number < 2**62 for number in numbers) else ()
