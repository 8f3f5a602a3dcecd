"""What is asked of a bench: GPUs, sizes and names; and which row is the fastest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection
from commsim.study.bench import bench
from commsim.study.bench.bench import _bytes, _ranks, _section, _shapes, bench_seconds
from commsim.units import MOST_BYTES

TWO = Cluster.preset("dgx-h100", nodes=2)
MIXED = cluster_from(
    {
        "nodes": [
            {"preset": "dgx-h100"}, {"preset": "dgx-h100", "overrides": {"gpu": {"count": 4}}},
        ],
        "fabric": {"kind": "single_switch"},
    },
    "t",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "per_node", "ranks"),
    [
        (TWO, None, list(range(16))), (TWO, 8, list(range(16))), (TWO, 1, [0, 8]),
        (TWO, 3, [0, 1, 2, 8, 9, 10]), (MIXED, 6, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]),
        (Cluster.preset("dgx-h100"), 2, [0, 1]),
    ],
)  # fmt: skip
def test_the_first_gpus_of_each_node(
    cluster: Cluster, per_node: int | None, ranks: list[int]
) -> None:
    assert _ranks(cluster, per_node) == ranks


@pytest.mark.parametrize(
    ("cluster", "per_node", "told"),
    [
        (TWO, 0, "--gpus-per-node 0: a node of"), (TWO, 9, "--gpus-per-node 9: .* has 8 GPUs"),
        (Cluster.preset("dgx-h100"), 1, "needs two GPUs or more, not 1"),
    ],
)  # fmt: skip
def test_gpus_that_are_not_there(cluster: Cluster, per_node: int, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        _ranks(cluster, per_node)


@pytest.mark.parametrize("size", [0, 1, MOST_BYTES, np.int64(7), "64MiB", "8"])
def test_sizes_that_can_be_asked_for(size: Any) -> None:
    assert _bytes(size) == {"64MiB": 2**26, "8": 8}.get(size, size)


@pytest.mark.parametrize(
    ("size", "told"), [(-1, "from 0 to 4 EiB"), (MOST_BYTES + 1, "from 0 to 4 EiB"),
                       (1.5, "is not a size"), (None, "is not a size")],
)  # fmt: skip
def test_sizes_that_cannot(size: Any, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        _bytes(size)


def test_shapes_are_in_order_once_each_and_not_empty() -> None:
    """Blocks of 8 ranks: from 128 bytes on, in steps of 128."""
    found = _shapes("all_gather", [300, 127, 128, 256, 0, 257], "int8", 8)
    assert [shape.size for shape in found] == [128, 256]


def test_the_library_of_a_bench() -> None:
    assert _section(TWO, "auto").name == "nccl"
    assert _section(TWO, "ideal").name == "ideal"
    assert _section(TWO, LibrarySection("ideal")).name == "ideal"
    assert _section(Cluster.preset("cpu-ethernet", nodes=2), "auto").name == "gloo"


def test_the_fastest_row_of_a_size_is_the_first_of_equals() -> None:
    result = bench(TWO, "all_reduce", ["1K", "2K"], library="ideal", algo="ring,tree")
    rows = [replace(row, time_us=time)
            for row, time in zip(result.results, (2.0, 1.0, 3.0, 3.0), strict=True)]  # fmt: skip
    best = replace(result, results=tuple(rows)).fastest()
    assert {size: row.algo for (_, size), row in best.items()} == {1024: "tree", 2048: "ring"}
    assert result.to_dict()["schema"] == 1
    assert repr(result).endswith("4 rows)")


def test_what_is_heard_and_what_it_ran_on() -> None:
    """Two sizes of two algorithms of all-reduce and one of all-gather: six times."""
    heard: list[tuple[int, int]] = []
    result = bench(
        TWO, "all_reduce,all_gather", [2048, 1024], library="ideal", algo="ring,tree",
        gpus_per_node=2, progress=lambda *of: heard.append(of),
    )  # fmt: skip
    assert heard == [(at, 6) for at in range(7)]
    system = result.system
    assert (system["gpus"], system["nodes"], system["library"]) == (4, 2, "ideal")
    assert not any("sizes are rounded" in note for note in result.notes)
    odd = bench(TWO, "all_reduce", [1026, 1024], library="ideal", algo="ring")
    assert [row.size for row in odd.results] == [1024]
    assert odd.notes[0].startswith("all_reduce: sizes are rounded as nccl-tests does")
    with pytest.raises(ScenarioError, match="Go up to 256 B at least"):
        bench(TWO, "all_gather", [255], library="ideal")
    row = result.results[0]
    assert row.algbw_gbs == pytest.approx(row.size / row.time_us * 1e-3)
    assert row.busbw_gbs == pytest.approx(row.size / row.time_us * 1e-3 * 1.5)  # 2 (n - 1) / n


def test_seconds_of_the_librarys_own_choice() -> None:
    rows = bench(TWO, "all_gather", [512, 1024], library="ideal").results
    found = bench_seconds(TWO, "all_gather", [1024, 512, 600], library="ideal")
    assert found == {row.size: pytest.approx(row.time_us * 1e-6) for row in rows}
