"""Loads of many connections as arrays, against adding up one route after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.libraries.expansion.loads import Connections, loads_of
from commsim.libraries.routing.routes import Router

CLUSTERS = {
    "rail": Cluster.preset("dgx-h100", nodes=3),
    "tree": Cluster.preset("dgx-1v", nodes=3, fabric={"kind": "fat_tree", "oversubscription": 2}),
    "pcie": Cluster.preset("pcie-a100", nodes=2),
}


@given(st.sampled_from(sorted(CLUSTERS)), st.data())
def test_sum_of_routes(name: str, data: st.DataObject) -> None:
    cluster = CLUSTERS[name]
    router = Router(cluster)
    ranks = st.integers(0, cluster.world_size - 1)
    pairs = data.draw(st.lists(st.tuples(ranks, ranks).filter(lambda p: p[0] != p[1]), max_size=30))
    shares = data.draw(st.lists(st.floats(0.1, 10), min_size=len(pairs), max_size=len(pairs)))
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    found = loads_of(Connections.of(source, target, np.array(shares)), router)
    load, conns = np.zeros(len(cluster.links)), np.zeros(len(cluster.links))
    for (a, b), share in zip(pairs, shares, strict=True):
        route = router.route(a, b)
        for link, part in zip(route.link, route.share, strict=True):
            load[link] += part * share
            conns[link] += part
    assert found.link.tolist() == np.flatnonzero(conns).tolist()
    assert found.share == pytest.approx(load[found.link])
    assert found.conns == pytest.approx(conns[found.link])


def test_named_nics_are_used() -> None:
    cluster = CLUSTERS["rail"]
    ends = (np.array([0]), np.array([8]), np.array([1.0]))
    nics = (np.array([3]), np.array([8 + 3]), np.array([-1]))
    found = loads_of(Connections(*ends, *nics), Router(cluster))
    names = [cluster.links.names[link] for link in found.link.tolist()]
    assert any("node0/nic3" in name for name in names)
    assert not any("nic0" in name for name in names)


def test_a_relay_is_reached_over_nvlink() -> None:
    cluster = CLUSTERS["rail"]
    ends = (np.array([0]), np.array([11]), np.array([1.0]))
    nics = (np.array([3]), np.array([8 + 3]), np.array([3]))
    found = loads_of(Connections(*ends, *nics), Router(cluster))
    kinds = [cluster.links.kinds[link] for link in found.link.tolist()]
    assert kinds.count("nvlink") == 2
    assert found.share.tolist() == [1.0] * len(found.link)
