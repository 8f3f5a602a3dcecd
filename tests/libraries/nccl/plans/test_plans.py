"""Plans of NCCL by hand: the flow, its bytes and connections, who joins and leaves when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster, Links
from commsim.libraries import Plan, Request, Start
from commsim.libraries.expansion import Connections
from commsim.libraries.nccl.plans.exchange_messages import exchange_program
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.nccl.plans.loads import OpLoads
from commsim.libraries.nccl.plans.routes import _side_by_side, routes_between
from commsim.libraries.nccl.shapes import Algorithm
from commsim.libraries.nccl.timing.link_use import _by_nics, latency_of, use_of
from commsim.libraries.nccl.timing.runs import LinkKind
from commsim.libraries.routing import Router

ONE = Cluster.preset("dgx-h100")
TWO = Cluster.preset("dgx-h100", nodes=2)
M = 1 << 20


def carried(plan: Plan, links: Links, kind: str, source: str) -> float:
    """Return the bytes of a plan's flows on the links of a kind that begin at a device."""
    return sum(
        float(load)
        for part in plan.parts
        for phase in part.phases
        for link, load in zip(phase.link.tolist(), phase.load.tolist(), strict=True)
        if links.kinds[link] == kind and links.source[link] == source
    )


def test_an_uneven_exchange_puts_its_bytes_on_the_links() -> None:
    splits = tuple(tuple((i + 2 * j) * M if i != j else 99 * M for j in range(4)) for i in range(4))
    plan = Nccl().plan(Request("all_to_all_v", 0, (0, 1, 2, 3), splits=splits), ONE)
    for rank in range(4):
        out = sum(splits[rank][j] for j in range(4) if j != rank)
        assert carried(plan, ONE.links, "nvlink", f"node0/gpu{rank}") == pytest.approx(out)
    into = [sum(splits[i][j] for i in range(4) if i != j) for j in range(4)]
    busiest = max(into)  # 3 M + 18 M to rank 3
    assert plan.parts[0].phases[0].idle >= busiest / 450e9 * 1e12
    # as long as an even exchange in which each rank sends that much to three others
    group = Nccl().group((0, 1, 2, 3), ONE)
    even = group.timing("all_to_all", [busiest * 4 // 3])
    least = round(float(even.program[0]) * 1e12)
    assert plan.parts[0].phases[0].idle >= least
    assert plan.parts[0].phases[0].idle <= 1.2 * least
    assert plan.parts[0].phases[0].lead == pytest.approx(float(even.launch[0]) * 1e12, abs=2)


@pytest.mark.parametrize("target", [3, 11])
def test_a_send_carries_its_bytes_and_keeps_both_ends_until_it_ends(target: int) -> None:
    size = 64 * M
    plan = Nccl().plan(Request("send_recv", size, (0, target)), TWO)
    (part,) = plan.parts
    (flow,) = part.phases
    assert (plan.algorithm, plan.members, plan.sms, plan.channels) == ("send_recv", 2, 1, 1)
    assert plan.touched == 2 * size
    assert plan.start == Start.PAIR
    assert part.joins.tolist() == [0, 0]
    assert part.leaves.tolist() == [flow.lead + flow.idle] * 2
    assert carried(plan, TWO.links, "nvlink", "node0/gpu0") == pytest.approx(size)
    group = Nccl().group((0, target), TWO)
    timing = group.timing("send_recv", [size])
    assert flow.lead == pytest.approx(float(timing.launch[0]) * 1e12, abs=2)
    assert flow.idle == pytest.approx(float(timing.program[0]) * 1e12, rel=0.02)
    assert flow.idle >= timing.program[0] * 1e12 - 1
    assert flow.load == pytest.approx(flow.conns * size)


@pytest.mark.parametrize(("op", "order"), [
    ("broadcast", 1),  # the ring from the root on
    ("reduce", -1),  # and towards it
])  # fmt: skip
def test_members_of_a_chain_join_and_leave_a_hop_apart(op: str, order: int) -> None:
    library, ranks, root, size = Nccl(), tuple(range(8)), 5, M
    group = library.group(ranks, ONE)
    plan = library.plan(Request(op, size, ranks, root=root), ONE)
    choice = group.choose(op, size)
    part, flow = plan.parts[0], plan.parts[0].phases[0]
    still = float(group.timing(op, [0], [choice], root=root).program[0]) * 1e12
    hop = min(still, flow.idle) / 7
    ring = group.comm.rings[0].tolist()
    at = ring.index(root)
    chain = ring[at:] + ring[:at] if order > 0 else ring[at + 1 :] + ring[: at + 1]
    for place, rank in enumerate(chain):
        joins = flow.lead + place * hop if place else 0
        assert part.joins[rank] == pytest.approx(joins, abs=2)
        leaves = flow.lead + flow.idle - (7 - max(place, 1)) * hop
        assert part.leaves[rank] == pytest.approx(leaves, abs=2)
    assert plan.start == Start.PATH


def test_a_group_of_one_has_nothing_to_do() -> None:
    plan = Nccl().plan(Request("all_reduce", M, (3,)), ONE)
    assert (plan.idle, plan.members, plan.start) == (0, 1, Start.ALL)
    assert (plan.parts[0].joins.tolist(), plan.parts[0].leaves.tolist()) == ([0], [0])


def test_a_barrier_is_an_all_reduce_of_one_element() -> None:
    ranks = tuple(range(8))
    barrier = Nccl().plan(Request("barrier", 0, ranks), ONE)
    reduced = Nccl().plan(Request("all_reduce", 4, ranks), ONE)
    assert barrier.idle == reduced.idle
    assert barrier.algorithm == reduced.algorithm


def test_pairwise_ops_use_the_channels_of_sends() -> None:
    ranks = tuple(range(8))
    plan = Nccl().plan(Request("all_to_all", M, ranks), ONE)
    channels = Nccl().group(ranks, ONE).pairwise.channels
    assert (plan.channels, plan.sms, plan.algorithm) == (channels, channels, "pairwise")
    assert plan.touched == 2 * M


def test_shares_of_switches_are_cut_to_what_the_time_leaves() -> None:
    loads = OpLoads(
        np.array([0, 2]), np.array([1.0, 3.0]), np.ones(2), multicast=np.array([0.5, 1.0])
    )
    capacity = np.array([10.0, 1.0, 20.0])
    # half of S plain on 10 bytes/s, two of S on 20
    assert loads.seconds_per_byte(capacity) == pytest.approx(0.1)
    assert loads.bytes_in(100.0, 100.0, capacity).tolist() == [100.0, 300.0]
    assert loads.bytes_in(100.0, 12.0, capacity).tolist() == [100.0, 240.0]
    assert loads.bytes_in(100.0, 5.0, capacity).tolist() == [50.0, 200.0]


def test_seconds_per_byte_on_links_within_and_between_domains() -> None:
    names = TWO.links.names
    port, wire = names.index("node0/gpu0->nvswitch"), TWO.fabric.nic_link(3)
    other, pcie = TWO.fabric.nic_link(8), names.index("node0/pcie1->nic1")
    link = np.array([port, pcie, wire, other])
    share = np.array([1.0, 0.75, 0.5, 0.25])
    capacity = TWO.links.capacity[link]
    found = use_of(link, share, TWO, LinkKind.NVLINK)
    assert found.local == pytest.approx(1.0 / capacity[0])
    assert found.net == pytest.approx(max(share[1:] / capacity[1:]))
    assert found.leaving == 0.5  # of node 0, the busiest
    host = use_of(link, share, TWO, LinkKind.PCIE)
    assert host.local == pytest.approx(max(share[:2] / capacity[:2]))
    assert host.net == pytest.approx(0.5 / capacity[2])
    nothing = use_of(link[:0], share[:0], TWO, LinkKind.NVLINK)
    assert (nothing.local, nothing.net, nothing.leaving) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("preset", "nodes", "pairs", "far"), [
    ("dgx-h100", 2, [(0, 1), (0, 8), (1, 15), (3, 2)], [1, 2]),
    ("gb200-nvl72", 18, [(0, 4), (1, 71), (2, 3)], []),  # a rack is one domain
    ("gb200-nvl72", 36, [(0, 4), (0, 72), (5, 100)], [1, 2]),
    ("dgx-h100", 1, [(0, 1)], []),
])  # fmt: skip
def test_latencies_of_routes(
    preset: str, nodes: int, pairs: list[tuple[int, int]], far: list[int]
) -> None:
    cluster = Cluster.preset(preset, nodes=nodes)
    router = Router(cluster)
    source, target = np.array(pairs + pairs[:1]).T  # the first counts twice
    found = latency_of(Connections.of(source, target, 1.0), router)
    ps = [router.route(a, b).latency for a, b in [*pairs, pairs[0]]]
    near = [ps[at] for at in range(len(ps)) if at % len(pairs) not in far]
    beyond = [ps[at] for at in range(len(ps)) if at % len(pairs) in far]
    assert found.hop * 1e12 == pytest.approx(np.mean(near))
    assert found.longest_hop * 1e12 == pytest.approx(max(near))
    assert found.reach * 1e12 == pytest.approx(np.mean(beyond) if beyond else 0.0)
    assert found.longest * 1e12 == pytest.approx(max(beyond, default=0.0))


@pytest.mark.parametrize(("op", "ranks"), [("all_to_all", 16), ("send_recv", 16), ("send_recv", 8)])
def test_sends_take_the_longest_hop_if_only_that_of_the_ring(op: str, ranks: int) -> None:
    """All ranks of an all-to-all over two nodes send to the other node, as far as is looked."""
    made = NcclGroup(Site(Cluster.preset("dgx-h100", nodes=2)), range(ranks))
    ring = latency_of(made.edges.of(Algorithm.Ring, "all_gather", 1, -1), made.router)
    found = made._latency(op, None)
    assert found.hop == found.longest_hop == ring.longest_hop > 0


@pytest.mark.parametrize("each", [1, 2, 4])
def test_the_nics_of_a_gpu_share_what_it_sends(each: int) -> None:
    gpus = 8 // each
    cluster = Cluster.preset("dgx-h100", nodes=2, overrides={"gpu": {"count": gpus}})
    made = NcclGroup(Site(cluster), range(2 * gpus))
    found = made.edges.pairs(np.array([0]), np.array([gpus]), 0.6)
    assert found.share == pytest.approx([0.6 / each] * each)
    assert len(set(found.out.tolist())) == len(set(found.into.tolist())) == each


@pytest.mark.parametrize(("ends", "nics"), [((0, 8), (0, 8)), ((3, 11), (3, 11))])
def test_a_route_by_named_nics_has_the_latency_of_its_links(
    ends: tuple[int, int], nics: tuple[int, int]
) -> None:
    """By the GPUs' own NICs it is the usual route."""
    cluster = Cluster.preset("dgx-h100", nodes=2)
    columns = np.array([*ends, *nics, -1])[:, None]
    assert _by_nics(columns, cluster).tolist() == [Router(cluster).route(*ends).latency]


def test_between_rails_that_nothing_joins_there_is_no_latency_but_that_of_the_nics() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2, fabric={"kind": "rail_only"})
    columns = np.array([[0, 0], [8, 9], [0, 0], [8, 9], [-1, -1]])  # along a rail, to another
    along, apart = _by_nics(columns, cluster).tolist()
    assert along == apart == Router(cluster).route(0, 8).latency


