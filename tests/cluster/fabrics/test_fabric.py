"""Fabrics: which NICs meet where, what their trunks carry, and how paths are chosen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
from helpers.optional import present

from commsim.cluster import Cluster, cluster_from
from commsim.cluster.describe import bisection_bandwidth
from commsim.cluster.fabrics.fabric import stable_hash

NIC = 50e9


def switches(cluster: Cluster) -> Counter[str]:
    return Counter(cluster.fabric.kind_of.values())


def trunk(cluster: Cluster, leaf: str) -> float:
    """The raw bandwidth of all of a leaf's uplinks together."""
    links = cluster.links
    up = [
        float(links.bandwidth[i])
        for i, (a, b) in enumerate(zip(links.source, links.target, strict=True))
        if a == leaf and "spine" in b
    ]
    return sum(up)


def hops(cluster: Cluster, a: int, b: int, *, key: int = 0) -> list[str]:
    """Where the route between two NICs goes, one vertex per hop."""
    route = present(cluster.fabric_route(a, b, key=key))
    return [cluster.links.target[link] for link in route.link]


def test_a_single_switch_joins_all_nics():
    cluster = Cluster.preset("dgx-h100", nodes=3, fabric={"kind": "single_switch"})
    assert switches(cluster) == {"leaf": 1}
    assert hops(cluster, 0, 23) == ["switch", "node2/nic7"]


def test_a_rail_meets_on_its_leaf_and_two_rails_at_the_spine():
    cluster = Cluster.preset("dgx-h100", nodes=4)
    assert hops(cluster, 3, 27) == ["leaf3", "node3/nic3"]
    assert hops(cluster, 3, 28) == ["leaf3", "spine", "leaf4", "node3/nic4"]
    assert trunk(cluster, "leaf0") == 4 * NIC


def test_pods_have_their_own_rail_leaves():
    cluster = Cluster.preset("dgx-h100", nodes=4, fabric={"nodes_per_leaf": 2})
    assert switches(cluster) == {"leaf": 16, "spine": 1}
    assert hops(cluster, 0, 8) == ["pod0/leaf0", "node1/nic0"]
    assert hops(cluster, 0, 16) == ["pod0/leaf0", "spine", "pod1/leaf0", "node2/nic0"]


def test_the_radix_says_how_many_nodes_share_a_leaf():
    cluster = Cluster.preset("dgx-h100", nodes=64)
    assert hops(cluster, 0, 31 * 8) == ["pod0/leaf0", "node31/nic0"]
    assert len(hops(cluster, 0, 32 * 8)) == 4
    tighter = Cluster.preset("dgx-h100", nodes=96, fabric={"oversubscription": 3})
    assert hops(tighter, 0, 47 * 8) == ["pod0/leaf0", "node47/nic0"]
    assert len(hops(tighter, 0, 48 * 8)) == 4


@pytest.mark.parametrize("kind", ["fat_tree", "rail_optimized"])
@pytest.mark.parametrize(("nodes", "ratio"), [(16, 2), (16, 3), (13, 1), (66, 2), (129, 3)])
def test_leaves_hold_as_many_nodes_as_the_next_one_or_one_more(kind: str, nodes: int, ratio: int):
    """One node alone on the last leaf would have a fraction of the others' uplinks."""
    fabric = {"kind": kind, "oversubscription": ratio}
    leaves = Counter(Cluster.preset("dgx-h100", nodes=nodes, fabric=fabric).fabric.leaves.of)
    full = {leaf: count for leaf, count in leaves.items() if kind == "fat_tree" or leaf % 8 == 0}
    per_node = 8 if kind == "fat_tree" else 1
    assert max(full.values()) - min(full.values()) in (0, per_node)
    room = int(64 * ratio / (1 + ratio)) // per_node
    assert len(full) == math.ceil(nodes / room)


def test_leaves_of_a_stated_width_are_filled():
    cluster = Cluster.preset("dgx-h100", nodes=16, fabric={"kind": "fat_tree", "nodes_per_leaf": 5})
    assert list(Counter(cluster.fabric.leaves.of).values()) == [40, 40, 40, 8]


def test_in_a_rail_only_fabric_rails_do_not_meet():
    cluster = Cluster.preset("dgx-h100", nodes=4, fabric={"kind": "rail_only"})
    for a in range(32):
        for b in range(32):
            same = cluster.nics[a].rail == cluster.nics[b].rail
            assert (cluster.fabric_route(a, b) is not None) is same
    assert switches(cluster) == {"leaf": 8}


