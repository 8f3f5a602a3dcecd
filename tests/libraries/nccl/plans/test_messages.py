"""NCCL message by message: on an idle cluster, what the closed form says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from helpers.share import later, share
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Request
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.plans.library import Nccl

PLACES = [("dgx-h100", 1), ("dgx-h100", 3), ("dgx-a100", 2), ("dgx-1v", 2), ("pcie-a100", 2)]
CHEAP = [("LL", 2**12), ("LL", 2**17), *(("Simple", 2**power) for power in (12, 20, 24))]


def times(cluster: Cluster, op: str, size: int, env: dict[str, str]) -> tuple[int, int]:
    """Return the time in ps of an op of all ranks, as a flow and message by message."""
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    root = 0 if op in ("broadcast", "reduce") else -1
    for rank in range(cluster.world_size):
        build.collective(build.lane(rank), world, op, size, stream="comm", root=root)
    graph = build.build()
    fluid, steps = (
        simulate(graph, cluster, library=Nccl(env=env), network=network).end_time
        for network in ("fluid", "steps")
    )
    return fluid, steps


@pytest.mark.parametrize(("preset", "nodes", "op", "algo", "proto", "size"), [
    case
    for op, algo in (("all_reduce", "Ring"), ("all_reduce", "Tree"), ("reduce_scatter", "Ring"))
    for case in (
        *share([(*place, op, algo, proto, size) for place, (proto, size) in product(PLACES, CHEAP)],
               0.25, seed=len(op + algo)),
        *(later((*place, op, algo, "LL", 2**20)) for place in PLACES),  # nobody sends more with LL
    )
])  # fmt: skip
def test_rings_and_trees_agree(
    preset: str,
    nodes: int,
    op: str,
    algo: str,
    proto: str,
    size: int,
) -> None:
    cluster = Cluster.preset(preset, nodes=nodes)
    fluid, steps = times(cluster, op, size, {"NCCL_ALGO": algo, "NCCL_PROTO": proto})
    # DGX-1V's PCIe links are shared, for which the plan allows a little more than the queues need
    slack = 2.5e-2 if preset == "dgx-1v" else 2e-3
    assert steps == pytest.approx(fluid, rel=slack)


@pytest.mark.parametrize(("preset", "nodes", "size"), [
    # an edge that many messages are slow on leaves little for the others; pieces of any number
    ("oci-b200", 3, 2**24), ("hgx-h100", 3, 2**24), ("dgx-2", 1, 2**24),
    ("gcp-a2-high", 3, 2**20),  # whose trees have a hop more within a node than the closed form
])  # fmt: skip
def test_pieces_of_a_tree_leave_room_for_its_latencies(preset: str, nodes: int, size: int) -> None:
    env = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
    fluid, steps = times(Cluster.preset(preset, nodes=nodes), "all_reduce", size, env)
    assert steps == pytest.approx(fluid, rel=2e-3)


@pytest.mark.share(0.4)
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
@pytest.mark.parametrize(("preset", "nodes"), PLACES)
def test_chains_agree(preset: str, nodes: int, op: str) -> None:
    """Also where a chain starts inside a node, which it comes back to."""
    cluster = Cluster.preset(preset, nodes=nodes)
    fluid, steps = times(cluster, op, 2**22, {"NCCL_PROTO": "Simple"})
    assert steps == pytest.approx(fluid, rel=2e-2)


@pytest.mark.parametrize(("op", "root", "channels", "crossings"), [
    ("broadcast", 0, 1, 1),  # 0 7 6 5 4 3 2 1 | 9 to 15 8
    ("broadcast", 3, 1, 2),  # 3 2 1 | 9 to 15 8 | 0 7 6 5 4
    ("broadcast", 0, 8, 2),  # 0 7 | 15 8 to 14 | 6 5 4 3 2 1, on the seventh channel
    ("reduce", 1, 1, 1),  # 9 to 15 8 | 0 7 6 5 4 3 2 1
    ("reduce", 3, 1, 2),  # 2 1 | 9 to 15 8 | 0 7 6 5 4 3
])  # fmt: skip
def test_how_often_a_chain_crosses_the_network(
    op: str, root: int, channels: int, crossings: int
) -> None:
    group = NcclGroup(Site(Cluster.preset("dgx-h100", nodes=2)), range(16))
    assert group.comm.rings[0].tolist() == [0, 7, 6, 5, 4, 3, 2, 1, *range(9, 16), 8]
    choice = replace(group.choose(op, 2**20), channels=channels)
    assert group.runs(op, [2**20], [choice], root=root).crossings.tolist() == [crossings]


def test_every_byte_is_sent_once_per_edge() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    library = Nccl(env={"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"})
    plan = library.plan(Request("all_reduce", 2**26, tuple(range(16))), cluster)
    sent = np.zeros(16)
    for expand in plan.programs:
        messages = expand()
        np.add.at(sent, messages.source, messages.size)
    assert sent == pytest.approx(np.full(16, 2 * 15 / 16 * 2**26))


def test_a_tree_sends_up_and_down() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)
    library = Nccl(env={"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"})
    plan = library.plan(Request("all_reduce", 2**26, tuple(range(16))), cluster)
    total = sum(float(expand().size.sum()) for expand in plan.programs)
    assert total == pytest.approx(2 * 15 * 2**26)
