"""
Writing files whole or not at all: aside first, then renamed.

A reader never sees half a file, and what stood there stays if writing fails. Whatever the
operating system refuses (no space, no such folder, read-only) is one sentence with the path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from commsim.errors import ScenarioError

__all__ = [
    "json_bytes",
    "write_aside",
    "write_bytes",
    "write_json",
    "write_pieces",
    "write_set",
    "write_text",
]


def write_aside(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file next to `path` (of the same suffix), then rename it to `path`.

    A device or a pipe ("/dev/stdout") cannot be renamed to: it is written in place.

    Raises:
        ScenarioError: the operating system refuses.
    """
    target = Path(path)
    try:
        if _is_special(target):
            write(target)
            return
        aside = _aside(target)
        try:
            write(aside)
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(target, error) from None
    except UnicodeEncodeError:
        raise ScenarioError(f"{str(target)!r}: no file can have this name.") from None


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`. Raises as `write_aside`."""
    write_aside(path, lambda aside: aside.write_bytes(data))


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 with "\\n" at line ends. Raises as `write_aside`."""
    write_bytes(path, text.encode("utf-8"))


def write_pieces(path: str | Path, pieces: Iterable[str]) -> None:
    """Write a text that is made piece by piece, as UTF-8. Raises as `write_aside`."""

    def write(aside: Path) -> None:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(pieces)

    write_aside(path, write)


def write_set(files: Iterable[tuple[Path, bytes]]) -> list[Path]:
    """Write several files that belong together, all or none; return their paths.

    Raises:
        ScenarioError: the operating system refuses one of them.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, data in files:
            aside = _aside(path)
            written.append((aside, path))
            try:
                aside.write_bytes(data)
            except OSError as error:
                raise _refused(path, error) from None
        for aside, path in written:
            try:
                os.replace(aside, path)
            except OSError as error:
                raise _refused(path, error) from None
    finally:
        for aside, _ in written:
            aside.unlink(missing_ok=True)
    return [path for _, path in written]


def json_bytes(data: dict[str, Any]) -> bytes:
    """Return `data` as indented JSON that ends in a newline; what is not finite is null."""
    return msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n"


def write_json(data: dict[str, Any], path: str | Path) -> None:
    """Write `data` as JSON to `path`. Raises as `write_aside`."""
    write_bytes(path, json_bytes(data))


def _aside(path: Path) -> Path:
    suffix = "".join(path.suffixes[-2:])
    return path.with_name(f".{path.name}.{os.getpid()}{suffix}")


def _is_special(path: Path) -> bool:
    return path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()


def _refused(path: Path, error: OSError) -> ScenarioError:
    return ScenarioError(f"{path}: cannot be written: {error.strerror or error}.")
