"""
Writing files whole or not at all: aside first, then renamed; a link's file, not the link.

A reader never sees half a file, and what stood there stays if writing fails. Whatever the
operating system refuses (no space, no such folder, read-only) is one sentence with the path.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from commsim.errors import ScenarioError

__all__ = [
    "folder_to_fill",
    "json_bytes",
    "write_all",
    "write_aside",
    "write_bytes",
    "write_json",
    "write_pieces",
    "write_set",
    "write_text",
]


def write_aside(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file next to `path` (of the same suffix), then rename it to `path`.

    A link stays, and what it leads to is written. A device or a pipe ("/dev/stdout") cannot be
    renamed to: the whole is copied to it.

    Raises:
        ScenarioError: the operating system refuses.
        BrokenPipeError: whoever read the pipe has left.
    """
    target = Path(path)
    try:
        if _is_special(target):
            _copy_to(target, write)
            return
        place = _followed(target)
        aside = _aside(place)
        try:
            write(aside)
            _rename(aside, place)
        finally:
            _remove(aside)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _refused(target, error) from None


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`. Raises as `write_aside`."""
    write_aside(path, lambda aside: aside.write_bytes(data))


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 with "\\n" at line ends. Raises as `write_aside`."""
    write_bytes(path, _utf8(text))


def write_pieces(path: str | Path, pieces: Iterable[str]) -> None:
    """Write a text that is made piece by piece, as UTF-8. Raises as `write_aside`."""

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            file.writelines(map(_utf8, pieces))

    write_aside(path, write)


def write_set(files: Iterable[tuple[Path, bytes]]) -> list[Path]:
    """Write several files that belong together, all or none; return their paths.

    Raises:
        ScenarioError: the operating system refuses one of them.
    """
    return write_all((path, partial(_write_bytes, data=data)) for path, data in files)


def write_all(files: Iterable[tuple[Path, Callable[[Path], object]]]) -> list[Path]:
    """Let each function fill the file next to it, all or none; return their paths.

    Raises:
        ScenarioError: the operating system refuses one of them.
    """
    written: list[tuple[Path, Path, Path]] = []
    try:
        for path, write in files:
            try:
                place = _followed(path)
                aside = _aside(place)
                written.append((aside, place, path))
                write(aside)
            except OSError as error:
                raise _refused(path, error) from None
        for aside, place, path in written:
            try:
                _rename(aside, place)
            except OSError as error:
                raise _refused(path, error) from None
    finally:
        for aside, _, _ in written:
            _remove(aside)
    return [path for _, _, path in written]


@contextmanager
def folder_to_fill(path: str | Path) -> Iterator[Path]:
    """Make a folder, with those it lies in; unless it is filled, it is not left behind.

    Raises:
        ScenarioError: the operating system refuses.
    """
    folder = Path(path)
    stood = os.path.exists(folder)  # unlike pathlib's, for a name of any length
    try:
        _refuse_name(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, error) from None
    try:
        yield folder
    except BaseException:
        if not stood:
            with suppress(OSError):
                folder.rmdir()  # which refuses a folder that holds anything
        raise


def json_bytes(data: dict[str, Any]) -> bytes:
    """Return `data` as indented JSON that ends in a newline; what is not finite is null."""
    try:
        encoded = msgspec.json.encode(data)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_text_in_utf8(msgspec.to_builtins(data)))
    return msgspec.json.format(encoded, indent=1) + b"\n"


def write_json(data: dict[str, Any], path: str | Path) -> None:
    """Write `data` as JSON to `path`. Raises as `write_aside`."""
    write_bytes(path, json_bytes(data))


def _write_bytes(aside: Path, data: bytes) -> None:
    aside.write_bytes(data)


def _utf8(text: str) -> bytes:
    """Return text as UTF-8, though it names a file whose bytes the locale could not decode."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        pass
    try:
        raw = text.encode("utf-8", "surrogateescape")  # the bytes of the name
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "replace")
    return raw.decode("utf-8", "replace").encode("utf-8")


def _text_in_utf8(data: Any) -> Any:
    """Return plain data with all of its text as UTF-8 can hold it."""
    if isinstance(data, str):
        return _utf8(data).decode("utf-8")
    if isinstance(data, dict):
        return {_text_in_utf8(key): _text_in_utf8(value) for key, value in data.items()}
    return [_text_in_utf8(one) for one in data] if isinstance(data, list | tuple) else data


_number = itertools.count()  # of the files aside that this process has named
_DESCRIPTOR = re.compile(r"(?:/dev|/proc/self)/fd/(\d+)")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_LONGEST_SUFFIX = 20  # characters: a longer one is no format's


def _followed(path: Path) -> Path:
    """Return the file to write: where a link leads, though nothing may be there yet."""
    _refuse_name(path)
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if place.is_file() and not os.access(place, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return place


def _refuse_name(path: Path) -> None:
    """Raise ScenarioError for a zero or half a surrogate, of which Python has its own errors."""
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise ScenarioError(f"{str(path)!r}: no file can have this name.")


def _aside(path: Path) -> Path:
    """Return a name next to `path`, short whatever its length, with the suffix of the format."""
    suffix = "".join(path.suffixes[-2:])
    if len(suffix) > _LONGEST_SUFFIX:
        suffix = path.suffix if len(path.suffix) <= _LONGEST_SUFFIX else ""
    return path.with_name(f".commsim-{os.getpid()}-{next(_number)}{suffix}")


def _rename(aside: Path, place: Path) -> None:
    """Put a whole file in its place, with the permissions of what stood there."""
    if place.is_file():
        os.chmod(aside, stat.S_IMODE(place.stat().st_mode))
    os.replace(aside, place)


def _remove(aside: Path) -> None:
    """Remove what was not renamed; a folder that nothing was written to may be read-only."""
    with suppress(OSError):
        aside.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Say whether a path is a device or a pipe, or an open file's number (/dev/stdout)."""
    if _descriptor(path) is not None:
        return True
    return path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()


def _descriptor(path: Path) -> int | None:
    found = _DESCRIPTOR.fullmatch(str(path))
    return int(found[1]) if found else _STANDARD.get(str(path))


def _copy_to(target: Path, write: Callable[[Path], object]) -> None:
    import shutil
    import tempfile  # with shutil 5 ms, for what few commands ask

    with tempfile.TemporaryDirectory(prefix="commsim-") as folder:
        whole = _aside(Path(folder) / target.name)
        write(whole)
        with whole.open("rb") as source, _opened(target) as sink:
            shutil.copyfileobj(source, sink)


def _opened(target: Path) -> IO[bytes]:
    """Open a device or a pipe; an open file's number goes on where that file stands."""
    number = _descriptor(target)
    if number is None:
        return target.open("wb")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fdopen(os.dup(number), "wb")


def _refused(path: Path, error: OSError) -> ScenarioError:
    return ScenarioError(f"{path}: cannot be written: {error.strerror or error}.")
