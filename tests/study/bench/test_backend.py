"""What bench takes for an algorithm of a library."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.study.bench import bench


def test_switches_that_add_are_timed_where_there_are_some_and_missed_where_not() -> None:
    (row,) = bench(
        Cluster.preset("dgx-h100"), "all_reduce", "1MiB", library="ideal", algo="nvls"
    ).results
    assert row.algo == "nvls"
    with pytest.raises(ScenarioError, match="neither adds nor multicasts"):
        bench(Cluster.preset("dgx-a100"), "all_reduce", "1MiB", library="ideal", algo="nvls")