def test_no_connections_have_no_latency() -> None:
    none = np.zeros(0, np.int64)
    found = latency_of(Connections.of(none, none, 1.0), Router(ONE))
    assert (found.hop, found.reach, found.longest, found.longest_hop) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(("op", "held"), [("gather", [0, 1, 2]), ("scatter", [0, 1, 2])])
def test_messages_of_a_root_follow_one_another(op: str, held: list[int]) -> None:
    """Three parts, each a third of the time, at the root's end."""
    group, size, idle = NcclGroup(Site(ONE), [0, 1, 2, 3]), 64 * M, 10**10
    program = exchange_program(
        group, op, lambda a, b: np.full(len(a), float(size)), 1, lead=0, idle=idle
    )()
    delays: Any = program.delays
    third = delays.pace[0]
    assert delays.pace == pytest.approx(np.full(3, third))
    assert sorted(delays.hold.tolist()) == pytest.approx([turn * third for turn in held])
    assert 0.9 * idle < 3 * third < idle


def test_nics_of_one_gpu_carry_a_message_side_by_side(many_nics: Any) -> None:
    cluster = many_nics(2)
    group = NcclGroup(Site(cluster), [0, 8])
    (way,) = routes_between(group, np.array([0]), np.array([1]))
    nics = [link for link in way.link if cluster.links.kinds[link] == "network"]
    share = dict(zip(way.link, way.share, strict=True))
    assert sum(share[cluster.fabric.nic_link(nic)] for nic in range(4)) == pytest.approx(1.0)
    assert {share[cluster.fabric.nic_link(nic)] for nic in range(4)} == {0.25}
    assert len(nics) >= 8
    assert list(way.hop) == sorted(way.hop)
    (near,) = routes_between(NcclGroup(Site(cluster), [0, 1]), np.array([0]), np.array([1]))
    assert _side_by_side([near]) is near
    assert _side_by_side([near, near]) == near