def test_a_fat_tree_leaf_holds_whole_nodes():
    cluster = Cluster.preset("dgx-h100", nodes=8, fabric={"kind": "fat_tree"})
    assert switches(cluster) == {"leaf": 2, "spine": 1}  # 32 ports down: 4 nodes of 8 NICs
    assert hops(cluster, 0, 31) == ["leaf0", "node3/nic7"]
    assert hops(cluster, 0, 32) == ["leaf0", "spine", "leaf1", "node4/nic0"]


def test_a_core_level_comes_when_a_spine_runs_out_of_ports():
    fabric = {"kind": "fat_tree", "radix": 4, "nodes_per_leaf": 1}
    small = Cluster.preset("dgx-h100", nodes=4, fabric=fabric)
    large = Cluster.preset("dgx-h100", nodes=8, fabric=fabric)
    assert switches(small) == {"leaf": 4, "spine": 1}
    assert switches(large) == {"leaf": 8, "spine": 4, "core": 1}
    assert hops(large, 0, 8) == ["leaf0", "group0/spine", "leaf1", "node1/nic0"]
    assert hops(large, 0, 63) == [
        "leaf0", "group0/spine", "core", "group3/spine", "leaf7", "node7/nic7",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["fat_tree", "rail_optimized"])
@pytest.mark.parametrize("ecmp", ["even", "hash"])
def test_oversubscription_divides_the_trunk(kind, ecmp):
    fabric = {"kind": kind, "ecmp": ecmp, "nodes_per_leaf": 2}
    leaf = "leaf0" if kind == "fat_tree" else "pod0/leaf0"
    full, half = (
        trunk(Cluster.preset("dgx-h100", nodes=4, fabric=fabric | {"oversubscription": o}), leaf)
        for o in (1, 2)
    )
    assert full == pytest.approx((16 if kind == "fat_tree" else 2) * NIC)
    assert half == pytest.approx(full / 2)


def test_an_oversubscription_without_trunks_is_noted():
    fabric = {"kind": "fat_tree", "oversubscription": 4}
    cluster = Cluster.preset("dgx-h100", nodes=2, fabric=fabric)
    assert any("oversubscription 4 changes nothing" in note for note in cluster.notes)


def test_an_oversubscription_that_rails_do_not_cross_is_noted():
    """32 nodes hang on a leaf of each rail: 33 need a second one, and then its trunk."""
    noted = "all NICs of a rail hang on one leaf"
    for nodes, said in ((4, True), (32, True), (64, False)):
        made = Cluster.preset("dgx-h100", nodes=nodes, fabric={"oversubscription": 4})
        assert any(noted in note for note in made.notes) is said
    full = Cluster.preset("dgx-h100", nodes=4)
    assert not any(noted in note for note in full.notes)


def test_even_paths_split_over_the_spines_that_are_told_apart():
    cluster = Cluster.preset("dgx-h100", nodes=4, fabric={"spines": 4})
    route = present(cluster.fabric_route(0, 1))
    assert route.hop == (0, 1, 1, 1, 1, 2, 2, 2, 2, 3)
    assert route.share == (1.0, *[0.25] * 8, 1.0)
    merged = Cluster.preset("dgx-h100", nodes=4)
    assert trunk(cluster, "leaf0") == trunk(merged, "leaf0")
    assert route.latency == present(merged.fabric_route(0, 1)).latency


def test_even_paths_through_cores_split_evenly_too():
    fabric = {"kind": "fat_tree", "radix": 4, "nodes_per_leaf": 1, "spines": 2}
    cluster = Cluster.preset("dgx-h100", nodes=8, fabric=fabric)
    route = present(cluster.fabric_route(0, 63))
    shares: dict[int, float] = defaultdict(float)
    for hop, share in zip(route.hop, route.share, strict=True):
        shares[hop] += share
    assert shares == dict.fromkeys(range(6), 1.0)


def test_a_hash_picks_one_path_and_always_the_same():
    fabric = {"kind": "fat_tree", "ecmp": "hash", "nodes_per_leaf": 1}
    one, two = (Cluster.preset("dgx-h100", nodes=4, fabric=fabric) for _ in range(2))
    for key in range(50):
        route = present(one.fabric_route(0, 9, key=key))
        assert route.share == (1.0,) * 4
        assert route == two.fabric_route(0, 9, key=key)


