"""Which files are read by processes of their own: large ones that look like Kineto's."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from commsim.traces import parallel

KINETO = b'{"schemaVersion": 1, "traceEvents": []}'


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (KINETO, True),
        (b'{"schemaVersion": 1, "deviceProperties": []', True),
        (b'{"traceEvents": []}', True),
        (gzip.compress(KINETO), True),
        (b"\x1f\x8b" + bytes(range(200)), False),
        (gzip.compress(b"{}"), False),
        (b"nothing of that kind", False),
    ],
    ids=[
        "json",
        "head of a long one",
        "old",
        "gzip",
        "gzip that is broken",
        "gzip of another kind",
        "text",
    ],
)
def test_files_that_look_like_kineto(
    content: bytes, looks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_bytes(content)
    assert parallel.large_kineto(files) == []  # too small for a process
    monkeypatch.setattr(parallel, "_LARGE", len(content))
    assert parallel.large_kineto(files) == (files if looks else [])
    assert parallel.large_kineto(files[:1]) == []  # one alone is read here


@pytest.mark.parametrize(
    ("name", "size", "processes"),
    [("rank{}.json", 40, 0), ("rank{}.json", 60, 2), ("rank{}.json.gz", 5, 2)],
)
def test_processes_are_for_more_than_they_take_to_start(
    name: str, size: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of 40 MiB are read one after the other; of 60 MiB, or packed 5, at once."""
    files = [tmp_path / name.format(rank) for rank in range(2)]
    for file in files:
        with file.open("wb") as opened:
            opened.truncate(size * 2**20)
    asked: list[int] = []
    monkeypatch.setattr(parallel, "_ask", lambda files, share, parts: asked.extend(share))
    monkeypatch.setattr(parallel, "_read", lambda file: file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert [str(part) for part in parallel.read_parts(files, None)] == list(map(str, files))
    assert len(asked) == processes
