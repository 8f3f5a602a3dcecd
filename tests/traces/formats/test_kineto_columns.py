"""Which times of Kineto's events are possible, and the numbers that rows are kept by."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.traces.formats.events import EventKind
from commsim.traces.formats.kineto_columns import _kind, _Names, _possible, _Threads

YEAR_5138 = 1e17  # us


@pytest.mark.parametrize(
    ("begin", "length", "fits"),
    [
        (0.0, 0.0, True), (5.5, 1.0, True), (-5.0, 1.0, True), (0.0, -1.0, False),
        (YEAR_5138, 0.0, False), (-YEAR_5138, 0.0, False), (0.0, YEAR_5138, False),
        (np.nextafter(YEAR_5138, 0), 0.0, True), (-np.nextafter(YEAR_5138, 0), 0.0, True),
        (0.0, np.nextafter(YEAR_5138, 0), True), (np.nan, 0.0, False), (0.0, np.nan, False),
    ],
)  # fmt: skip
def test_a_time_is_finite_and_of_this_era(begin: float, length: float, fits: bool) -> None:
    assert _possible(np.array([[begin], [length]])).tolist() == [fits]


def test_categories_of_all_versions() -> None:
    names = ("cpu_op", "Operator", "Kernel", "kernel", "Memcpy", "gpu_memset", "Runtime", None, "x")
    kind = EventKind
    assert [_kind(name) for name in names] == [
        kind.CPU_OP, kind.CPU_OP, kind.KERNEL, kind.KERNEL, kind.MEMCPY, kind.MEMSET,
        kind.RUNTIME, kind.OTHER, kind.OTHER,
    ]  # fmt: skip


def test_names_and_threads_have_numbers_in_the_order_in_which_they_come() -> None:
    names = _Names()
    assert [names[x] for x in ("a", "c10d::x", "a", "nccl:y", "b")] == [0, 1, 0, 2, 3]
    assert names.communicate == [1, 2]
    threads = _Threads()
    assert [threads[pair] for pair in ((1, 7), ("1", "7"), (1, "x"), (2, 7))] == [0, 0, 1, 2]
    assert list(threads.pairs) == [("1", "7"), ("1", "x"), ("2", "7")]
    assert threads.tids == [7, -1, 7]
