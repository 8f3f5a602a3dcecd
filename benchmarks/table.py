"""Read a table from a CSV file, or say in one line why it can't be."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["read_table"]


def read_table(path: str | Path, needed: Iterable[str] = ()) -> list[dict[str, str]]:
    """Return the rows of a CSV file as text, lines that begin with # left out.

    Exits with a message if there is no such file, or where a column of `needed` is missing.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.DictReader(line for line in file if not line.startswith("#"))
            rows = [_text(row) for row in reader]
            columns = reader.fieldnames or ()
    except OSError as error:
        sys.exit(f"{path}: cannot be read: {error.strerror}.")
    except csv.Error as error:
        sys.exit(f"{path}: is no CSV table: {error}.")
    missing = [name for name in needed if name not in columns]
    if missing:
        sys.exit(f"{path}: has no column {', '.join(missing)}.")
    return rows


def _text(row: dict[str | None, str | list[str] | None]) -> dict[str, str]:
    return {
        name: value.strip() if isinstance(value, str) else ""
        for name, value in row.items()
        if name is not None
    }
