"""
Read many large Kineto files, by several processes where they are much together.

A process sends back a `RankPart`, which is small compared to the file it came from.
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from commsim.errors import TraceError
from commsim.input_files import is_stream
from commsim.traces.formats import KinetoFile, documents, is_kineto, is_tar, read_kineto
from commsim.traces.rebuild.rank import RankPart, rank_part

__all__ = ["large_kineto", "read_parts", "serve"]

_LARGE = 4 * 2**20  # bytes on disk: less is read with all others
_WORTH = 96 * 2**20  # bytes of text: two processes take as long to start as half of it to read
_PACKED = 12  # bytes of a trace's text to one of its gzip
_HEAD = 2**16
_MOST = 16  # processes: each holds a file of its own in memory
_LOOK = 0.2  # seconds between two looks at how far they are
_SIZE = struct.Struct("<q")


def large_kineto(files: Sequence[Path]) -> list[Path]:
    """Return the files that look like large Kineto traces; none if there is only one."""
    found = [file for file in files if _is_large(file) and _looks_kineto(file)]
    return found if len(found) > 1 else []


def _is_large(file: Path) -> bool:
    """Say whether a file is large; what a pipe holds is read by this process alone."""
    return not is_stream(file) and file.stat().st_size >= _LARGE


def _looks_kineto(file: Path) -> bool:
    with file.open("rb") as opened:
        head = opened.read(_HEAD)
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error:
            return False
    if is_tar(head):
        return False
    return b'"schemaVersion"' in head or is_kineto(head)


def read_parts(files: Sequence[Path], tell: Callable[[int], None] | None) -> list[RankPart]:
    """Read files, one rank each, by as many processes as there are processors.

    Raises:
        TraceError: a file cannot be read.
    """
    count = min(len(files), len(os.sched_getaffinity(0)), _MOST)
    if count < 2 or sum(map(_text, files)) < _WORTH:
        return [_counted(_read(file), at, tell) for at, file in enumerate(files)]
    parts: dict[int, RankPart] = {}
    with ThreadPoolExecutor(count) as pool:
        shares = [list(range(len(files)))[first::count] for first in range(count)]
        jobs = [pool.submit(_ask, files, share, parts) for share in shares]
        waiting = set(jobs)
        while waiting:
            _, waiting = wait(waiting, timeout=_LOOK)
            if tell:
                tell(len(parts))
        for job in jobs:
            job.result()
    return [parts[at] if at in parts else _read(file) for at, file in enumerate(files)]


def _text(file: Path) -> int:
    """Return about how many bytes a file has unpacked."""
    return file.stat().st_size * (_PACKED if file.suffix == ".gz" else 1)


def _ask(files: Sequence[Path], share: Sequence[int], parts: dict[int, RankPart]) -> None:
    """Let a process of its own read some of the files, and take what it sends back.

    It is a fresh interpreter: a fork would copy our threads' locks, and what multiprocessing
    starts runs the user's script again. What it does not send, the caller reads itself.
    """
    words = [*sys.path, "--", *(str(files[at].absolute()) for at in share)]
    try:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, *words], stdout=subprocess.PIPE)
    except OSError:
        return
    with process:
        assert process.stdout is not None
        for at in share:
            head = process.stdout.read(_SIZE.size)
            if len(head) < _SIZE.size:
                return
            try:
                sent = pickle.loads(process.stdout.read(_SIZE.unpack(head)[0]))
            except (pickle.PickleError, EOFError, ValueError, OverflowError, MemoryError):
                return  # something else in that process wrote to stdout
            if isinstance(sent, str):
                process.kill()
                raise TraceError(sent)
            parts[at] = sent


_PROGRAM = (
    "import sys; words = sys.argv[1:]; cut = words.index('--'); sys.path[:] = words[:cut];"
    " from commsim.traces.parallel import serve; serve(words[cut + 1:])"
)


def serve(names: Sequence[str]) -> None:
    """Read files, and write what each came to on stdout, as `_ask` reads it."""
    for name in names:
        try:
            sent: RankPart | str = _read(Path(name))
        except TraceError as error:
            sent = str(error)
        packed = pickle.dumps(sent, protocol=pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.write(_SIZE.pack(len(packed)) + packed)
        sys.stdout.buffer.flush()


def _counted(part: RankPart, before: int, tell: Callable[[int], None] | None) -> RankPart:
    if tell:
        tell(before + 1)
    return part


def _read(file: Path) -> RankPart:
    gc.disable()  # nothing here is freed before the end, and nothing is in cycles
    try:
        found = _kineto(file)
        return rank_part(found, rank=found.rank)
    finally:
        gc.enable()


def _kineto(file: Path) -> KinetoFile:
    """Read a file whose text is dropped before anything is made of its events."""
    (document,) = documents(file)
    return read_kineto(document)
