"""
The cells of one line of a table, by the names of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from commsim.traces.formats.profiler_tables.rows import Row

__all__ = ["Cells", "TableKinds"]


class Cells:
    """A line with the places of its columns; a name is that of the head, in lower case."""

    UNITS: ClassVar[Mapping[str, float]] = {
        "ns": 1, "nsec": 1, "us": 1e3, "usec": 1e3, "μs": 1e3, "ms": 1e6, "msec": 1e6, "s": 1e9,
        "sec": 1e9, "b": 1, "byte": 1, "bytes": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10,
        "mib": 2**20, "gib": 2**30,
    }  # fmt: skip
    """ns, or bytes, in the unit that a head gives in brackets."""

    __slots__ = ("_cells", "_places")

    def __init__(self, cells: Sequence[str], places: Mapping[str, tuple[int, float]]) -> None:
        self._cells, self._places = cells, places

    def text(self, *names: str) -> str:
        """Return the first of the columns that the table has, "" without one."""
        for name in names:
            if name in self._places:
                return self._cells[self._places[name][0]].strip()
        return ""

    def number(self, *names: str) -> int:
        """Return a whole number, -1 for an empty cell or none. Raises ValueError for others."""
        text = self.text(*names)
        return int(text, 0) if text else -1

    def amount(self, name: str) -> int:
        """Return a time in ns or a size in bytes, by the column's unit, -1 for an empty cell.

        Raises:
            ValueError: not a number.
        """
        text, unit = self.text(name), self._places[name][1] if name in self._places else 1.0
        if not text:
            return -1
        return int(text) * int(unit) if text.isdigit() else round(float(text) * unit)


TableKinds = dict[tuple[frozenset[str], frozenset[str]], Callable[[Cells], Row | None]]
"""A reader of lines for each kind of table, by (columns that it has, columns that it has not)."""
