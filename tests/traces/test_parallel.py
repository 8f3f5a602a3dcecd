"""Which files are read by processes of their own: large ones that look like Kineto's."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from commsim.traces import parallel

KINETO = b'{"schemaVersion": 1, "traceEvents": []}'


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (KINETO, True),
        (gzip.compress(KINETO), True),
        (b"\x1f\x8b" + bytes(range(200)), False),
        (gzip.compress(b"{}"), False),
        (b"nothing of that kind", False),
    ],
    ids=["json", "gzip", "gzip that is broken", "gzip of another kind", "text"],
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
