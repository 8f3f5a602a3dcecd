"""What entries of faults mean: which ranks, NICs and links, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import commsim as cs
from commsim.cluster import cluster_from
from commsim.engine import FaultsSection, draw_dead, draw_faults
from commsim.engine.faults.draw import DrawnFaults
from commsim.errors import ScenarioError
from commsim.sections import decode

FOREVER = 2**62
MS = 10**9


@pytest.fixture(scope="module")
def cluster() -> cs.Cluster:
    """Two nodes of eight GPUs and NICs."""
    return cs.Cluster.preset("dgx-h100", nodes=2)


def dead(cluster: cs.Cluster, **one: Any) -> tuple[tuple[int, int], ...]:
    return draw_dead(decode({"dead_nics": [one]}, FaultsSection, "t"), cluster, 0, where="faults")


def drawn(cluster: cs.Cluster, **faults: Any) -> DrawnFaults:
    section = decode(faults, FaultsSection, "t")
    return draw_faults(section, cluster, 0, where="faults", pool=lambda _: np.ones(1))


def test_dead_nics_by_name_and_by_number(cluster: cs.Cluster) -> None:
    assert dead(cluster, node=1, nic=3) == ((1, 3),)
    assert dead(cluster, node=1) == ((1, 0),)
    assert dead(cluster, nic=3) == ((0, 3),)
    assert dead(cluster, count=16) == tuple((n, i) for n in range(2) for i in range(8))
    assert len(set(dead(cluster, count=5))) == 5
    assert dead(cluster, share=1.0) == dead(cluster, count=16)
    assert dead(cluster, share=0.0) == ()


@pytest.mark.parametrize(
    ("one", "said"),
    [
        ({"count": 17}, r"faults\.dead_nics\.0\.count: 17 of 16 cannot be"),
        ({"node": 2}, r"there is no NIC 0 on node 2"),
        ({"node": 1, "count": 2}, r"give exactly one of node and nic, count and share"),
        ({"count": 1, "share": 0.5}, r"give exactly one of node and nic, count and share"),
        ({}, r"give exactly one of node and nic, count and share"),
    ],
)
def test_dead_nics_that_cannot_be(cluster: cs.Cluster, one: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        dead(cluster, **one)


def test_slow_gpus_and_when(cluster: cs.Cluster) -> None:
    def gpus(**one: Any) -> list[tuple[int, float, int | None, int]]:
        found = drawn(cluster, slow_gpus=[{"factor": 1.5, **one}]).slow_gpus
        return [(each.rank, each.factor, each.start, each.end) for each in found]

    assert gpus(rank=15) == [(15, 1.5, None, FOREVER)]
    assert gpus(rank=0, start="1ms") == [(0, 1.5, MS, FOREVER)]
    assert gpus(rank=0, end="2ms") == [(0, 1.5, 0, 2 * MS)]
    assert gpus(rank=0, start="1ms", end="2ms") == [(0, 1.5, MS, 2 * MS)]
    assert [rank for rank, *_ in gpus(count=16)] == list(range(16))
    with pytest.raises(ScenarioError, match=r"slow_gpus\.0\.rank: there is no 16: 16 are counted"):
        gpus(rank=16)


def test_slow_links_and_when(cluster: cs.Cluster) -> None:
    def windows(**one: Any) -> tuple[tuple[int, int], ...] | None:
        (found,) = drawn(
            cluster, slow_links=[{"link": "node0/nic0", "left": 0.5, **one}]
        ).slow_links
        assert found.left == 0.5
        return found.windows

    assert windows() is None
    assert windows(start="1ms") == ((MS, FOREVER),)
    assert windows(end="1ms") == ((0, MS),)
    assert windows(start="1ms", end="7ms", down="1ms", every="3ms") == (
        (MS, 2 * MS), (4 * MS, 5 * MS),
    )  # fmt: skip
    # the last one is cut where all end
    assert windows(end="5ms", down="2ms", every="4ms") == ((0, 2 * MS), (4 * MS, 5 * MS))
    assert len(windows(end="100s", down="0.5ms", every="1ms") or ()) == 100_000
    with pytest.raises(ScenarioError, match=r"flaps 100,001 times, more than 100,000"):
        windows(end="100001ms", down="0.5ms", every="1ms")
    for wrong in ({"down": "2ms", "every": "2ms"}, {"down": "0ms", "every": "2ms"}):
        with pytest.raises(ScenarioError, match="must be longer than `down`, and that above zero"):
            windows(end="9ms", **wrong)


def test_links_by_what_they_are_called(cluster: cs.Cluster) -> None:
    def links(**one: Any) -> list[list[str]]:
        found = drawn(cluster, slow_links=[{"left": 0.5, **one}]).slow_links
        return [[cluster.links.names[link] for link in each.links] for each in found]

    (both,) = links(link="node1/nic2")
    assert len(both) == 2
    assert all("node1/nic2" in name for name in both)
    (one,) = links(link=both[0])
    assert one == [both[0]]
    # each NIC has a link there and one back
    every = links(count=16)
    assert len(every) == 16
    assert all(len(pair) == 2 for pair in every)
    assert both in every
    # what is at no end of the network has its own links: a GPU's NVLink and PCIe
    made = cluster.links
    ends = zip(made.names, made.source, made.target, strict=True)
    touching = [name for name, *both in ends if "node0/gpu0" in both]
    assert links(link="node0/gpu0") == [touching]
    assert len(touching) >= 4
    with pytest.raises(ScenarioError, match="give exactly one of link, count and share"):
        links(link="node0/nic0", count=1)
    with pytest.raises(ScenarioError, match="did you mean 'node0/nic0'|node0/nic0"):
        links(link="node0/nix0")


def test_a_node_without_a_fabric_has_no_links_to_one() -> None:
    node = {
        "gpu": {"count": 2, "spec": "A100-SXM4-80GB"},
        "nic": {"count": 1, "bandwidth": "200Gbps"},
    }
    alone = cluster_from({"node": node}, "t")
    for one in ({"count": 1}, {"share": 1.0}):
        with pytest.raises(ScenarioError, match=r"slow_links\.0: the cluster has no fabric"):
            drawn(alone, slow_links=[{"left": 0.5, **one}])
    assert drawn(alone, slow_links=[{"link": "node0/nic0", "left": 0.5}])


def test_jitter_of_ranks_that_there_are(cluster: cs.Cluster) -> None:
    (noise,) = drawn(cluster, jitter=[{"spread": 0.1, "ranks": [0, 15]}]).noise
    assert (noise.spread, noise.ranks, noise.pool) == (0.1, (0, 15), None)
    with pytest.raises(ScenarioError, match=r"jitter\.0\.ranks: there is no rank 16"):
        drawn(cluster, jitter=[{"spread": 0.1, "ranks": [16]}])
    with pytest.raises(ScenarioError, match="give exactly one of spread and trace"):
        drawn(cluster, jitter=[{"spread": 0.1, "trace": "x.json"}])


def test_nothing_drawn_is_no_fault(cluster: cs.Cluster) -> None:
    assert not drawn(cluster)
    assert DrawnFaults().seed == (0, 0)
    assert drawn(cluster, jitter=[{"spread": 0.1}])
    assert drawn(cluster, slow_gpus=[{"rank": 0, "factor": 2}])
    assert drawn(cluster, slow_links=[{"link": "node0/nic0", "left": 0.5}])


@pytest.mark.parametrize(
    ("entry", "known"),
    [
        ({"seed": -1}, False), ({"seed": 0}, True), ({"samples": 0}, False), ({"samples": 1}, True),
        ({"samples": 10_000}, True), ({"samples": 10_001}, False),
        ({"slow_gpus": [{"factor": 0.0, "rank": 0}]}, False),
        ({"slow_gpus": [{"factor": 0.001, "rank": 0}]}, True),
        ({"slow_gpus": [{"factor": 1000, "rank": 0}]}, True),
        ({"slow_gpus": [{"factor": 1000.5, "rank": 0}]}, False),
        ({"slow_gpus": [{"factor": 2, "rank": -1}]}, False),
        ({"dead_nics": [{"count": 0}]}, False), ({"dead_nics": [{"count": 1}]}, True),
        ({"dead_nics": [{"node": -1}]}, False), ({"dead_nics": [{"node": 0, "nic": 0}]}, True),
        ({"slow_links": [{"count": 1, "left": -0.1}]}, False),
        ({"slow_links": [{"count": 1, "left": 0}]}, True),
        ({"slow_links": [{"count": 1, "left": 1}]}, True),
        ({"slow_links": [{"count": 1, "left": 1.5}]}, False),
        ({"jitter": [{"spread": 1.5}]}, False), ({"jitter": [{"spread": 1}]}, True),
    ],
)  # fmt: skip
def test_numbers_of_a_section_have_their_bounds(entry: dict[str, Any], known: bool) -> None:
    if known:
        assert decode(entry, FaultsSection, "t")
    else:
        with pytest.raises(ScenarioError, match=r"^t: "):
            decode(entry, FaultsSection, "t")


def test_a_section_of_nothing_is_one_run_of_seed_0() -> None:
    section = decode({}, FaultsSection, "t")
    assert (section.seed, section.samples) == (0, 1)


def test_a_link_may_be_left_a_bit_a_second_for_good(cluster: cs.Cluster) -> None:
    def left(share: float) -> float:
        return drawn(cluster, slow_links=[{"link": "node0/nic0", "left": share}]).slow_links[0].left

    link = float(cluster.links.bandwidth[cluster.fabric.nic_link(0)])
    less = 1 / 8 / link
    share = float(np.nextafter(less, 1))
    assert less * link < share * link == 1 / 8
    assert left(share) == share
    for nothing in (less, 0.0):
        with pytest.raises(ScenarioError, match="nothing is left for good"):
            left(nothing)


def test_dead_nics_and_other_faults_are_drawn_from_streams_of_their_own(
    cluster: cs.Cluster,
) -> None:
    """A seed and a number of the run give the same faults in every version."""
    section = decode(
        {"seed": 5, "dead_nics": [{"count": 3}], "slow_gpus": [{"factor": 2, "count": 3}]},
        FaultsSection, "t",
    )  # fmt: skip
    nics, gpus = (
        sorted(np.random.default_rng((5, 9, stream)).choice(16, 3, replace=False).tolist())
        for stream in (0, 1)
    )
    dead_ones = draw_dead(section, cluster, 9, where="faults")
    assert [8 * node + nic for node, nic in dead_ones] == nics
    found = draw_faults(section, cluster, 9, where="faults", pool=lambda _: np.ones(1))
    assert [one.rank for one in found.slow_gpus] == gpus
    assert found.seed == (5, 9)
