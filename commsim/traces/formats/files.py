"""
Trace files as they lie: .json, .json.gz and tar archives, plain bytes within limits.

Nothing is extracted to disk, and nothing is read past a limit: a small file that unpacks to
far more than a trace ever does is refused before it fills the memory.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from commsim.errors import TraceError
from commsim.input_files import file_problem, readable
from commsim.units import format_size

__all__ = [
    "BAD_JSON", "Data", "Document", "FileLimits", "documents", "find_files", "is_tar",
    "wrong_encoding",
]  # fmt: skip

Data = bytes | bytearray
BAD_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What msgspec raises over JSON that is none."""
_BLOCK = 2**20
_GZIP, _USTAR_AT, _USTAR = b"\x1f\x8b", 257, b"ustar"
_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{", b"[\0", b"\0[")
_SUFFIXES = (
    ".json", ".json.gz", ".gz", ".tgz", ".tar", ".et", ".xml", ".pkl", ".pickle", ".goal", ".log",
    ".sqlite", ".csv", "_results.db",
)  # fmt: skip
_DUMP = re.compile(r"rank_?\d+$")  # what torch names a flight recorder's dump


class FileLimits(msgspec.Struct, frozen=True):
    """How much one file may hold. Traces pack 8 to 40 times; `ratio` counts past `free`."""

    unpacked: int = 8 * 2**30
    ratio: int = 200
    free: int = 64 * 2**20
    members: int = 100_000


_LIMITS = FileLimits()


class Document(msgspec.Struct, frozen=True):
    """One file's content. `name` is the path as given, with the member for an archive.

    `cut` says that the packed file ended early, so that the content does too.
    """

    name: str
    data: Data
    cut: bool = False


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files that could be traces: each file as given, each folder's content, sorted.

    Raises:
        TraceError: a path does not exist, or a folder holds no such file.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if os.path.isdir(path):  # unlike pathlib's, for a name of any length
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _looks_right(p))
            if not inside:
                raise TraceError(
                    f"{path}: no trace in this folder."
                    " A trace is a .json or .json.gz file, alone or in a .tar.gz."
                )
            found += inside
        elif problem := file_problem(path):
            raise TraceError(f"{path}: {problem}.")
        else:
            found.append(path)
    return found


def is_tar(head: bytes) -> bool:
    """Say whether a file that begins so is a tar archive."""
    return head[_USTAR_AT : _USTAR_AT + len(_USTAR)] == _USTAR


def wrong_encoding(data: Data) -> str | None:
    """Return what to tell whoever wrote text in UTF-16, as PowerShell's `>` does; else None."""
    if not data.startswith(_UTF_16):
        return None
    return (
        "is UTF-16, and UTF-8 is read. Write it again (in PowerShell: `| Out-File -Encoding utf8`)."
    )


def _looks_right(path: Path) -> bool:
    name = path.name.lower()
    known = name.endswith(_SUFFIXES) or _DUMP.search(name) is not None
    return known and not name.startswith(".")


def documents(path: Path, limits: FileLimits = _LIMITS) -> Iterator[Document]:
    """Yield each document in `path`, unpacked; the archive's folders and links are passed over.

    Raises:
        TraceError: the file cannot be read, or unpacks past the limits.
    """
    try:
        with readable(path).open("rb") as file:
            source = _Unpacked(file, path, limits)
            head = source.peek(_USTAR_AT + len(_USTAR))
            if is_tar(head):
                yield from _members(source, path, limits)
            else:
                data = source.read_all()
                if data.startswith(_UTF_8_MARK):
                    del data[: len(_UTF_8_MARK)]
                yield Document(str(path), data, source.cut)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror or error}).") from None


