"""Of NCCL, message by message: NVLS, NVLSTree, CollNet, PAT, all-to-all, gather, scatter, sends."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.collectives import check, dependencies, program
from commsim.collectives.program import ProgramBuilder
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Plan, Request
from commsim.libraries.nccl.plans import laid_messages
from commsim.libraries.nccl.plans.exchange_messages import rounds_of
from commsim.libraries.nccl.plans.library import Nccl
from commsim.libraries.nccl.plans.network_sums import (
    between_ranks,
    chains_over_nodes,
    direct_over_nodes,
    nvls_over_nodes,
)

ONE_GPU: dict[str, Any] = {"overrides": {"gpu": {"count": 1}, "nic": {"count": 1}}}
CASES = [
    ("dgx-h100", 1, "all_reduce", "NVLS", {}),
    ("dgx-h100", 1, "all_gather", "NVLS", {}),
    ("dgx-h100", 1, "reduce_scatter", "NVLS", {}),
    ("dgx-h100", 3, "all_reduce", "NVLSTree", {}),
    ("aws-p5", 2, "all_reduce", "NVLSTree", {}),  # whose routes are long: 12 us
    ("dgx-h100", 2, "all_reduce", "NVLS", {}),
    ("dgx-h100", 3, "all_reduce", "CollNetDirect", {}),
    ("dgx-h100", 2, "all_reduce", "CollNetChain", {}),
    ("dgx-h100", 8, "all_gather", "PAT", ONE_GPU),
    ("dgx-h100", 7, "reduce_scatter", "PAT", ONE_GPU),
    ("dgx-h100", 1, "all_to_all", "", {}),
    ("dgx-h100", 3, "all_to_all", "", {}),
    ("dgx-1v", 2, "all_to_all", "", {}),
    ("pcie-a100", 2, "all_to_all", "", {}),
    ("dgx-h100", 2, "gather", "", {}),
    ("dgx-h100", 2, "scatter", "", {}),
]
each_case = pytest.mark.parametrize(
    ("preset", "nodes", "op", "algo", "more"), CASES,
    ids=[f"{case[2]} {case[3]} {case[1]} {case[0]}" for case in CASES],
)  # fmt: skip


def library(algo: str) -> Nccl:
    if not algo:
        return Nccl()
    return Nccl(env={"NCCL_ALGO": algo, "NCCL_PROTO": "Simple", "NCCL_COLLNET_ENABLE": "1"})


def planned(cluster: Cluster, op: str, algo: str, size: int) -> Plan:
    root = 3 if op in ("gather", "scatter") else -1
    ranks = tuple(range(cluster.world_size))
    return library(algo).plan(Request(op, size, ranks, root=root), cluster)


@pytest.mark.share(0.6)
@each_case
def test_messages_take_what_the_closed_form_says(
    preset: str, nodes: int, op: str, algo: str, more: dict[str, Any]
) -> None:
    """On an idle cluster. A scatter's last messages may meet on a NIC: 5 % more.

    Those that a GPU sends under CollNetDirect leave by its NVLink, one after the other; a chain of
    CollNetChain has more hops than the closed form counts: 4 % more.
    """
    cluster = Cluster.preset(preset, nodes=nodes, **more)
    for size in (2**12, 2**26):
        build = GraphBuilder()
        world = build.group("world", range(cluster.world_size))
        for rank in range(cluster.world_size):
            root = 3 if op in ("gather", "scatter") else -1
            build.collective(build.lane(rank), world, op, size, stream="comm", root=root)
        found = simulate(build.build(), cluster, library=library(algo), network="steps")
        assert not any("no program" in note for note in found.notes)
        slack = 0.05 if op == "scatter" else 0.04 if "CollNet" in algo else 1e-5
        assert found.end_time == pytest.approx(planned(cluster, op, algo, size).idle, rel=slack)


@pytest.mark.share(0.5)
@each_case
def test_every_link_carries_what_the_flow_puts_on_it(
    preset: str, nodes: int, op: str, algo: str, more: dict[str, Any]
) -> None:
    cluster = Cluster.preset(preset, nodes=nodes, **more)
    plan = planned(cluster, op, algo, 2**26)
    phase = plan.parts[0].phases[0]
    carried, expected = np.zeros(len(cluster.links)), np.zeros(len(cluster.links))
    expected[phase.link] = phase.load
    for expand in plan.programs:
        messages = expand()
        sent = np.bincount(messages.route, messages.size, len(messages.routes))
        for route, size in zip(messages.routes, sent.tolist(), strict=True):
            np.add.at(carried, list(route.link), np.array(route.share) * size)
    assert carried == pytest.approx(expected, rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("nodes", [1, 2])
def test_nvls_goes_over_nvlink_where_gpus_do_not_read_each_other(nodes: int) -> None:
    """NCCL asks the GPU alone whether it multicasts (ncclNvlsInit), not NCCL_P2P_DISABLE."""
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    env = {"NCCL_ALGO": "NVLS,NVLSTree", "NCCL_P2P_DISABLE": "1"}
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    for rank in range(cluster.world_size):
        build.collective(build.lane(rank), world, "all_reduce", 2**24, stream="comm")
    graph, ranks = build.build(), tuple(range(cluster.world_size))
    plan = Nccl(env=env).plan(Request("all_reduce", 2**24, ranks), cluster)
    assert plan.algorithm.startswith("NVLS")
    found = simulate(graph, cluster, library=Nccl(env=env), network="steps")
    assert found.end_time == pytest.approx(plan.idle, rel=1e-5)
    loads = plan.parts[0].phases[0]
    over = [cluster.links.kinds[link] == "nvlink" for link in loads.link.tolist()]
    assert sum(over) == 2 * cluster.world_size
    assert loads.load[over].min() > 2**24


@pytest.mark.parametrize("version", ["2.18", "2.27"])
@pytest.mark.parametrize(("preset", "nodes", "used"), [
    ("dgx-h100", 1, range(8)), ("dgx-h100", 2, range(16)), ("dgx-h100", 2, range(5, 14)),
])  # fmt: skip
def test_rounds_of_an_all_to_all_are_proven(
    version: str, preset: str, nodes: int, used: range
) -> None:
    """Every pair meets once, each chunk comes to its owner, and in a round nobody gets two."""
    cluster, n = Cluster.preset(preset, nodes=nodes), len(used)
    group = Nccl(version=version).group(tuple(used), cluster)
    turns, sources, targets = rounds_of(group, "all_to_all", -1)
    made = ProgramBuilder("all_to_all", "rounds", n, [1 / n] * (n * n))
    for turn, source, target in zip(
        turns.tolist(), sources.tolist(), targets.tolist(), strict=True
    ):
        made.copy(source * n + target, source, target, step=turn)
    assert check(made.build()) == []
    for ends in (sources, targets):
        assert len(np.unique(turns * n + ends)) == n * (n - 1)


@pytest.mark.parametrize("n", [2, 3, 7, 8])
def test_programs_are_proven(n: int) -> None:
    for op in ("all_gather", "reduce_scatter"):
        assert check(program(op, "pat", n)) == []
        assert check(program(op, "nvls", n, pieces=3)) == []
    assert check(program("all_reduce", "nvls", n, pieces=3)) == []
    assert check(program("all_reduce", "nvls_tree", 2 * n, per_node=2, pieces=2)) == []
    assert check(nvls_over_nodes(3 * n, n, 2)) == []
    turned = [np.roll(np.arange(n), by).tolist() for by in range(3)]
    assert check(chains_over_nodes(2 * n, turned, 2)) == []


def test_what_comes_from_the_network_waits_for_all_that_it_adds() -> None:
    """Two nodes of two: a sum goes on within its node once both nodes have sent theirs."""
    made = between_ranks(direct_over_nodes(4, 2, 1), 2)
    ptr, dep = dependencies(made)
    ends = list(zip(made.source.tolist(), made.target.tolist(), strict=True))
    at = next(i for i, end in enumerate(ends) if end == (0, 1) and made.step[i] == 3)
    assert sorted(ends[i] for i in dep[ptr[at] : ptr[at + 1]]) == [(0, 2), (2, 0)]
    assert made.n == made.actors == 4


def test_an_uneven_exchange_sends_what_is_asked_for() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    rng = np.random.default_rng(1)
    splits = (rng.integers(0, 3, (16, 16)) * 2**20).astype(int)
    np.fill_diagonal(splits, 0)
    rows = tuple(tuple(row) for row in splits.tolist())
    request = Request("all_to_all_v", int(splits.sum()), tuple(range(16)), splits=rows)
    plan = Nccl().plan(request, cluster)
    messages = plan.programs[0]()
    sent = np.zeros((16, 16))
    np.add.at(sent, (messages.source, messages.target), messages.size)
    assert sent == pytest.approx(splits)
    delays = messages.delays
    assert delays is not None
    assert delays.pace is not None
    assert float((delays.hold + delays.pace + delays.after).max()) <= plan.idle + 1


def test_a_late_member_holds_back_nothing_of_a_pair_that_is_there() -> None:
    """All wait for all at the start, as NCCL's kernels do; then each pair ends in its round."""
    cluster = Cluster.preset("dgx-h100")
    build = GraphBuilder()
    world = build.group("world", range(8))
    for rank in range(8):
        lane = build.lane(rank)
        if rank == 5:
            build.compute(lane, 10**9, name="late", stream="comm")
        build.collective(lane, world, "all_to_all", 2**26, stream="comm")
    found = simulate(build.build(), cluster, library=Nccl(), network="steps")
    idle = planned(cluster, "all_to_all", "", 2**26).idle
    assert found.end_time == pytest.approx(10**9 + idle, rel=1e-5)


