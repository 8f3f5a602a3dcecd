"""
The JSON that nccl-tests writes with -J, version 1 (github NVIDIA/nccl-tests, src/util.cu).
"""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath

import msgspec

from commsim.errors import TraceError
from commsim.traces.formats.nccl_tests.table import (
    PROGRAMS,
    TYPES,
    BenchedDevice,
    BenchedRow,
    BenchedTiming,
    Count,
    NcclTests,
    is_time,
    program_op,
)

__all__ = ["is_nccl_tests_json", "read_json"]

_ROOT = re.compile(r"\s*(-?\d{1,18})\s*")


class _Timing(msgspec.Struct, frozen=True):
    """`time` is `cpu_time` if -C asked for it; "nan" is how it writes what is not a number."""

    time: float | str | None = None
    cpu_time: float | str | None = None
    alg_bw: float | str = 0.0
    bus_bw: float | str = 0.0
    nwrong: float | str | None = None


class _JsonRow(msgspec.Struct, frozen=True):
    size: Count
    type: str
    count: Count = 0
    redop: str | None = None
    root: str | int | None = None
    out_of_place: _Timing | None = None
    in_place: _Timing | None = None


class _JsonDevice(msgspec.Struct, frozen=True):
    rank: int
    hostname: str = ""
    group: int = 0
    pid: int = 0
    device: int = 0
    device_info: str = ""


class _Config(msgspec.Struct, frozen=True):
    devices: list[_JsonDevice] = []


class _Bounds(msgspec.Struct, frozen=True):
    count: int = 0


class _NcclTestsJson(msgspec.Struct, frozen=True):
    results: list[_JsonRow]
    version: int = 1
    args: list[str] = []
    nccl_version: int | None = None
    config: _Config = _Config()
    out_of_bounds: _Bounds = _Bounds()


def is_nccl_tests_json(data: bytes | bytearray) -> bool:
    """Whether a file's content is JSON with nccl-tests' rows in it."""
    timed = b'"out_of_place"' in data or b'"in_place"' in data
    return timed and data.lstrip()[:1] == b"{" and b'"results"' in data


def read_json(data: bytes | bytearray, source: str) -> NcclTests:
    """Return the table of a JSON file. Raises TraceError if it is none."""
    try:
        file = msgspec.json.decode(data, type=_NcclTestsJson)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{source}: not the JSON of nccl-tests ({error}). If its run was stopped, the file is"
            " cut off: run it again, or give the text that it printed."
        ) from None
    rows = tuple(_row(row, source) for row in file.results)
    if not rows:
        raise TraceError(f"{source}: nccl-tests wrote no result into it.")
    wrong = file.out_of_bounds.count
    notes = (f"nccl-tests found {wrong} wrong values.",) if wrong else ()
    return NcclTests(
        op=program_op(_program(file.args, source), source),
        rows=rows,
        devices=tuple(
            BenchedDevice(d.rank, d.group, d.pid, d.hostname, d.device, d.device_info)
            for d in file.config.devices
        ),
        nccl=_version(file.nccl_version),
        source=source,
        notes=notes,
    )


def _version(code: int | None) -> str | None:
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}" if code else None


def _program(args: list[str], source: str) -> str:
    name = PurePosixPath(args[0]).name if args else ""
    program = name.removesuffix("_mpi").removesuffix("_perf")
    if program not in PROGRAMS:
        raise TraceError(f"{source}: args says {name!r}, which is no program of nccl-tests.")
    return program


def _row(row: _JsonRow, source: str) -> BenchedRow:
    if row.type not in TYPES:
        raise TraceError(f"{source}: type {row.type!r} is not one of nccl-tests'.")
    out, inside = _timing(row.out_of_place), _timing(row.in_place)
    if out is None and inside is None:
        raise TraceError(f"{source}: the row of {row.size} bytes has no time.")
    found = _ROOT.fullmatch(str(row.root))
    root = int(found[1]) if found else None
    return BenchedRow(row.size, row.count, row.type, row.redop, root, out, inside)


def _timing(timing: _Timing | None) -> BenchedTiming | None:
    if timing is None:
        return None
    time = _number(timing.cpu_time if timing.time is None else timing.time)
    if time is None or not is_time(time):
        return None
    algbw, busbw = _number(timing.alg_bw) or 0.0, _number(timing.bus_bw) or 0.0
    return BenchedTiming(time, algbw, busbw, _number(timing.nwrong))


def _number(value: float | str | None) -> float | None:
    """Return a number; None for null and "nan", and what is no time or rate."""
    return float(value) if isinstance(value, float | int) and 0 <= value < math.inf else None
