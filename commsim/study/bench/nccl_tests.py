"""
How nccl-tests counts: its sizes, element counts, types and columns, op by op.

Source: github NVIDIA/nccl-tests, src/common.cu (`TimeTest`, `datatype` names) and
`*GetCollByteCount` of each src/*.cu. "size" is what a rank sends or receives, whichever is
more; ops that deal out equal blocks round the block down to 16 bytes.
"""

from __future__ import annotations

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.ops import NCCL_TESTS_TYPES, REDUCING, ROOTED, element_type

__all__ = ["BENCH_OPS", "BenchedShape", "check_names", "op_of", "shape_of", "sweep"]

BENCH_OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "scatter", "gather",
    "all_to_all", "send_recv",
)  # fmt: skip

_ALIGNED_BLOCKS = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
_PLAIN_BLOCKS = frozenset({"scatter", "gather"})
_MOST_SIZES = 10_000


_PROGRAMS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}  # spelt otherwise there


def op_of(name: str) -> str:
    """Return the op that a program of nccl-tests times: "alltoall_perf" is all_to_all."""
    op = name.removesuffix("_perf")
    return _PROGRAMS.get(op, op)


class BenchedShape(msgspec.Struct, frozen=True):
    """One line of nccl-tests before it is timed: `size` in bytes, `count` in elements."""

    size: int
    count: int
    redop: str
    root: int


def shape_of(op: str, size: int, *, dtype: str, ranks: int) -> BenchedShape:
    """Return what nccl-tests really moves when it is asked for `size` bytes."""
    word = NCCL_TESTS_TYPES[dtype]
    count = size // word
    if op in _ALIGNED_BLOCKS or op in _PLAIN_BLOCKS:
        count //= ranks
        if op in _ALIGNED_BLOCKS:
            count -= count % max(16 // word, 1)
        moved = count * ranks * word
    else:
        moved = count * word
    redop = "sum" if op in REDUCING else "none"
    return BenchedShape(moved, count, redop, 0 if op in ROOTED else -1)


def sweep(first: int, last: int, factor: float) -> list[int]:
    """Return sizes from `first` to `last` bytes, each `factor` times the one before.

    Raises:
        ScenarioError: sizes or a factor that lead nowhere.
    """
    if first < 1 or last < first:
        raise ScenarioError(
            f"sizes from {first} to {last} bytes: -b must be at least 1, and -e at least -b."
        )
    if not 1 < factor < float("inf"):
        raise ScenarioError(f"-f {factor:g}: the factor between sizes must be above 1.")
    sizes, size = [], first
    while size <= last:
        sizes.append(size)
        size = max(size + 1, int(size * factor))
        if len(sizes) > _MOST_SIZES:
            raise ScenarioError(f"-f {factor:g}: more than {_MOST_SIZES} sizes; take a larger one.")
    return sizes


def check_names(ops: list[str], dtype: str) -> None:
    """Raise ScenarioError for an op or a type that cannot be benched."""
    for op in ops:
        if op == "all_to_all_v":
            raise ScenarioError(
                "all_to_all_v: its bytes differ by pair. Write a scenario with"
                " workload.collectives and its splits, and use `commsim run`."
            )
        if op not in BENCH_OPS:
            raise ScenarioError(
                f"{op!r} is not an op to bench.{did_you_mean(op, BENCH_OPS)}"
                f" Known: {', '.join(BENCH_OPS)}."
            )
    if dtype not in NCCL_TESTS_TYPES:
        raise ScenarioError(
            f"-d {dtype}: unknown type.{_type_meant(dtype)} Known: {', '.join(NCCL_TESTS_TYPES)}."
        )


def _type_meant(dtype: str) -> str:
    """Ask whether the type is meant that other tools call so ("fp16" is half), or one like it."""
    known = element_type(dtype)
    meant = [name for name in NCCL_TESTS_TYPES if known is not None and element_type(name) == known]
    return f" Did you mean {meant[0]!r}?" if meant else did_you_mean(dtype, NCCL_TESTS_TYPES)
