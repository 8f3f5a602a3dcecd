"""
Read many large Kineto files at once, each in a process of its own.

A worker sends back a `RankPart`, which is small beside the file it came from.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from commsim.traces.files import documents, is_tar
from commsim.traces.kineto import is_kineto, read_kineto
from commsim.traces.rank_part import RankPart, rank_part

__all__ = ["large_kineto", "read_parts"]

_LARGE = 4 * 2**20  # bytes on disk: less is read sooner than a process starts
_HEAD = 2**16
_MOST = 16  # workers: each holds a file of its own in memory


def large_kineto(files: Sequence[Path]) -> list[Path]:
    """Return the files that look like large Kineto traces; none where there is only one."""
    found = [file for file in files if file.stat().st_size >= _LARGE and _looks_kineto(file)]
    return found if len(found) > 1 else []


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
    """Read files, one rank each, as many at once as there are processors.

    Raises:
        TraceError: a file cannot be read.
    """
    if not files:
        return []
    workers = min(len(files), len(os.sched_getaffinity(0)), _MOST)
    if workers < 2 or multiprocessing.current_process().daemon:
        return _one_by_one(files, tell)
    parts: dict[Path, RankPart] = {}
    context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "forkserver")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = {pool.submit(_read, file): file for file in files}
        try:
            for job in as_completed(jobs):
                parts[jobs[job]] = _counted(job.result(), len(parts), tell)
        except BrokenProcessPool:
            # Killed for its memory, or started by a script that runs again where it is imported.
            return _one_by_one(files, tell)
        finally:
            pool.shutdown(cancel_futures=True)
    return [parts[file] for file in files]


def _one_by_one(files: Sequence[Path], tell: Callable[[int], None] | None) -> list[RankPart]:
    return [_counted(_read(file), at, tell) for at, file in enumerate(files)]


def _counted(part: RankPart, before: int, tell: Callable[[int], None] | None) -> RankPart:
    if tell:
        tell(before + 1)
    return part


def _read(file: Path) -> RankPart:
    gc.disable()  # nothing here is freed before the end, and nothing is in cycles
    try:
        (document,) = documents(file)
        found = read_kineto(document)
        return rank_part(found, rank=found.rank)
    finally:
        gc.enable()
