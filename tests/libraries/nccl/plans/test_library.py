"""NCCL as a library of the engine: plans, what they load, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.share import share_of_each
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, TopologyError
from commsim.libraries import Plan, Request, Start
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.nccl.shapes import Algorithm

PLACES = {
    name: Cluster.preset(name, nodes=nodes)
    for name, nodes in [
        ("dgx-h100", 1), ("dgx-h100", 2), ("dgx-1v", 2), ("pcie-a100", 2), ("aws-p5", 2),
        ("gb200-nvl72", 18),
    ]
}  # fmt: skip
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all",
       "gather", "scatter", "barrier"]  # fmt: skip
ROOTED = ("broadcast", "reduce", "gather", "scatter")


def plan(cluster: Cluster, op: str, size: int, **env: str) -> Plan:
    root = 0 if op in ROOTED else -1
    return Nccl(env=env).plan(
        Request(op, size, tuple(range(cluster.world_size)), root=root), cluster
    )


@pytest.mark.parametrize(
    ("place", "op"), share_of_each([(place,) for place in PLACES], [(op,) for op in OPS], 0.4)
)
def test_a_plan_fits_its_links_on_an_idle_cluster(place: str, op: str) -> None:
    cluster = PLACES[place]
    for size in (0, 1, 2**10, 2**20, 2**30):
        flow = plan(cluster, op, size).parts[0].phases[0]
        needs = flow.load / cluster.links.capacity[flow.link] * 1e12
        assert np.max(needs, initial=0.0) <= flow.idle * (1 + 1e-9)
        assert np.all(np.diff(flow.link) > 0)


@pytest.mark.parametrize("place", PLACES)
def test_bytes_per_connection_are_equal_on_all_links(place: str) -> None:
    flow = plan(PLACES[place], "all_gather", 2**26).parts[0].phases[0]
    each = flow.load / flow.conns
    # only loads cut to what fits have less
    assert np.mean(np.isclose(each, each.max())) > 0.5
    assert np.all(flow.conns > 0)


def test_a_ring_loads_nics_with_its_bytes() -> None:
    cluster = PLACES["dgx-h100"]
    flow = (
        plan(cluster, "all_reduce", 2**30, NCCL_ALGO="Ring", NCCL_PROTO="Simple").parts[0].phases[0]
    )
    out = sum(
        float(load)
        for link, load in zip(flow.link.tolist(), flow.load.tolist(), strict=True)
        if cluster.links.kinds[link] == "network" and cluster.links.source[link].startswith("node0")
    )
    assert out == pytest.approx(2 * 15 / 16 * 2**30)


def test_two_node_trees_send_the_buffer_once_per_direction() -> None:
    cluster = PLACES["dgx-h100"]
    flow = (
        plan(cluster, "all_reduce", 2**30, NCCL_ALGO="Tree", NCCL_PROTO="Simple").parts[0].phases[0]
    )
    out = sum(
        float(load)
        for link, load in zip(flow.link.tolist(), flow.load.tolist(), strict=True)
        if cluster.links.kinds[link] == "network" and cluster.links.source[link].startswith("node0")
    )
    assert out == pytest.approx(2**30)


@given(st.sampled_from(["all_reduce", "all_gather", "broadcast"]), st.integers(2**16, 2**28))
def test_a_kernel_holds_an_sm_per_channel(op: str, size: int) -> None:
    made = plan(PLACES["dgx-h100"], op, size)
    assert made.sms == made.channels
    assert made.touched >= size


def test_small_sends_do_not_wait_for_their_receiver() -> None:
    cluster, library = PLACES["dgx-h100"], Nccl()
    assert library.plan(Request("send_recv", 1024, (0, 1)), cluster).start == Start.EAGER
    assert library.plan(Request("send_recv", 2**24, (0, 1)), cluster).start == Start.PAIR


def test_groups_that_are_placed_alike_have_plans_alike() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=4)
    library = Nccl()
    first = library.plan(Request("all_reduce", 2**24, (0, 8)), cluster)
    other = library.plan(Request("all_reduce", 2**24, (16, 24)), cluster)
    assert first.idle == other.idle
    assert first.parts[0].phases[0].load.tolist() == other.parts[0].phases[0].load.tolist()
    names = {cluster.links.names[link].split("/")[0] for link in other.parts[0].phases[0].link}
    assert not any(name in ("node0", "node1") for name in names)


@pytest.mark.parametrize("redop", ["band", "bor", "bxor"])
def test_reductions_that_torch_refuses(redop: str) -> None:
    request = Request("all_reduce", 64, (0, 1), redop=redop)
    with pytest.raises(ScenarioError, match=f"NCCL has no reduction {redop!r}"):
        Nccl().plan(request, PLACES["dgx-h100"])


def test_an_average_is_not_done_in_the_switch() -> None:
    cluster = Cluster.preset("dgx-h100")
    ranks = tuple(range(8))
    summed = Nccl().plan(Request("all_reduce", 2**28, ranks, redop="sum"), cluster)
    mean = Nccl().plan(Request("all_reduce", 2**28, ranks, redop="avg"), cluster)
    assert summed.algorithm.startswith("NVLS")
    assert not mean.algorithm.startswith("NVLS")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"launch": "thread"}, "library.launch: 'thread'"),
        ({"env": {"NCCL_ALGOO": "Ring"}}, "Did you mean 'NCCL_ALGO'"),
    ],
)
def test_what_is_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Nccl(**how)


def test_host_memory_and_missing_clusters_are_refused() -> None:
    with pytest.raises(ScenarioError, match="Use library gloo"):
        Nccl().plan(Request("all_reduce", 64, (0, 1), on_host=True), PLACES["dgx-h100"])
    with pytest.raises(ScenarioError, match="needs a cluster"):
        Nccl().plan(Request("all_reduce", 64, (0, 1)), None)


@pytest.mark.parametrize(
    ("preset", "overrides", "env", "words"),
    [
        ("dgx-a100", {"nic": {"gdr": False}}, {}, "no GPUDirect"),
        ("perlmutter", {}, {}, "(PHB) than NCCL uses GPUDirect over"),
        ("perlmutter", {}, {}, "set NCCL_NET_GDR_LEVEL=PHB"),
        ("pcie-a100", {"pcie": {"p2p": False}}, {}, "no peer-to-peer"),
        ("dgx-a100", {}, {"NCCL_NVLS_ENABLE": "1"}, "NCCL_NVLS_ENABLE=1 changes nothing"),
    ],
)
def test_what_hardware_cannot_do_is_said(
    preset: str, overrides: dict[str, object], env: dict[str, str], words: str
) -> None:
    cluster = Cluster.preset(preset, nodes=2, overrides=overrides)
    made = plan(cluster, "all_reduce", 2**20, **env)
    assert any(words in note for note in made.notes)
    remedy = {"NCCL_NET_GDR_LEVEL": "PHB"} if preset == "perlmutter" else {}
    usual = plan(Cluster.preset(preset, nodes=2), "all_reduce", 2**20, **remedy)
    assert not any(words in note for note in usual.notes)


@pytest.mark.parametrize(("ranks", "said"), [((0, 1), True), ((0, 4), False), ((0, 1, 4), True)])
def test_peer_access_is_of_two_gpus_of_a_node(ranks: tuple[int, ...], said: bool) -> None:
    cluster = Cluster.preset("pcie-a100", nodes=2, overrides={"pcie": {"p2p": False}})
    made = Nccl().plan(Request("all_reduce", 2**20, ranks), cluster)
    assert any("no peer-to-peer" in note for note in made.notes) is said


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("size", [2**10, 2**26])
def test_a_plan_takes_the_launch_and_the_program_of_the_timing_model(op: str, size: int) -> None:
    library, cluster = Nccl(), PLACES["dgx-h100"]
    ranks = tuple(range(8))
    group = library.group(ranks, cluster)
    choices = None if op == "all_to_all" else [group.choose(op, size)]
    timed = group.timing(op, [size], choices)
    flow = library.plan(Request(op, size, ranks), cluster).parts[0].phases[0]
    assert timed.launch[0] > 1e-6
    assert flow.lead == pytest.approx(timed.launch[0] * 1e12, abs=1)
    assert flow.idle >= timed.program[0] * 1e12 - 1


def test_sending_unevenly_takes_as_long_as_receiving_so() -> None:
    one_gets_most = tuple(tuple(2**26 if j == 0 else 2**10 for j in range(8)) for _ in range(8))
    one_sends_most = tuple(zip(*one_gets_most, strict=True))
    times = [
        Nccl()
        .plan(
            Request("all_to_all_v", 7 * 2**26, tuple(range(8)), splits=splits), PLACES["dgx-h100"]
        )
        .idle
        for splits in (one_gets_most, one_sends_most)
    ]
    assert times[0] == times[1]


def test_a_reducing_kernel_reads_twice_and_writes_once() -> None:
    assert plan(PLACES["dgx-h100"], "all_reduce", 2**20).touched == 2 * 3 * 2**20
    assert plan(PLACES["dgx-h100"], "reduce_scatter", 2**20).touched == 3 * 2**20
    assert plan(PLACES["dgx-h100"], "all_gather", 2**20).touched == 2 * 2**20


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_the_last_of_a_chain_leaves_when_all_is_done(op: str) -> None:
    part = plan(PLACES["dgx-h100"], op, 2**20).parts[0]
    assert part.leaves.max() == part.idle
    assert part.joins.min() == 0
    # one hop apart, but for the first two, who are done together
    later = np.diff(np.sort(part.leaves))
    assert later[0] == 0
    assert np.ptp(later[1:]) <= 1
    assert later[1] > 0


def test_what_goes_through_a_switch_that_adds_up() -> None:
    # its own eighth of all gathered, and all of it back: the sum of n parts is fetched once
    edges = Nccl().group(tuple(range(8)), PLACES["dgx-h100"]).edges
    assert edges.switch_shares(Algorithm.NVLS, "all_reduce") == (1.125, 1.125)
    assert edges.switch_shares(Algorithm.NVLS, "all_gather") == (0.125, 1.0)
    assert edges.switch_shares(Algorithm.NVLS, "reduce_scatter") == (1.0, 0.125)
    assert edges.switch_shares(Algorithm.Ring, "all_reduce") == (0.0, 0.0)


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_what_trees_over_nodes_and_pat_send_in_all(nodes: int) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    edges = Nccl().group(tuple(range(8 * nodes)), cluster).edges
    # two trees with half of S each, up and down every edge, dealt over a node's GPUs
    trees = edges.of(Algorithm.NVLSTree, "all_reduce", 16, -1)
    assert trees.share.sum() == pytest.approx(2 * (nodes - 1))
    # every rank sends what the others lack of it
    pat = edges.of(Algorithm.PAT, "all_gather", 16, -1)
    assert pat.share.sum() == pytest.approx(8 * nodes - 1)


def test_a_send_across_rails_is_relayed_unless_that_is_switched_off() -> None:
    joined = Cluster.preset("dgx-h100", nodes=2, fabric={"oversubscription": 2})
    request = Request("send_recv", 2**20, (0, 9))
    ways = {}
    for env in ({}, {"NCCL_PXN_DISABLE": "1"}):
        phase = Nccl(env=env).plan(request, joined).parts[0].phases[0]
        ways[len(env)] = {joined.links.names[link] for link in phase.link.tolist()}
    assert {"node0/gpu0->nvswitch", "node0/pcie1->nic1"} <= ways[0]
    assert "node0/pcie0->nic0" in ways[1]
    assert not any("nvswitch" in name for name in ways[1])
    rails = Cluster.preset("dgx-h100", nodes=2, fabric={"kind": "rail_only"})
    with pytest.raises(TopologyError, match=r"no GPU may relay \(NCCL_PXN_DISABLE\)"):
        Nccl(env={"NCCL_PXN_DISABLE": "1"}).plan(request, rails)