def _members(source: _Unpacked, path: Path, limits: FileLimits) -> Iterator[Document]:
    count = 0
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                count += 1
                if count > limits.members:
                    raise TraceError(f"{path}: more than {limits.members} files in one archive.")
                name = member.name.rsplit("/", 1)[-1]
                plain = member.isfile() and not member.issparse()
                content = archive.extractfile(member) if plain else None
                if content is None or name.startswith("."):
                    continue  # "._x" is what macOS adds next to x
                yield _member(f"{path}:{member.name}", content, member.size, limits)
        early = source.lacks_a_record()
    except tarfile.TarError as error:
        if not count:
            raise TraceError(f"{path}: not a readable archive ({error}).") from None
        early = True
    if early:
        yield Document(f"{path} (end of archive)", b"", cut=True)


def _member(name: str, content: IO[bytes], size: int, limits: FileLimits) -> Document:
    if size > limits.unpacked:
        raise TraceError(f"{name}: {format_size(size)} is over {format_size(limits.unpacked)}.")
    data = b""
    try:
        data = content.read()
    except tarfile.ReadError:
        return Document(name, data, cut=True)
    if data.startswith(_GZIP):
        inner = _Unpacked(io.BytesIO(data), Path(name), limits)
        return Document(name, inner.read_all(), inner.cut)
    return Document(name, data, cut=len(data) < size)


class _Unpacked(io.RawIOBase):
    """A file read through gzip if it is packed, watching how much comes out."""

    def __init__(self, file: IO[bytes], path: Path, limits: FileLimits) -> None:
        self._file, self._path, self._limits = file, path, limits
        self._ready = bytearray()
        self._packed = self._unpacked = 0
        self.cut = False
        first = file.read(2)
        file.seek(0)
        self._unzip = zlib.decompressobj(wbits=31) if first == _GZIP else None

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes without taking them."""
        self._fill(count)
        return bytes(self._ready[:count])

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, fewer at the end, all of them for -1."""
        wanted = self._limits.unpacked + 1 if size is None or size < 0 else size
        self._fill(wanted)
        taken = bytes(self._ready[:wanted])
        del self._ready[:wanted]
        return taken

    def read_all(self) -> bytearray:
        """Return what is left, without a second copy of it in memory."""
        self._fill(self._limits.unpacked + 1)
        taken, self._ready = self._ready, bytearray()
        return taken

    def lacks_a_record(self) -> bool:
        """Say whether an archive ended inside a record: tarfile takes that for its end."""
        return self.cut or (self._unzip is None and self._unpacked % tarfile.BLOCKSIZE > 0)

    def _fill(self, count: int) -> None:
        while len(self._ready) < count:
            block = self._next_block()
            if not block:
                return
            self._ready += block
            self._unpacked += len(block)
            self._check()

    def _next_block(self) -> bytes:
        if self._unzip is None:
            return self._file.read(_BLOCK)
        while True:
            left = self._unzip.unconsumed_tail or self._take_packed()
            if not left:
                self.cut = not self._unzip.eof
                return b""
            try:
                block = self._unzip.decompress(left, _BLOCK)
            except zlib.error as error:
                if not self._unpacked:
                    raise TraceError(f"{self._path}: not a readable gzip file ({error}).") from None
                self.cut = True
                return b""
            if block:
                return block

    def _take_packed(self) -> bytes:
        """Return packed bytes, starting the next gzip member where one ended."""
        assert self._unzip is not None
        if not self._unzip.eof:
            return self._read_packed()
        rest = self._unzip.unused_data
        if len(rest) < len(_GZIP):
            rest += self._read_packed()
        if not rest.startswith(_GZIP):
            return b""
        self._unzip = zlib.decompressobj(wbits=31)
        return rest

    def _read_packed(self) -> bytes:
        block = self._file.read(_BLOCK)
        self._packed += len(block)
        return block

    def _check(self) -> None:
        limits = self._limits
        allowed = limits.free + limits.ratio * self._packed if self._unzip else limits.unpacked
        if self._unpacked > min(allowed, limits.unpacked):
            raise TraceError(
                f"{self._path}: unpacks to more than {format_size(min(allowed, limits.unpacked))};"
                " no trace does. Refused."
            )
