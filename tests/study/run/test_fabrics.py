"""Runs over fabrics that are graphs, against closed forms: rings, permutations, exchanges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import commsim as cs
from commsim.cluster import Cluster, cluster_from
from commsim.cluster.describe import bisection_bandwidth

S = 2**28
NODE = {
    "gpu": {"count": 1, "spec": "H100-SXM5-80GB"},
    "nic": {"count": 1, "bandwidth": "400Gbps"},
}
SLOW = 1e8 / 8  # bytes/s of a link that NIC and PCIe are thousands of times faster than


def torus(dims: tuple[int, ...], **fabric: Any) -> dict[str, Any]:
    shape = {"kind": "torus", "dims": list(dims), "link_bandwidth": "100Mbps", **fabric}
    return {"node": NODE, "nodes": math.prod(dims), "fabric": shape}


def built(data: dict[str, Any]) -> Cluster:
    return cluster_from(data, "it")


def payload(cluster: Cluster) -> float:
    return SLOW * float(cluster.links.efficiency[-1])


@pytest.mark.share(0.5)
@pytest.mark.parametrize("dims", [(5,), (4, 4), (3, 3, 3), (2, 2, 2)])
@pytest.mark.parametrize(
    ("op", "times"), [("all_reduce", 2), ("reduce_scatter", 1), ("all_gather", 1)]
)
def test_dimension_by_dimension_every_link_is_busy_all_the_time(dims, op, times):
    """2 k links of B bytes/s leave each router, and S (n - 1) / n leave each rank, or twice that.

    A dimension of two has two cables to one neighbour.
    """
    cluster = built(torus(dims))
    n, links = math.prod(dims), 2 * len(dims)
    row = cs.bench(cluster, op, "256MiB", library="ideal", algo="torus").results[0]
    assert row.time_us == pytest.approx(
        times * S * (n - 1) / n / links / payload(cluster) * 1e6, rel=2e-3
    )


def test_one_ring_has_one_link_of_each_router():
    cluster = built(torus((4, 4)))
    row = cs.bench(cluster, "all_reduce", "256MiB", library="ideal", algo="ring").results[0]
    assert row.time_us == pytest.approx(2 * S * 15 / 16 / payload(cluster) * 1e6, rel=2e-3)


def shifted(cluster: dict[str, Any], shift: list[int]) -> float:
    """The seconds in which every node sends S to the one `shift` further in each dimension."""
    dims = cluster["fabric"]["dims"]
    places = np.stack(np.unravel_index(np.arange(math.prod(dims)), dims))
    to = np.ravel_multi_index(
        tuple((axis + by) % size for axis, by, size in zip(places, shift, dims, strict=True)), dims
    ).tolist()
    from_ = {b: a for a, b in enumerate(to)}
    ranks = {
        a: [
            {"isend": {"to": b, "bytes": "256MiB", "as": "s"}},
            {"irecv": {"from": from_[a], "bytes": "256MiB", "as": "r"}},
            {"wait": "r"},
        ]
        for a, b in enumerate(to)
    }
    scenario = {
        "cluster": cluster,
        "library": {"name": "ideal"},
        "workload": {"program": {"ranks": ranks}},
    }
    return cs.run(scenario).metrics.step_time_s


@pytest.mark.parametrize(
    ("dims", "shift", "load"),
    [
        ((4, 4), [1, 0], 1.0),  # one link each
        ((5, 5), [2, 0], 2.0),  # two links the short way, all the same way round
        ((4, 4), [2, 0], 1.0),  # two links, half each way round
        ((4, 4), [1, 1], 1.0),  # two links, half by either corner: half in each of four... of two
        ((6,), [3], 1.5),  # three links, half each way round
    ],
)
def test_a_permutation_takes_what_its_busiest_link_carries(dims, shift, load):
    data = torus(dims)
    assert shifted(data, shift) == pytest.approx(load * S / payload(built(data)), rel=1e-4)


@pytest.mark.parametrize("dims", [(4, 4), (8,), (4, 2, 2)])
def test_an_exchange_takes_at_least_what_half_sends_over_the_bisection(dims):
    cluster = built(torus(dims))
    n = math.prod(dims)
    least = (n / 2) ** 2 * S / n / (bisection_bandwidth(cluster) or 0.0)
    for library in ("nccl", "ideal"):
        row = cs.bench(cluster, "all_to_all", "256MiB", library=library).results[0]
        assert least <= row.time_us / 1e6 <= 1.6 * least


def test_adaptive_routing_makes_an_uneven_collective_faster_and_an_even_one_no_slower():
    """A group that sends to one other: 2 / G of it straight, where shortest ways have one trunk."""
    groups = 4
    shape = {
        "kind": "dragonfly_plus", "nodes_per_leaf": 1, "leaves_per_group": 1, "spines": 1,
        "global_links": 1, "link_bandwidth": "100Mbps",
    }  # fmt: skip
    splits = [
        ["256MiB" if b == (a + 1) % groups else "0MiB" for b in range(groups)]
        for a in range(groups)
    ]
    took = {}
    for ecmp in ("even", "adaptive"):
        cluster = {"node": NODE, "nodes": groups, "fabric": {**shape, "ecmp": ecmp}}
        op = {"op": "all_to_all_v", "splits": splits}
        scenario = {"cluster": cluster, "workload": {"collectives": [op]}}
        took[ecmp, "uneven"] = cs.run(scenario).metrics.step_time_s
        row = cs.bench(built(cluster), "all_to_all", "256MiB").results[0]
        took[ecmp, "even"] = row.time_us
    assert took["adaptive", "even"] <= took["even", "even"] * 1.001
    assert took["adaptive", "uneven"] < 0.75 * took["even", "uneven"]


@pytest.mark.parametrize(
    "fabric",
    [
        {"kind": "torus", "dims": [2, 2], "link_bandwidth": "800Gbps"},
        {"kind": "dragonfly_plus", "nodes_per_leaf": 1, "leaves_per_group": 2, "spines": 2},
        {"kind": "dragonfly_plus", "nodes_per_leaf": 1, "leaves_per_group": 2, "spines": 2,
         "ecmp": "adaptive", "link_bandwidth": "100Gbps"},
    ],
    ids=["torus", "dragonfly", "adaptive"],
)  # fmt: skip
def test_folded_or_not_the_step_is_the_same(fabric):
    scenario = {
        "cluster": {"preset": "dgx-h100", "nodes": 4, "fabric": fabric},
        "workload": {
            "training": {
                "model": {"preset": "llama3-8b", "layers": 4},
                "parallel": {"dp": 8, "tp": 4},
                "batch": {"global": 8, "micro": 1},
            }
        },
    }
    whole = cs.run(scenario, sets=["engine.fold=off"]).metrics.step_time_s
    assert cs.run(scenario).metrics.step_time_s == pytest.approx(whole, rel=1e-9)


def test_sharp_is_there_where_the_fabric_has_it():
    def row(**fabric: Any) -> str:
        cluster = Cluster.preset("dgx-h100", nodes=4, fabric=fabric or None)
        settings = cs.LibrarySection(
            "nccl", env={"NCCL_COLLNET_ENABLE": "1"}, algo="CollNetDirect,Ring"
        )
        return str(cs.bench(cluster, "all_reduce", "64MiB", library=settings).results[0].algo)

    assert row() == "CollNetDirect"
    assert row(sharp=False) == "Ring"
    one = {"node": NODE, "nodes": 4, "fabric": {"kind": "single_switch", "sharp": False}}
    with pytest.raises(cs.ScenarioError, match="switches that add up"):
        cs.bench(built(one), "all_reduce", "1MiB", library="ideal", algo="sharp")
