"""An export of Nsight Systems as a database: what is read of it, and what is refused."""

from __future__ import annotations

import sqlite3

import pytest

from commsim.errors import TraceError
from commsim.traces.formats.files import Document
from commsim.traces.formats.nsight.database import Database, _whole_size


def document(*statements: str) -> Document:
    with sqlite3.connect(":memory:") as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        return Document("x.sqlite", connection.serialize())


TABLE = document(
    "CREATE TABLE k (a, b)", "INSERT INTO k VALUES (1, 2), (3, NULL), (NULL, 6)",
    "CREATE VIEW v AS SELECT a FROM k",
)  # fmt: skip


def test_rows_have_the_columns_that_there_are() -> None:
    found = Database(TABLE)
    assert found.tables == {"k"}
    assert list(found.rows("k", "b", "none", "a")) == [
        (2, None, 1),
        (None, None, 3),
        (6, None, None),
    ]
    assert list(found.rows("k", "a", where="b")) == [(1,), (None,)]
    assert list(found.rows("k", "a", where="none")) == []
    assert list(found.rows("none", "a")) == list(found.rows("v", "a")) == []
    assert list(found.rows("k", "a")) == [(1,), (3,), (None,)]


def test_a_file_is_as_large_as_its_head_says() -> None:
    size = len(TABLE.data)
    assert _whole_size(TABLE.data) == size
    assert _whole_size(bytes(16) + b"\x00\x01" + bytes(10) + b"\x00\x00\x00\x03") == 3 * 2**16
    assert _whole_size(bytes(16) + b"\x00\x02" + bytes(10) + b"\x00\x00\x01\x03") == 2 * 259
    with pytest.raises(
        TraceError, match=r"x\.sqlite: not a readable SQLite export \(it is cut off"
    ):
        Database(Document("x.sqlite", TABLE.data[:-1]))
    assert Database(Document("x.sqlite", TABLE.data + bytes(4096))).tables == {"k"}


def test_what_is_no_database_is_refused() -> None:
    with pytest.raises(TraceError, match="nsys export --type sqlite"):
        Database(Document("x.sqlite", b"x" * 200))
