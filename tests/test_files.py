"""Files are written whole or not at all, and what the system refuses is one sentence."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from commsim.errors import ScenarioError
from commsim.files import write_aside, write_bytes, write_json, write_pieces, write_set, write_text


def broken(aside: Path) -> None:
    aside.write_bytes(b"half")
    raise OSError(28, "No space left on device")


def test_what_stood_there_stays_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("before")
    with pytest.raises(ScenarioError, match=r"result\.json: cannot be written: No space left"):
        write_aside(path, broken)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_an_error_of_the_writer_leaves_nothing_behind(tmp_path: Path) -> None:
    def stops() -> list[str]:
        raise KeyError("text")

    with pytest.raises(KeyError):
        write_aside(tmp_path / "x.txt", lambda aside: aside.write_text(str(stops())))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="gone/x.txt: cannot be written: No such file"):
        write_text(tmp_path / "gone" / "x.txt", "text")


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        write_bytes(tmp_path / "x.npz", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "x.npz").stat().st_mode) == 0o644


def test_a_set_is_written_as_a_whole(tmp_path: Path) -> None:
    first, lost = tmp_path / "a.0.et", tmp_path / "gone" / "a.1.et"
    with pytest.raises(ScenarioError, match=r"a\.1\.et: cannot be written"):
        write_set([(first, b"0"), (lost, b"1")])
    assert list(tmp_path.iterdir()) == []
    assert write_set([(first, b"0")]) == [first]
    assert first.read_bytes() == b"0"


def test_pieces_and_json_and_devices(tmp_path: Path) -> None:
    write_pieces(tmp_path / "x.html", iter(["a", "b\n"]))
    assert (tmp_path / "x.html").read_bytes() == b"ab\n"
    write_json({"t": float("nan")}, tmp_path / "x.json")
    assert (tmp_path / "x.json").read_bytes() == b'{\n "t": null\n}\n'
    write_text("/dev/null", "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
