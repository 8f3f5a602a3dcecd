"""Links that no traffic fills: above NICs whose rates add up to no more than they carry."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.engine.folding.ample import ample_links
from commsim.engine.folding.refinement import entries_of
from commsim.libraries import Ideal, Request


@pytest.mark.parametrize(("oversubscription", "ample"), [(1, True), (2, False)])
def test_only_links_without_oversubscription_are_ample(oversubscription: int, ample: bool) -> None:
    """Four NICs send up from a leaf what its link to the spine carries, or twice as much."""
    fabric = {"kind": "rail_optimized", "radix": 8, "oversubscription": oversubscription}
    cluster = Cluster.preset("dgx-h100", nodes=8, fabric=fabric)
    ranks = [(node * 8, (node + 4) % 8 * 8) for node in range(8)]
    plans = [Ideal().plan(Request("send_recv", 2**20, pair), cluster) for pair in ranks]
    found = ample_links(entries_of(plans), cluster)
    above = np.array(["spine" in name for name in cluster.links.names])
    assert not found[~above].any()
    used = np.zeros(len(cluster.links), np.bool_)
    for plan in plans:
        for phase in plan.parts[0].phases:
            used[phase.link] = True
    assert (above & used).any()
    assert found[above & used].all() == ample


def test_links_of_nics_are_not_ample_however_little_reaches_them() -> None:
    """A GPU's PCIe carries 64 GB/s at most, its NIC 100; only links between switches count."""
    cluster = Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"bandwidth": "800Gbps"}})
    plans = [Ideal().plan(Request("send_recv", 2**20, pair), cluster) for pair in ((0, 8), (8, 0))]
    entries = entries_of(plans)
    nics = [cluster.fabric.nic_link(nic) for nic in (0, 8)]
    assert entries.on(len(cluster.links))[nics].all()
    assert not ample_links(entries, cluster).any()
