"""
Read what nccl-tests printed: its text in the layouts since 2019, or the JSON that `-J` writes.

    # nccl-tests version 2.17.6 nccl-headers=22808 nccl-library=22808
    # Collective test starting: all_reduce_perf
    #  Rank  0 Group  0 Pid 2994447 on  lab device  0 [0000:02:00] NVIDIA GeForce RTX 5090
    #    size    count   type  redop   root    time  algbw  busbw #wrong   time  algbw  busbw #wrong
       1048576  262144  float    sum     -1   67.31  15.58  27.26      0  65.27  16.07  28.11      0

A line may carry whatever `mpirun --tag-output`, `srun -l` or kubectl put before it, and other
output may stand between lines. Columns that an op does not have (root, redop) are missing in
versions before 2.13; rccl-tests prints the same. Layouts: github NVIDIA/nccl-tests, src/util.cu
(2025) and src/common.cu with each op's print_header (before).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from commsim.errors import TraceError
from commsim.input_files import file_problem
from commsim.traces.formats.files import documents
from commsim.traces.formats.nccl_tests.inspector import is_inspector_log, read_inspector_log
from commsim.traces.formats.nccl_tests.json_file import is_nccl_tests_json, read_json
from commsim.traces.formats.nccl_tests.table import (
    PROGRAMS,
    TYPES,
    BenchedDevice,
    BenchedRow,
    BenchedTiming,
    NcclTests,
    described,
    is_time,
    program_op,
)

__all__ = ["is_nccl_tests", "load_nccl_tests", "read_nccl_tests"]

_TYPE = "|".join(sorted(TYPES, key=len, reverse=True))
_ROW = re.compile(rf"(?:^|[\s>\]:])(\d{{1,18}})\s+(\d{{1,18}})\s+({_TYPE})\s+(\S.*)$")
_N = r"\d{1,18}"
_PROGRAM = re.compile(rf"\b({'|'.join(PROGRAMS)})_perf(?:_mpi)?\b")
_DEVICE = re.compile(
    rf"#\s+Rank\s+({_N})\s+(?:Group\s+({_N})\s+)?Pid\s+({_N})\s+on\s+(\S+)\s+device\s+({_N})"
    r"\s+\[[^\]]*\]\s*(.*)"
)
_SETTINGS = re.compile(r"#\s*nThread\s+\d+\s+nGpus\s+\d+\s+minBytes")
_LIBRARY = re.compile(r"nccl-library=(\d{1,9})")
_SAID = re.compile(r"NCCL version (\d+)\.(\d+)(?:\.(\d+))?")
_WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,18})")
_REDOPS = frozenset({"none", "sum", "prod", "max", "min", "avg", "mulsum"})
_TIMESTAMP = re.compile(r"\s+\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\s*$")


def load_nccl_tests(path: str | Path) -> tuple[NcclTests, ...]:
    """Read the tables of a file, which may be packed; one for each test that it holds.

    Raises:
        TraceError: the file cannot be read, or holds no table of nccl-tests.
    """
    path = Path(path)
    if problem := file_problem(path):
        raise TraceError(f"{path}: {problem}.")
    tables = [t for document in documents(path) for t in read_nccl_tests(document.data, str(path))]
    return tuple(tables)


def is_nccl_tests(data: bytes | bytearray) -> bool:
    """Whether a file's content looks like what nccl-tests wrote."""
    if is_nccl_tests_json(data) or is_inspector_log(data):
        return True
    text = data[: 4 * 2**20].decode("utf-8", "replace")
    return any(_cells(line) is not None for line in text.splitlines())


def read_nccl_tests(data: bytes | bytearray, source: str) -> tuple[NcclTests, ...]:
    """Return the tables of a file's content; `source` is what errors call it.

    Raises:
        TraceError: it holds no row of nccl-tests, or does not say which op ran.
    """
    if is_nccl_tests_json(data):
        return (described(read_json(data, source)),)
    if is_inspector_log(data):
        return read_inspector_log(data, source)
    text = data.decode("utf-8", "replace")
    tables = tuple(described(part.table(source)) for part in _parts(text) if part.rows)
    if not tables:
        raise TraceError(
            f"{source}: no line of nccl-tests was found. Give the whole output of a test such as"
            " all_reduce_perf, or the JSON that its -J option writes."
        )
    return tables


class _Part(msgspec.Struct):
    """What is known of one test while its lines are read."""

    program: str | None = None
    version: str | None = None
    devices: list[BenchedDevice] = msgspec.field(default_factory=list)
    rows: list[BenchedRow] = msgspec.field(default_factory=list)
    broken: int = 0
    wrong: int = 0
    ended: bool = False

    def table(self, source: str) -> NcclTests:
        notes = []
        if self.broken:
            notes.append(f"{self.broken} lines are broken by other output; they are left out.")
        if self.wrong:
            notes.append(f"nccl-tests found {self.wrong} wrong values.")
        op = program_op(self.program, source) if self.program else _op_by_header(self, source)
        return NcclTests(
            op=op,
            rows=tuple(self.rows),
            devices=tuple(self.devices),
            nccl=self.version,
            source=source,
            notes=tuple(notes),
        )


