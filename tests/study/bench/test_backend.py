"""What bench takes for an algorithm of a library."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.study.bench import bench
from commsim.study.bench.nccl_tests import sweep


def test_switches_that_add_are_timed_where_there_are_some_and_missed_where_not() -> None:
    (row,) = bench(
        Cluster.preset("dgx-h100"), "all_reduce", "1MiB", library="ideal", algo="nvls"
    ).results
    assert row.algo == "nvls"
    with pytest.raises(ScenarioError, match="neither adds nor multicasts"):
        bench(Cluster.preset("dgx-a100"), "all_reduce", "1MiB", library="ideal", algo="nvls")


def test_as_many_sizes_as_are_allowed_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commsim.study.bench.nccl_tests._MOST_SIZES", 5)
    assert sweep(8, 128, 2) == [8, 16, 32, 64, 128]
    with pytest.raises(ScenarioError, match="more than 5 sizes"):
        sweep(8, 256, 2)