def test_the_hash_is_splitmix64():
    # The first output of splitmix64 from seed 0, as in its reference implementation.
    assert stable_hash(0) == 0xE220A8397B1DCDAF


def test_a_hash_spreads_connections_over_the_spines():
    fabric = {"kind": "fat_tree", "ecmp": "hash", "nodes_per_leaf": 1}
    cluster = Cluster.preset("dgx-h100", nodes=4, fabric=fabric)
    count = Counter(hops(cluster, 0, 9, key=key)[1] for key in range(800))
    assert len(count) == 8  # 8 NICs per leaf: 8 uplinks
    assert all(60 <= n <= 140 for n in count.values())  # 100 expected, sigma 9.4


def test_a_hash_spreads_over_the_cores_of_a_plane():
    fabric = {"kind": "fat_tree", "radix": 4, "nodes_per_leaf": 1, "ecmp": "hash", "spines": 2}
    cluster = Cluster.preset("dgx-h100", nodes=8, fabric=fabric)
    ways = Counter(tuple(hops(cluster, 0, 63, key=key)[1:4]) for key in range(400))
    assert len(ways) == 4
    assert all(way[0][-1] == way[2][-1] for way in ways)  # a plane's spine on both sides
    assert min(ways.values()) > 60


def test_another_seed_hashes_otherwise():
    fabric = {"kind": "fat_tree", "ecmp": "hash", "nodes_per_leaf": 1}
    clusters = [
        Cluster.preset("dgx-h100", nodes=2, fabric=fabric | {"seed": seed}) for seed in (0, 1)
    ]
    ways = [[hops(c, 0, 9, key=key)[1] for key in range(30)] for c in clusters]
    assert ways[0] != ways[1]


def test_cables_and_switches_add_their_latency():
    fabric = {"switch_latency": "100ns", "cable_latency": "25ns"}
    cluster = Cluster.preset("dgx-h100", nodes=2, fabric=fabric)
    assert present(cluster.fabric_route(0, 8)).latency == 2 * (300_000 + 25_000) + 100_000
    assert present(cluster.fabric_route(0, 9)).latency == 2 * 300_000 + 4 * 25_000 + 3 * 100_000


def test_nics_of_different_speed_share_a_fabric():
    nodes = [{"preset": "dgx-h100", "count": 2}, {"preset": "dgx-a100", "count": 2}]
    cluster = cluster_from({"nodes": nodes}, "x")
    assert trunk(cluster, "leaf0") == 2 * 50e9 + 2 * 25e9
    capacity = cluster.links.capacity[list(present(cluster.fabric_route(0, 16)).link)]
    assert capacity.tolist() == [50e9 * 0.97, 25e9 * 0.94]
    assert cluster.notes == ("fabric: as preset dgx-h100 has it.",)


def test_a_trunk_carries_the_payload_of_its_nics():
    cluster = Cluster.preset("dgx-h100", nodes=4)
    route = present(cluster.fabric_route(0, 1))
    capacity = cluster.links.capacity[list(route.link)]
    assert capacity[1] == pytest.approx(4 * capacity[0], rel=1e-12)


def test_bisection():
    full = Cluster.preset("dgx-h100", nodes=4)
    assert bisection_bandwidth(full) == pytest.approx(16 * NIC * 0.97)
    fabric = {"kind": "fat_tree", "nodes_per_leaf": 1, "oversubscription": 4}
    tree = Cluster.preset("dgx-h100", nodes=4, fabric=fabric)
    assert bisection_bandwidth(tree) == pytest.approx(16 * NIC * 0.97 / 4)
    assert bisection_bandwidth(Cluster.preset("dgx-h100")) == pytest.approx(4 * 450e9 * 0.881)
    # GPUs 0-3 to 4-7 of a DGX-1V: two pairs with two links and two with one.
    assert bisection_bandwidth(Cluster.preset("dgx-1v")) == pytest.approx(6 * 25e9 * 0.9412)
    assert bisection_bandwidth(Cluster.preset("pcie-a100")) is None


def test_a_thousand_gpus_are_quick_to_build():
    cluster = Cluster.preset("dgx-h100", nodes=128)
    assert (cluster.world_size, len(cluster.nics)) == (1024, 1024)
    assert cluster.links.names[-1] == "spine->pod3/leaf7"
    # 128 nodes of 84 links, 16 of them the NICs' in the fabric; 4 pods of 8 rails.
    assert len(cluster.links) == 128 * 84 + 2 * 32
