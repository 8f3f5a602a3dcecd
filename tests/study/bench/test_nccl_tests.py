"""How nccl-tests counts: its sizes, counts, types and names, op by op (src/*.cu)."""

from __future__ import annotations

import pytest

from commsim.errors import ScenarioError
from commsim.study.bench.nccl_tests import (
    BENCH_OPS,
    BenchedShape,
    check_names,
    op_of,
    shape_of,
    sweep,
)


@pytest.mark.parametrize(
    ("op", "size", "dtype", "ranks", "shape"),
    [
        # Whole buffers: as many elements as fit.
        ("all_reduce", 1023, "float", 8, (1020, 255, "sum", -1)),
        ("reduce", 1024, "float", 8, (1024, 256, "sum", 0)),
        ("broadcast", 7, "half", 8, (6, 3, "none", 0)),
        ("send_recv", 1025, "int8", 8, (1025, 1025, "none", -1)),
        # A block for each rank, down to 16 bytes: of 1000 bytes 125 each, which is 112.
        ("all_gather", 1000, "int8", 8, (896, 112, "none", -1)),
        ("reduce_scatter", 1000, "float", 8, (896, 28, "sum", -1)),
        ("all_to_all", 1024, "double", 4, (1024, 32, "none", -1)),
        ("all_gather", 100, "float", 8, (0, 0, "none", -1)),
        # A block for each rank as it comes: 250 elements by 8.
        ("scatter", 1000, "float", 8, (992, 31, "none", 0)),
        ("gather", 1000, "float", 8, (992, 31, "none", 0)),
    ],
)  # fmt: skip
def test_what_is_moved_for_a_size(
    op: str, size: int, dtype: str, ranks: int, shape: tuple[int, int, str, int]
) -> None:
    assert shape_of(op, size, dtype=dtype, ranks=ranks) == BenchedShape(*shape)


def test_sizes_grow_by_a_factor_and_by_a_byte_at_least() -> None:
    assert sweep(8, 64, 2) == [8, 16, 32, 64]
    assert sweep(8, 63, 2) == [8, 16, 32]
    assert sweep(1, 4, 1.1) == [1, 2, 3, 4]
    assert sweep(10, 40, 1.5) == [10, 15, 22, 33]
    assert sweep(5, 5, 2) == sweep(5, 5, 1.001) == [5]
    assert len(sweep(1, 10_000, 1.00001)) == 10_000


@pytest.mark.parametrize(
    ("first", "last", "factor", "says"),
    [
        (0, 8, 2, "-b must be at least 1"), (9, 8, 2, "-e at least -b"), (8, 8, 1, "above 1"),
        (8, 8, float("inf"), "above 1"), (8, 8, float("nan"), "above 1"),
        (1, 10_001, 1.00001, "more than 10000 sizes"),
    ],
)  # fmt: skip
def test_sizes_that_lead_nowhere_are_refused(
    first: int, last: int, factor: float, says: str
) -> None:
    with pytest.raises(ScenarioError, match=says):
        sweep(first, last, factor)


def test_programs_have_names_of_their_own() -> None:
    assert [op_of(name) for name in ("alltoall_perf", "sendrecv", "all_reduce_perf", "gather")] == [
        "all_to_all", "send_recv", "all_reduce", "gather",
    ]  # fmt: skip


def test_what_cannot_be_benched_is_named() -> None:
    check_names(list(BENCH_OPS), "float")
    for ops, dtype, says in (
        (["all_reduce", "all_to_all_v"], "float", "its bytes differ by pair"),
        (["all_reduc"], "float", "'all_reduc' is not an op to bench"),
        (["all_reduce"], "floot", "-d floot: unknown type"),
        (["all_reduce"], "fp32", "Did you mean 'float'[?] Known: int8"),
        (["all_reduce"], "f64", "Did you mean 'double'[?]"),
        (["all_reduce"], "torch.float16", "Did you mean 'half'[?]"),
        (["all_reduce"], "bf16", "Did you mean 'bfloat16'[?]"),
        (["all_reduce"], "int", "Did you mean 'int32'[?]"),
        (["all_reduce"], "fp8", "Did you mean 'f8e4m3'[?]"),
        (["all_reduce"], "FLOAT", "Did you mean 'float'[?]"),
    ):
        with pytest.raises(ScenarioError, match=says):
            check_names(ops, dtype)