SENDS = [("dgx-h100", 2, 9), ("dgx-h100", 1, 3), ("gb200-nvl72", 18, 30), ("aws-p5", 2, 12)]


def sends(cluster: Cluster, pairs: list[tuple[int, int]], size: int, network: str) -> list[int]:
    """Return when each send ends, all of them issued at once."""
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    lanes = {rank: build.lane(rank) for rank in dict.fromkeys(chain(*pairs))}
    for number, (source, target) in enumerate(pairs):
        how: dict[str, Any] = {"group": world, "stream": f"p2p {number}"}
        build.send(lanes[source], target, size, **how)
        build.recv(lanes[target], source, size, **how)
    found = simulate(build.build(), cluster, library=Nccl(), network=network)
    assert not any("no program" in note for note in found.notes)
    return [int(end) for end in found.end[::2]]


@pytest.mark.parametrize(("preset", "nodes", "target"), SENDS, ids=str)
@pytest.mark.parametrize("size", [0, 8, 2**16, 2**20, 2**28])
def test_a_send_takes_as_a_message_what_it_takes_as_a_flow(
    preset: str, nodes: int, target: int, size: int
) -> None:
    cluster, pair = Cluster.preset(preset, nodes=nodes), [(0, target)]
    assert sends(cluster, pair, size, "steps") == sends(cluster, pair, size, "fluid")


