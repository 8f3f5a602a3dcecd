"""No benched time of NCCL is below the proven bound of the cluster."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.study.bench.bench import bench

IN_SWITCHES = ("NVLS", "NVLSTree")
OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "gather", "scatter"]


@pytest.mark.share(0.5)
@pytest.mark.parametrize(
    ("preset", "nodes"),
    [
        ("dgx-1v", 1), ("pcie-rtx4090", 1), ("snellius-h100", 1), ("dgx-h100", 1),
        ("dgx-h100", 2), ("aws-p4d", 2), ("polaris", 3), ("aws-g5", 2), ("oci-a100-40gb", 2),
    ],
)  # fmt: skip
def test_no_time_is_below_the_bound(preset, nodes):
    cluster = Cluster.preset(preset, nodes=nodes)
    rows = bench(cluster, OPS, ["64KiB", "64MiB", "1GiB", "8GiB"], algo="all").results
    assert len(rows) >= 4 * len(OPS)
    for row in rows:
        bound = row.bound_in_network_us if row.algo in IN_SWITCHES else row.bound_us
        assert bound is not None
        assert row.time_us >= bound, row


def test_a_broadcast_in_a_row_may_end_before_its_latency_but_not_before_its_bytes():
    cluster = Cluster.preset("aws-p4d", nodes=2)
    rows = bench(cluster, ["broadcast", "reduce"], ["64MiB", "1GiB"], algo="all").results
    for row in rows:
        assert row.bound_us is not None
        assert row.time_us >= row.bound_us * 0.999, row
