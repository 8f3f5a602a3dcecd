"""
Tables as text: CSV with a known head, after whatever else the profiler printed.

`nsys stats --format csv` prints lines of its own before each table, and several tables into one
file, with an empty line between them; its times have their unit in the head. What a table holds
is known by its columns: `nsys` and `rocprof` beside this file list them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from commsim.errors import TraceError
from commsim.traces.formats.files import Data, Document
from commsim.traces.formats.profiler_tables.nsys import NSYS
from commsim.traces.formats.profiler_tables.rocprof import ROCPROF
from commsim.traces.formats.profiler_tables.rows import ProfilerTable, Row
from commsim.traces.formats.profiler_tables.values import Cells, TableKinds

__all__ = ["is_profiler_table", "read_profiler_tables"]

_HEAD = 2**16  # what nsys prints before the first table is far less
_REPORT = re.compile(
    r"[_-]?(?:(?:cuda_gpu|cuda_kern|cuda_api|nvtx_pushpop|nvtx_startend|nvtx_gpu_proj|kernel"
    r"|hip_api|hip_runtime_api|hip_compiler_api|hsa_api|marker_api|memory_copy|rccl_api)_trace"
    r"|gputrace|cudaapitrace|pushpoptrace|results)?(?:\.csv)?(?:\.gz)?$"
)
_KINDS: TableKinds = {**NSYS, **ROCPROF}


class _Columns(msgspec.Struct, frozen=True):
    """Where each column is, with the ns that its unit has, and who reads a line of it."""

    read: Callable[[Cells], Row | None]
    places: dict[str, tuple[int, float]]


def is_profiler_table(data: Data) -> bool:
    """Say whether a text has a line that heads a known table."""
    head = bytes(data[:_HEAD])
    if b"\0" in head or b"," not in head:
        return False
    lines = head.decode("utf-8", "replace").splitlines()
    return any(_head(cells) is not None for cells in _cells(line for line in lines if "," in line))


def read_profiler_tables(document: Document) -> list[ProfilerTable]:
    """Read every table of a file.

    Raises:
        TraceError: a line that no CSV has.
    """
    rows: list[Row] = []
    columns: _Columns | None = None
    lost = 0
    for cells in _cells(_lines(document), document.name):
        if (found := _head(cells)) is not None:
            columns = found
        elif columns is not None and len(cells) > 1:
            try:
                row = columns.read(Cells(cells, columns.places))
            except (ValueError, IndexError, OverflowError):
                lost += 1
                continue
            if row is not None:
                rows.append(row)
    run = _REPORT.sub("", document.name)
    return [ProfilerTable(document.name, run, tuple(rows), lost, document.cut)]


def _lines(document: Document) -> Iterator[str]:
    """Yield the lines of a file; what was cut off may have lost the end of its last one."""
    with io.TextIOWrapper(io.BytesIO(document.data), "utf-8", "replace", newline="") as text:
        before = None
        for line in text:
            if before is not None:
                yield before
            before = line
        if before is not None and not document.cut:
            yield before


def _cells(lines: Iterable[str], name: str = "") -> Iterator[list[str]]:
    """Yield the cells of each line. Raises TraceError where a file `name` has none."""
    try:
        yield from csv.reader(lines, skipinitialspace=True)
    except csv.Error as error:
        if name:
            raise TraceError(f"{name}: not a readable table ({error}). Export it again.") from None


def _head(cells: list[str]) -> _Columns | None:
    """Return the columns of a line that heads a known table, None for any other line."""
    places: dict[str, tuple[int, float]] = {}
    for at, cell in enumerate(cells):
        name, _, unit = cell.strip().rstrip(")").lower().partition("(")
        places.setdefault(name.strip(), (at, Cells.UNITS.get(unit, 1.0)))
    for (needed, without), read in _KINDS.items():
        if needed <= places.keys() and not without & places.keys():
            return _Columns(read, places)
    return None
