"""
Results by key in an SQLite file: what is there is never run again, and a kill loses nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

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
_RESULT = msgspec.json.Decoder(dict[str, Any])
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
            except (sqlite3.Error, ValueError) as error:  # no file's name has a zero byte
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
        """Return the outcomes that are known of these keys; a damaged one is not.

        Raises:
            ScenarioError: the file is damaged, or its table is another program's.
        """
        asked = list(dict.fromkeys(keys))
        found: dict[str, Outcome] = {}
        for at in range(0, len(asked), _AT_ONCE):
            some = asked[at : at + _AT_ONCE]
            marks = ",".join("?" * len(some))
            try:
                rows = self._base.execute(
                    f"select key, result, error from results where key in ({marks})",
                    some,
                ).fetchall()
            except sqlite3.Error as error:
                raise ScenarioError(
                    f"{self._path}: cannot be read as a store of results: {error}. Name another"
                    " file, or remove this one."
                ) from None
            read = (_outcome(*row) for row in rows)
            found.update((one.key, one) for one in read if one is not None)
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


def _outcome(key: str, result: Any, error: Any) -> Outcome | None:
    """Return an outcome as `put` wrote it: a result or an error; None if it is neither."""
    if isinstance(error, str) and result is None:
        return Outcome(key, None, error)
    try:
        return Outcome(key, _RESULT.decode(result), None) if error is None else None
    except (msgspec.DecodeError, TypeError):
        return None


def _opened(path: str | Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=60, isolation_level=None)


def _remove(path: str | Path) -> None:
    """Remove what SQLite made of a store that came to nothing."""
    for end in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError, ValueError):  # no file can have such a name
            Path(f"{path}{end}").unlink(missing_ok=True)
