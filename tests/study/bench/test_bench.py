"""Sizes, ranks and rows of a bench at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.study.bench import bench
from commsim.study.bench.bench import BenchResult, BenchRow, _bytes, _listed, _ranks
from commsim.study.bench.verdicts import Timed, verdicts

DGX = Cluster.preset("dgx-h100")
ROUNDED = "all_gather: sizes are rounded as nccl-tests does; those left empty are skipped"


@pytest.mark.parametrize(
    ("sizes", "rounded"),
    [
        ([1024, 2048], []), ([2048, 1024, 2048], []),
        ([1000, 2048], [896, 2048]), ([1024, 2050], [1024, 2048]),
        ([100, 1024], [1024]), ([1025, 1030], [1024]),
    ],
)  # fmt: skip
def test_sizes_that_are_not_those_asked_for_are_told(sizes: list[int], rounded: list[int]) -> None:
    """Eight blocks of whole 16 bytes are a multiple of 128."""
    found = bench(DGX, "all_gather", sizes, library="ideal", algo="ring")
    assert [row.size for row in found.results] == (rounded or sorted(set(sizes)))
    assert (ROUNDED in found.notes) is bool(rounded)


def test_nothing_is_left_of_sizes_below_a_block() -> None:
    for sizes in ([0], [127], [0, 64]):
        with pytest.raises(ScenarioError, match="Go up to 128 B at least"):
            bench(DGX, "all_gather", sizes, library="ideal")
    with pytest.raises(ScenarioError, match=r"\[\] names no size"):
        bench(DGX, "all_gather", [])
    with pytest.raises(ScenarioError, match=r"\[\] names no op"):
        bench(DGX, [], [1024])


def test_what_ran_on_what() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=3)
    found = bench(cluster, "all_reduce", 1024, library="ideal", algo="ring", gpus_per_node=2)
    assert (found.system["gpus"], found.system["nodes"], found.system["library"]) == (6, 3, "ideal")
    (row,) = found.results
    assert row.algbw_gbs == pytest.approx(1024 / row.time_us * 1e-3)
    assert row.algbw_gbs is not None
    assert row.busbw_gbs == pytest.approx(row.algbw_gbs * 2 * 5 / 6)
    (sent,) = bench(DGX, "send_recv", 1024, library="ideal").results
    assert sent.busbw_gbs == sent.algbw_gbs


@pytest.mark.parametrize(("count", "ranks"), [
    (None, list(range(16))), (8, list(range(16))), (1, [0, 8]), (3, [0, 1, 2, 8, 9, 10]),
])  # fmt: skip
def test_the_first_gpus_of_each_node(count: int | None, ranks: list[int]) -> None:
    assert _ranks(Cluster.preset("dgx-h100", nodes=2), count) == ranks


@pytest.mark.parametrize(("count", "told"), [
    (0, "a node of .* has 8 GPUs"), (9, "a node of .* has 8 GPUs"), (-1, "has 8 GPUs"),
    (1, "needs two GPUs or more, not 1"),
])  # fmt: skip
def test_a_bench_needs_gpus_that_are_there(count: int, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        _ranks(DGX, count)
    assert _ranks(DGX, 2) == [0, 1]


def test_sizes_are_whole_bytes_from_none_to_four_eib() -> None:
    assert [_bytes(size) for size in (0, "64K", np.int64(7), 1 << 62)] == [0, 65536, 7, 1 << 62]
    for size in (-1, (1 << 62) + 1):
        with pytest.raises(ScenarioError, match="from 0 to 4 EiB"):
            _bytes(size)
    with pytest.raises(ScenarioError, match="is not a size"):
        _bytes(1.5)


def test_names_in_one_text_or_several() -> None:
    assert _listed(" a, b ,,c", "size") == ["a", "b", "c"]
    assert _listed(7, "size") == [7]
    assert _listed((1, 2), "size") == [1, 2]
    for nothing in ("", " , "):
        with pytest.raises(ScenarioError, match="names no "):
            _listed(nothing, "size")


def row(algo: str, time: float, size: int = 8, op: str = "x") -> BenchRow:
    return BenchRow(op, size, 1, "float", "sum", 0, time, None, None, algo)


def test_the_fastest_of_each_size_is_the_first_of_equals() -> None:
    rows = (row("a", 2.0), row("b", 1.0), row("c", 1.0), row("d", 9.0, size=16))
    found = BenchResult({"cluster": "c"}, rows, ()).fastest()
    assert {key: one.algo for key, one in found.items()} == {("x", 8): "b", ("x", 16): "d"}


def told(*rows: tuple[int, str, float]) -> list[str]:
    return verdicts([Timed("x", size, algo, time) for size, algo, time in rows])


def test_which_algorithm_is_the_fastest_and_which_never_is() -> None:
    """c is 1.5 times as long as a at 1 KiB, and twice as long as b at 2."""
    two: Any = [(1024, "a", 2.0), (1024, "b", 4.0), (2048, "a", 4.0), (2048, "b", 2.0)]
    assert told(*two) == []
    assert told(*two, (1024, "c", 3.0), (2048, "c", 4.0)) == [
        "x: c is nowhere the fastest (1 KiB to 2 KiB); nearest at 1 KiB, 1.5 times as long as a"
    ]
    assert told((1024, "a", 1.0), (1024, "b", 2.0), (2048, "a", 1.0), (2048, "b", 2.0)) == [
        "x: a is the fastest at every size asked for (1 KiB to 2 KiB)"
    ]
    assert told((1024, "a", 1.0), (1024, "b", 2.0)) == [
        "x: a is the fastest at every size asked for (1 KiB)"
    ]
    assert told((1024, "a", 1.0), (2048, "a", 1.0)) == []
    # The best of several rows of one algorithm counts; one that lacks a size is not fastest there.
    assert told((1024, "a", 9.0), (1024, "a", 1.0), (1024, "b", 2.0), (2048, "a", 5.0)) == [
        "x: a is the fastest at every size asked for (1 KiB to 2 KiB)"
    ]
