"""Files are written whole or not at all, and what the system refuses is one sentence."""

from __future__ import annotations

import errno
import json
import os
import socket
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


def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link, place = tmp_path / "x.json", tmp_path / "far" / "y.json"
    link.symlink_to(place)
    for text in ("new", "again"):  # the first time it leads to nothing
        write_text(link, text)
        assert link.is_symlink()
        assert place.read_text() == text
    assert write_set([(link, b"set")]) == [link]
    assert place.read_bytes() == b"set"
    assert [each.name for each in place.parent.iterdir()] == ["y.json"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "x.json"
    loop.symlink_to(loop)
    with pytest.raises(ScenarioError, match=r"x\.json: cannot be written: Too many levels"):
        write_text(loop, "text")
    assert loop.is_symlink()


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.touch(0o600)
    write_text(path, "text")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [f"{'x' * 250}.npz", f"x.{'y' * 240}.json"])
def test_a_name_may_be_as_long_as_the_system_lets_it(name: str, tmp_path: Path) -> None:
    def write(aside: Path) -> None:
        assert aside.suffix == Path(name).suffix
        aside.write_text("text")

    write_aside(tmp_path / name, write)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_folder_that_nothing_may_be_removed_from_is_no_name_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only file system refuses to remove what is not there, too."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    for write in (lambda path: write_set([(path, b"")]), lambda path: write_bytes(path, b"")):
        with pytest.raises(ScenarioError, match=r"/x\.0\.et: cannot be written: Read-only"):
            write(tmp_path / "x.0.et")


def test_an_open_file_goes_on_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("wb", buffering=0) as file:
        file.write(b"before ")
        write_text(f"/dev/fd/{file.fileno()}", "text")
        file.write(b" after")
    assert path.read_bytes() == b"before text after"
    assert [each.name for each in tmp_path.iterdir()] == ["x.txt"]


def test_a_reader_that_left_is_no_refusal() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.shutdown(socket.SHUT_WR)  # for every process that may hold a copy of it
        with pytest.raises(BrokenPipeError):
            write_text(f"/dev/fd/{near.fileno()}", "text")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("größe".encode().decode("ascii", "surrogateescape"), "größe"),  # a locale without UTF-8
        (b"\xff.yaml".decode("utf-8", "surrogateescape"), "\N{REPLACEMENT CHARACTER}.yaml"),
        ("\ud800", "?"),
    ],
)
def test_the_name_of_any_file_can_be_written(name: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json({"of": [{name: (name,)}]}, path)
    assert json.loads(path.read_bytes()) == {"of": [{told: [told]}]}
    write_text(path, name)
    assert path.read_text(encoding="utf-8") == told
    write_pieces(path, [name, name])
    assert path.read_text(encoding="utf-8") == told * 2
