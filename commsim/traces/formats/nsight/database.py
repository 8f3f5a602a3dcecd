"""
A SQLite file that somebody else wrote: opened in memory, read by plain SELECTs and nothing else.

Tables come and go with the version of nsys, and so do their columns: what is not there reads as
None, and a table that is not there has no rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from commsim.errors import TraceError
from commsim.traces.formats.files import Data, Document

__all__ = ["Database", "is_sqlite"]

_MAGIC = b"SQLite format 3\x00"
_ALLOWED = frozenset({sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT})
_MOST_STEPS = 100  # millions of SQLite's own steps for one table: no honest table takes more
_STEPS = 1_000_000


def is_sqlite(data: Data) -> bool:
    """Say whether a file is a SQLite database."""
    return bytes(data[: len(_MAGIC)]) == _MAGIC


class Database:
    """The tables of a document, for reading.

    Raises:
        TraceError: the file is cut off, or is no database.
    """

    def __init__(self, document: Document) -> None:
        self._name = document.name
        self._connection = sqlite3.connect(":memory:")
        self._left = _MOST_STEPS
        try:
            if _whole_size(document.data) > len(document.data):
                raise sqlite3.DatabaseError("it is cut off")
            self._connection.deserialize(document.data)
            rows = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            self.tables = frozenset(str(name) for (name,) in rows)
        except (sqlite3.Error, OverflowError) as error:
            raise self._broken(error) from None

    def rows(self, table: str, *columns: str, where: str = "") -> Iterator[tuple[Any, ...]]:
        """Yield the columns of a table, None for a column that it lacks; nothing without it."""
        if table not in self.tables:
            return
        try:
            known = {str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({table})")}
            wanted = ", ".join(f'"{c}"' if c in known else "NULL" for c in columns)
            if where and where not in known:
                return
            kept = f' WHERE "{where}" IS NOT NULL' if where else ""
            self._connection.set_authorizer(_only_reading)
            self._connection.set_progress_handler(self._too_long, _STEPS)
            yield from self._connection.execute(f'SELECT {wanted} FROM "{table}"{kept}')
        except sqlite3.Error as error:
            raise self._broken(error) from None
        finally:
            self._connection.set_authorizer(None)
            self._connection.set_progress_handler(None, 0)

    def _too_long(self) -> bool:
        self._left -= 1
        return self._left < 0

    def _broken(self, error: Exception) -> TraceError:
        return TraceError(
            f"{self._name}: not a readable SQLite export ({error})."
            " Export it again: nsys export --type sqlite REPORT.nsys-rep."
        )


def _whole_size(data: Data) -> int:
    """Return the bytes that the header speaks of: pages (at byte 28) of a size (at byte 16)."""
    size, pages = int.from_bytes(data[16:18], "big"), int.from_bytes(data[28:32], "big")
    return pages * (2**16 if size == 1 else size)


def _only_reading(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
