"""
Files that a user names as inputs: a file where it lies, and a pipe read once into a copy.

A pipe (`<(zcat x.gz)`, `/dev/stdin`, a FIFO, "-" for standard input) can be read once and from its
beginning only, but what is read here is looked at several times: to see what it is, then to read
it. So whoever opens an input opens `readable(path)`, and calls it `path` in what it tells.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import tempfile

__all__ = ["STDIN", "file_problem", "is_stream", "readable"]

STDIN = "-"
_STDIN_FILE = Path("/dev/stdin")
_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_MOST = 8 * 2**30  # bytes of a pipe: more than any trace
_MOST_OF_DEVICE = 64 * 2**20  # bytes that a terminal or a device gives: /dev/zero has no end
_BLOCK = 2**20


class _Copies:
    """What pipes held, by device and inode: a pipe is read once in a process."""

    folder: tempfile.TemporaryDirectory[str] | None = None
    made: dict[tuple[int, int], Path] = {}


def is_stream(path: str | Path) -> bool:
    """Say whether an input is standard input, a pipe or a device: its name tells no format."""
    name = str(path)
    if name == STDIN or name.startswith(_STREAMS):
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def readable(path: str | Path) -> Path:
    """Return where the content of an input lies: the path itself, or the copy of a pipe.

    The copy is a temporary file for as long as the process lives.

    Raises:
        OSError: there is no such file, it cannot be read, or a pipe holds more than any trace.
    """
    path = _STDIN_FILE if str(path) == STDIN else Path(path)
    found = os.stat(path)
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        return path
    key = found.st_dev, found.st_ino
    if key not in _Copies.made:
        _Copies.made[key] = _copied(path, found.st_mode)
    return _Copies.made[key]


def _copied(path: Path, mode: int) -> Path:
    import tempfile  # 5 ms, for pipes alone

    if _Copies.folder is None:
        _Copies.folder = tempfile.TemporaryDirectory(prefix="commsim-")
    copy = Path(_Copies.folder.name) / f"pipe{len(_Copies.made)}"
    most = _MOST_OF_DEVICE if stat.S_ISCHR(mode) else _MOST
    with _opened(path) as pipe, copy.open("wb", buffering=0) as file:
        while block := pipe.read(_BLOCK):
            _keep(block, file, path)
            if file.tell() > most:
                raise OSError(errno.EFBIG, f"holds more than {most // 2**20:,} MiB", path)
    return copy


def _keep(block: bytes, file: IO[bytes], path: Path) -> None:
    """Write all of a block of a pipe to its copy; if that is refused, say where the copy is."""
    left = memoryview(block)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        told = f"its copy in {Path(file.name).parent.parent}: {error.strerror}"
        raise OSError(error.errno, told, path) from None


def _opened(path: Path) -> IO[bytes]:
    """Open a pipe; standard input as it stands, since a socket there has no file to open."""
    return os.fdopen(os.dup(0), "rb") if path == _STDIN_FILE else path.open("rb")


def file_problem(path: str | Path) -> str:
    """Return why an input is no file that can be read, as what follows its name; "" if it is."""
    standard = str(path) in (STDIN, str(_STDIN_FILE))
    try:
        mode = os.fstat(0).st_mode if standard else os.stat(path).st_mode
    except OSError as error:
        return "is closed" if standard else _unreachable(path, error)
    except ValueError:
        return "no file can have this name"
    if stat.S_ISDIR(mode):
        return "is a folder, and a file is needed"
    if not standard and not os.access(path, os.R_OK):
        return f"cannot be read ({os.strerror(errno.EACCES)})"
    return ""


def _unreachable(path: str | Path, error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "is a link that leads back to itself"
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        return f"cannot be read ({error.strerror})"
    if os.path.islink(path):
        return f"is a link to {os.readlink(path)}, which is not there"
    return "there is no such file"
