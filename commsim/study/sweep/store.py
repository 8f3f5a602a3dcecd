"""
Results by key in an SQLite file: what is there is never run again, and a kill loses nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType

import msgspec

from commsim.errors import ScenarioError
from commsim.study.sweep.points import Outcome

__all__ = ["Store"]

_TABLE = """
create table if not exists results (
    key text primary key,
    result blob,
    error text
) without rowid
"""
_AT_ONCE = 500  # keys in one question


class Store:
    """Outcomes by key; each is on disk when `put` returns. `path` ":memory:" keeps no file."""

    def __init__(self, path: str | Path) -> None:
        """Open the store, or make it; a file that was made stays only as a store.

        Raises:
            ScenarioError: the file cannot be opened, or is something else.
        """
        self._path = path
        stood = os.path.lexists(path)
        with ExitStack() as stack:
            if not stood:
                stack.callback(_remove, path)
            try:
                self._base = stack.enter_context(closing(_opened(path)))
                self._base.execute("pragma journal_mode=wal")
                self._base.execute(_TABLE)
            except sqlite3.Error as error:
                raise ScenarioError(f"{path}: cannot be a store of results: {error}.") from None
            stack.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._base.close()

    def get(self, keys: Iterable[str]) -> Mapping[str, Outcome]:
        """Return the outcomes that are known of these keys."""
        asked, found = list(dict.fromkeys(keys)), {}
        for at in range(0, len(asked), _AT_ONCE):
            some = asked[at : at + _AT_ONCE]
            marks = ",".join("?" * len(some))
            rows = self._base.execute(
                f"select key, result, error from results where key in ({marks})",
                some,
            )
            for key, result, error in rows:
                found[key] = Outcome(key, msgspec.json.decode(result) if result else None, error)
        return found

    def put(self, outcome: Outcome) -> None:
        """Keep an outcome. Raises ScenarioError if the disk is full."""
        result = None if outcome.result is None else msgspec.json.encode(outcome.result)
        try:
            self._base.execute(
                "insert or replace into results values (?, ?, ?)",
                (outcome.key, result, outcome.error),
            )
        except sqlite3.Error as error:
            raise ScenarioError(f"{self._path}: a result cannot be kept: {error}.") from None


def _opened(path: str | Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=60, isolation_level=None)


def _remove(path: str | Path) -> None:
    """Remove what SQLite made of a store that came to nothing."""
    for end in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{end}").unlink(missing_ok=True)