def test_sends_that_meet_on_a_nic_share_it_as_messages_too() -> None:
    cluster, size = Cluster.preset("dgx-h100", nodes=3), 2**28
    pairs = [(0, 8), (0, 16)]
    wire = size / cluster.links.capacity[cluster.fabric.nic_link(0)] * 1e12
    messages, flows = (sends(cluster, pairs, size, network) for network in ("steps", "fluid"))
    assert max(messages) >= 2 * wire
    assert max(messages) == pytest.approx(max(flows), rel=0.02)


@pytest.mark.parametrize(
    ("nodes", "algo", "each"),
    [
        # messages of a piece; 16,384 in all at most, and 32 pieces
        (1, "NVLS", 4 * 8),
        (16, "NVLS", 5 * 128),
        (8, "NVLSTree", 2 * (4 * 64 + 2 * 7 * 8)),
        (12, "CollNetDirect", 15 * 96),
    ],
)
def test_as_many_pieces_as_messages_allow(nodes: int, algo: str, each: int) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    programs = planned(cluster, "all_reduce", algo, 2**30).programs
    assert sum(len(expand().size) for expand in programs) == each * min(32, 16_384 // each)


def test_messages_between_ranks_go_by_nics_and_those_of_a_switch_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: Any = SimpleNamespace(
        route=np.array([2, 0, 3, 1, 0]), source=np.array([-1, 0, 2, 1, 0]),
        target=np.array([2, 1, -1, 0, 1]), routes=("a", "b", "from a switch", "to a switch"),
    )  # fmt: skip

    def between(group: Any, source: Any, target: Any) -> list[str]:
        return [f"{a} to {b}" for a, b in zip(source, target, strict=True)]

    monkeypatch.setattr(laid_messages, "routes_between", between)
    group: Any = "a group"
    found: Any = laid_messages._by_nics(group, messages)
    assert found == ("0 to 1", "1 to 0", "from a switch", "to a switch")
