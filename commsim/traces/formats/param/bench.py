"""
What PARAM's comms benchmark prints: a line for each op and size, timed through torch.distributed.

    COMMS-RES-all_reduce-float32   1048576   262144   103.5   104.1   106.0  ...  10.131  17.729

Columns: bytes, elements (per rank if the op deals out blocks), the latency in us over ranks (p50,
p75, p95, least, most), algbw and busbw; newer versions append more. Layout: github
facebookresearch/param, comms.py (`reportBenchTimeColl`).
"""

from __future__ import annotations

import math
import re

from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.traces.formats.nccl_tests import (
    BenchedRow,
    BenchedTiming,
    NcclTests,
    described,
    is_time,
)
from commsim.traces.formats.values import FAR

__all__ = ["is_param_bench", "read_param_bench"]

_LINE = re.compile(r"COMMS-RES-([a-z_0-9]+)-([a-z_0-9]+)\S*((?:\s+[\d.]+){9,})")
_OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_base": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_base": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_allv": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""The op of PARAM's --collective; its all_to_allv has even splits unless it is told others."""
_TYPES = {
    "float32": "float", "float16": "half", "float64": "double", "bfloat16": "bfloat16",
    "int32": "int32", "int64": "int64", "int8": "int8", "uint8": "uint8",
}  # fmt: skip
_REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce"})


def is_param_bench(data: bytes | bytearray) -> bool:
    """Whether a file's content has a line of PARAM's comms benchmark."""
    return b"COMMS-RES-" in data


def read_param_bench(data: bytes | bytearray, source: str) -> tuple[NcclTests, ...]:
    """Return a table for each op that was timed.

    Raises:
        TraceError: no line is whole, or none is of an op and a type that commsim can bench.
    """
    rows: dict[str, list[BenchedRow]] = {}
    unknown: set[str] = set()
    for name, dtype, figures in _LINE.findall(data.decode("utf-8", "replace")):
        op, kind, row = _OPS.get(name), _TYPES.get(dtype), figures.split()
        if op is None or kind is None:
            unknown.add(f"{name} of {dtype}")
        else:
            rows.setdefault(op, []).append(_row(row, kind, op, source))
    if not rows:
        found = f"only {', '.join(sorted(unknown))}" if unknown else "no whole line"
        raise TraceError(
            f"{source}: has {found} of PARAM's comms benchmark. Give what comms.py printed, with"
            f" lines COMMS-RES-OP-TYPE of {', '.join(_OPS)}."
        )
    left = (f"left out: {', '.join(sorted(unknown))}.",) if unknown else ()
    return tuple(
        replace(described(NcclTests(op, tuple(own), (), None, source)), notes=left)
        for op, own in rows.items()
    )


def _row(figures: list[str], kind: str, op: str, source: str) -> BenchedRow:
    try:
        size, count = int(figures[0]), int(figures[1])
        median, algbw, busbw = (float(figures[place]) for place in (2, 7, 8))
        if not (size < FAR and count < FAR and is_time(median) and max(algbw, busbw) < math.inf):
            raise ValueError
    except ValueError:
        raise TraceError(
            f"{source}: a line of {op} is broken: {' '.join(figures[:9])}. Run it again, or take"
            " the line out."
        ) from None
    timing = BenchedTiming(median, algbw, busbw, None)
    redop = "sum" if op in _REDUCING else "none"
    return BenchedRow(size, count, kind, redop, None, timing, None)
