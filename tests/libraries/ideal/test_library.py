"""Plans of the ideal library: channels, pieces, parts, and what it says of itself."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.star import US, Star

from commsim.cluster import Cluster, Route
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal, LibrarySection, Request, Start, make_library
from commsim.libraries.expansion.expand import coupled
from commsim.libraries.ideal.pieces import Pipeline

GIB = 2**30


def everybody(kind: str, size: int, n: int, root: int = -1) -> Request:
    return Request(kind, size, tuple(range(n)), root=root)


def end_of(kind: str, size: int, cluster: Cluster, network: str) -> int:
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    for rank in range(cluster.world_size):
        build.collective(build.lane(rank), world, kind, size, stream="c")
    return simulate(build.build(), cluster, library=Ideal(), network=network).end_time


def test_one_channel_per_nic_and_each_on_its_own() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    plan = Ideal("ring").plan(everybody("all_reduce", GIB, 16), cluster)
    assert plan.channels == len(plan.parts) == 8
    used = [
        {link for link in part.phases[0].link.tolist() if cluster.links.kinds[link] == "network"}
        for part in plan.parts
    ]
    assert all(len(links) == 4 for links in used)  # in and out of two nodes
    assert len(set.union(*used)) == 32


def test_a_ring_over_two_nodes_uses_all_nics() -> None:
    """busbw of a large ring = the payload bandwidth of a node's NICs."""
    cluster = Cluster.preset("dgx-h100", nodes=2)
    plan = Ideal("ring").plan(everybody("all_reduce", 16 * GIB, 16), cluster)
    busbw = 2 * 15 / 16 * 16 * GIB / plan.idle * 1e12
    assert busbw == pytest.approx(8 * 50e9 * 0.97, rel=0.01)


def test_a_mesh_ring_follows_direct_links() -> None:
    cluster = Cluster.preset("dgx-1v")
    plan = Ideal("ring").plan(everybody("all_reduce", GIB, 8), cluster)
    kinds = {cluster.links.kinds[link] for link in plan.parts[0].phases[0].link.tolist()}
    assert kinds == {"nvlink"}


def test_pieces_are_the_textbooks_best() -> None:
    """(n - 2 + k) (latency + S/k/B) is least near k = sqrt((n - 2) S / (latency B)).

    The links themselves charge a latency once, not per piece: more pieces still help a little.
    """
    request = everybody("broadcast", 1 << 26, 8, root=0)
    chosen = Ideal("ring").plan(request, Star(8)).idle
    transfer = (1 << 26) / 1e9 * 1e12
    best = min((6 + k) * (2 * US + transfer / k) for k in range(1, 2000))
    exact = {k: Ideal("ring", pieces=k).plan(request, Star(8)).idle for k in (1, 20, 450, 4000)}
    assert exact[4000] < chosen < exact[4000] * 1.02
    assert chosen < exact[20] < exact[1] / 5
    assert chosen == pytest.approx(best, rel=0.03)


def test_a_split_route_splits_its_connection() -> None:
    """Bytes per connection are the same on every link: that makes the fair share unique."""
    route = Route((0, 2, 4, 6), (1.0, 0.5, 0.5, 1.0), (0, 1, 1, 2), 0)
    flow = coupled([route], [100.0], 1, Star(4).links)
    assert flow.load.tolist() == [100.0, 50.0, 50.0, 100.0]
    assert flow.conns.tolist() == [1.0, 0.5, 0.5, 1.0]


@pytest.mark.parametrize("preset", ["pcie-a100", "dgx-a100", "cpu-ethernet"])
def test_an_all_to_all_takes_what_its_messages_take(preset: str) -> None:
    """Also where pairs on PCIe and pairs on the network share links."""
    cluster = Cluster.preset(preset, nodes=2)
    fluid, steps = (end_of("all_to_all", 1 << 24, cluster, net) for net in ("fluid", "steps"))
    assert fluid == pytest.approx(steps, rel=1e-9)


def test_pairs_on_nvlink_end_before_pairs_on_the_network() -> None:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    plan = Ideal().plan(everybody("all_to_all", GIB, 16), cluster)
    local, remote = (part.idle for part in plan.parts)
    assert local < remote / 2


