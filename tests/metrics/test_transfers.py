"""What limits a transfer: the share of its time that is bandwidth, by its closed form."""

from __future__ import annotations

import pytest

import commsim as cs
from commsim.libraries import Ideal
from commsim.metrics.critical_path import critical_path
from commsim.metrics.transfers import transfer_limits
from commsim.study.bench import bench


@pytest.mark.parametrize("size", [1 << 18, 1 << 22, 1 << 26])
def test_what_a_ring_takes_beyond_its_latency_is_bandwidth(size):
    """2(n-1)(a + S/nB): all but 2(n-1)a, and the 16 bytes per rank of the least that is asked."""
    work = {"collectives": [{"op": "all_reduce", "bytes": f"{size}B"}]}
    library = {"name": "ideal", "algo": "ring"}
    result = cs.run({"cluster": {"preset": "dgx-h100"}, "library": library, "workload": work})
    cluster = cs.Cluster.preset("dgx-h100")
    of_size, of_twice = (
        row.time_us * 1e-6
        for row in bench(
            cluster, "all_reduce", [size, 2 * size], algo="ring", library="ideal"
        ).results
    )
    latency = 2 * of_size - of_twice
    path = critical_path(result.timeline)
    found = transfer_limits(result.timeline, path, Ideal("ring"), cluster)
    share = (1 - latency / of_size) * (1 - 16 * 8 / size)
    assert found.share == pytest.approx([share] * 8, abs=1e-5)
    assert 0.05 < share < 1