def _parts(text: str) -> Iterator[_Part]:
    """Cut a log into its tests: each begins at its settings line, or at its command."""
    part = _Part()
    for line in text.splitlines():
        if part.rows and (_SETTINGS.search(line) or _starts_another(part, line)):
            yield part
            part = _Part(program=part.program, version=part.version)
        _take(part, line)
    yield part


def _starts_another(part: _Part, line: str) -> bool:
    """Whether a line names a program that is not the one whose rows were read last."""
    program = _PROGRAM.search(line)
    if program is None or _closing(line):
        return False
    return part.ended or program[1] != part.program


def _closing(line: str) -> bool:
    return "concluded" in line


def _take(part: _Part, line: str) -> None:
    """Put what a line says into the part that it belongs to."""
    cells = _cells(line)
    if cells is not None:
        row = _row(cells)
        if row is None:
            part.broken += 1
        else:
            part.rows.append(row)
    elif device := _DEVICE.search(line):
        rank, group, pid, host, index, name = device.groups()
        part.devices.append(
            BenchedDevice(int(rank), int(group or 0), int(pid), host, int(index), name.strip())
        )
    elif wrong := _WRONG.search(line):
        part.wrong, part.ended = int(wrong[1]), True
    else:
        _take_words(part, line)


def _take_words(part: _Part, line: str) -> None:
    program = _PROGRAM.search(line)
    if program and not _closing(line):
        part.program = program[1]
    if library := _LIBRARY.search(line):
        part.version = _dotted(int(library[1]))
    elif found := _SAID.search(line):
        part.version = ".".join(word for word in found.groups() if word)


def _dotted(code: int) -> str:
    """Write NCCL_VERSION_CODE as people do: 22808 is 2.28.8 (2809 was 2.8.9 before 2.9)."""
    major, rest = (code // 10_000, code % 10_000) if code >= 10_000 else divmod(code, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _cells(line: str) -> tuple[str, ...] | None:
    """Return size, count, type and the rest of a line that is a row, or the start of one."""
    found = None if line.lstrip().startswith("#") else _ROW.search(line)
    return found.groups() if found else None


def _row(cells: tuple[str, ...]) -> BenchedRow | None:
    """Return the row that the cells make; None if other output broke the line."""
    size, count, dtype, rest = cells
    words = _TIMESTAMP.sub("", rest).split()
    redop = words.pop(0) if words and words[0] in _REDOPS else None
    # root, then one or two times (trace replay has no out-of-place) with three figures each
    root = words.pop(0) if len(words) in (5, 9) else None
    timings = [_timing(words[at : at + 4]) for at in range(0, len(words), 4)]
    if len(words) not in (4, 8) or None in timings:
        return None
    out_of_place = timings[0] if len(timings) == 2 else None
    if root is not None and not re.fullmatch(rf"-?{_N}", root):
        return None
    return BenchedRow(
        size=int(size),
        count=int(count),
        type=dtype,
        redop=redop,
        root=None if root is None else int(root),
        out_of_place=out_of_place,
        in_place=timings[-1],
    )


def _timing(words: list[str]) -> BenchedTiming | None:
    try:
        time, algbw, busbw = (float(word) for word in words[:3])
        if not is_time(time) or not all(0 <= figure < math.inf for figure in (algbw, busbw)):
            return None
        return BenchedTiming(time, algbw, busbw, None if words[3] == "N/A" else float(words[3]))
    except (ValueError, IndexError):
        return None


_NAMES = {name: name for name in PROGRAMS} | {
    op: name for name, op in PROGRAMS.items() if op is not None
}
"""The program by its own name, or by that of its op."""


def _op_by_header(part: _Part, source: str) -> str:
    """Tell the op of a log without its program's name, as far as its columns and file name do."""
    named = _PROGRAM.search(source) or re.search(rf"({'|'.join(_NAMES)})", Path(source).name)
    if named:
        return program_op(_NAMES.get(named[1], named[1]), source)
    row = max(part.rows, key=lambda row: row.size)
    whole = row.count * TYPES[row.type] == row.size
    reduces = row.redop not in (None, "none")
    rooted = row.root is not None and row.root >= 0
    if reduces and not rooted:
        return "all_reduce" if whole else "reduce_scatter"
    if rooted and whole:
        return "reduce" if reduces else "broadcast"
    raise TraceError(
        f"{source}: does not say which test ran, and its columns fit several. Keep the line with"
        " the command in it, or name the file after the test, such as all_gather.log."
    )