def test_start_rules() -> None:
    library, cluster = Ideal("tree"), Star(4)
    assert library.plan(everybody("all_reduce", 8, 4), cluster).start == Start.ALL
    broadcast = library.plan(everybody("broadcast", 1 << 20, 4, root=2), cluster)
    assert broadcast.start == Start.PATH
    assert broadcast.parts[0].joins[2] == 0
    assert broadcast.parts[0].joins.max() > 0
    assert library.plan(Request("send_recv", 8, (0, 1)), cluster).start == Start.PAIR


def test_an_op_without_the_algorithm_takes_another_and_says_so() -> None:
    plan = Ideal("tree").plan(everybody("all_to_all", 1 << 20, 4), Star(4))
    assert plan.algorithm == "direct"
    assert plan.notes == ("all_to_all has no tree algorithm: direct used.",)


def test_a_group_of_one_takes_no_time() -> None:
    assert Ideal().plan(everybody("all_reduce", GIB, 1), Star(2)).idle == 0


def test_zero_bytes_take_the_latency() -> None:
    plan = Ideal("ring").plan(everybody("all_reduce", 0, 4), Star(4))
    assert plan.idle == 6 * 2 * US
    assert np.concatenate([part.phases[0].load for part in plan.parts]).sum() == 0


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (LibrarySection("ideal", version="2.27"), "library.version: means nothing to"),
        (LibrarySection("ncl"), "Available: ideal"),
        (LibrarySection(algo="trees"), "Did you mean 'tree'"),
        (LibrarySection(channels=-1), "library.channels"),
        (LibrarySection(channels=1_025), "library.channels: too many. Give at most 1,024;"),
        (LibrarySection(pieces=65_537), "library.pieces: too many. Give at most 65,536;"),
    ],
)
def test_what_a_library_section_refuses(section: LibrarySection, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        make_library(section)


@pytest.mark.parametrize(("algorithm", "steps"), [("ring", 31), ("halving_doubling", 5)])
def test_large_groups_go_by_the_algorithm_that_is_asked_for(algorithm: str, steps: int) -> None:
    plan = Ideal(algorithm).plan(everybody("all_gather", 0, 32), Star(32))
    assert plan.idle == steps * 2 * US


@pytest.mark.parametrize("n", [15, 16, 17, 18])
def test_rings_take_2_n_less_2_steps_of_an_nth_whether_long_or_short(n: int) -> None:
    """Up to 16 members message by message, beyond in closed form."""
    for kind, rounds in (("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)):
        plan = Ideal("ring").plan(everybody(kind, n * 10**6, n), Star(n))
        assert plan.idle == rounds * (n - 1) * (2 * US + 10**9)  # a megabyte at 1 GB/s
        part = plan.parts[0]
        assert part.leaves.tolist() == [plan.idle] * n
        assert part.phases[-1].link.tolist() == list(range(2 * n))
        sent = sum(phase.load for phase in part.phases)
        assert sent == pytest.approx(np.full(2 * n, rounds * (n - 1) * 10**6))


@pytest.mark.parametrize("setting", ["channels", "pieces"])
def test_a_setting_of_0_chooses_by_itself(setting: str) -> None:
    request, cluster = everybody("broadcast", 1 << 20, 4, root=0), Star(4)
    usual = make_library(LibrarySection("ideal")).plan(request, cluster)
    chosen = make_library(LibrarySection("ideal", **{setting: 0})).plan(request, cluster)
    assert chosen.idle == usual.idle
    assert make_library(LibrarySection("gloo", interface=0)).name == "gloo"
    with pytest.raises(ScenarioError, match=f"library.{setting}: must not be negative"):
        make_library(LibrarySection("ideal", **{setting: -1}))


@pytest.mark.parametrize(("algorithm", "op", "window"), [
    ("tree", "all_reduce", True), ("tree", "reduce", True), ("tree", "broadcast", False),
    ("double_tree", "all_reduce", True), ("double_tree", "broadcast", False),
    ("ring", "reduce", False), ("ring", "broadcast", False),
])  # fmt: skip
def test_only_trees_that_add_have_so_many_pieces_under_way(
    algorithm: str, op: str, window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def best(pipeline: Pipeline) -> int:
        found.append(pipeline.window)
        return 1

    monkeypatch.setattr(Pipeline, "best_count", best)
    root = -1 if op == "all_reduce" else 0
    Ideal(algorithm).plan(everybody(op, 1000, 4, root), Star(4))
    assert found == [window]
