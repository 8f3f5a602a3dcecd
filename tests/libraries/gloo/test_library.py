"""Gloo's rules: staging, threads, interfaces, refusals; and other libraries beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.host_star import COSTS, US, HostStar

from commsim.cluster import Cluster, Route
from commsim.engine import simulate
from commsim.errors import ScenarioError, TopologyError
from commsim.graph import Device, Fold, Graph, GraphBuilder
from commsim.libraries import (
    Ideal,
    Libraries,
    LibrarySection,
    Plan,
    Recorded,
    Request,
    Start,
    for_groups,
    library_of,
    links_of,
    make_library,
)
from commsim.libraries.gloo import Gloo
from commsim.libraries.gloo.constants import constants
from commsim.timeline import Timeline

MIB = 1 << 20
LEAD = 3 * US


class GpuHosts(HostStar):
    """Hosts with a GPU each, which copies to its host by a link of its own, of twice the speed."""

    device = "cuda"

    def to_host(self, rank: int) -> Route:
        return Route((2 * rank,), (0.5,), (0,), US)

    def from_host(self, rank: int) -> Route:
        return Route((2 * rank + 1,), (0.5,), (0,), US)


def plan(kind: str, size: int, cluster: Cluster, **more: Any) -> Plan:
    ranks = tuple(range(cluster.world_size))
    return Gloo(costs=COSTS).plan(Request(kind, size, ranks, **more), cluster)


def one(
    cluster: Cluster, kind: str, size: int, *, late: int = 0, device: Device = Device.CUDA
) -> Timeline:
    """Run one op of all ranks, of which rank 0 comes late."""
    build = GraphBuilder()
    world = build.group("world", range(cluster.world_size))
    for rank in range(cluster.world_size):
        lane = build.lane(rank)
        build.compute(lane, late if rank == 0 else 0, name="work", stream="c")
        root = 1 if kind in ("broadcast", "gather") else -1
        build.collective(lane, world, kind, size, stream="c", root=root, device=device)
    return simulate(build.build(), cluster, library=Gloo(costs=COSTS))


def test_gpu_data_is_copied_out_and_back() -> None:
    size = 2 * MIB
    inner = plan("all_reduce", size, HostStar(4)).idle
    copy = LEAD + US + size // 2 * 1000
    run = one(GpuHosts(4), "all_reduce", size)
    assert run.end_time == inner + 2 * copy
    assert run.notes[0].startswith("gloo: GPU data is staged")
    assert (run.start == run.arrive).all()  # copying is not waiting


def test_data_in_host_memory_is_not_copied() -> None:
    inner = plan("all_reduce", MIB, HostStar(4)).idle
    assert one(GpuHosts(4), "all_reduce", MIB, device=Device.CPU).end_time == inner
    assert one(HostStar(4), "all_reduce", MIB).end_time == inner


def test_those_who_wait_for_the_last_have_copied_by_then() -> None:
    late = 50_000 * US
    run = one(GpuHosts(4), "all_reduce", MIB, late=late)
    on_time = one(GpuHosts(4), "all_reduce", MIB)
    assert run.end_time == late + on_time.end_time
    copy = LEAD + US + MIB // 2 * 1000
    assert run.start[1] == late
    assert run.start[3] - run.arrive[3] == late  # it copied `copy` just before the start, in effect
    assert run.end[3] - run.start[3] > 2 * copy


def test_the_bytes_that_each_op_copies() -> None:
    """In: what a rank gives; out: what it gets (a broadcast and a reduce copy back everywhere)."""
    cluster, size = GpuHosts(4), 4000

    def copied(kind: str, **more: Any) -> tuple[list[int], list[int]]:
        made = plan(kind, size, cluster, **more)
        into, out = (
            [copy.size if copy else 0 for copy in copies]
            for copies in (made.copies_in, made.copies_out)
        )
        return into, out

    every, part, root = [4000] * 4, [1000] * 4, [0, 4000, 0, 0]
    for kind in ("all_reduce", "reduce_scatter", "all_to_all"):
        assert copied(kind) == (every, every)
    assert copied("all_gather") == (part, every)
    assert copied("reduce", root=1) == (every, every)
    assert copied("broadcast", root=1) == (root, every)
    assert copied("gather", root=1) == (part, root)
    assert copied("scatter", root=1) == (root, part)
    splits = ((0, 1, 2, 3), (4, 0, 5, 6), (7, 8, 0, 9), (10, 11, 12, 0))
    assert copied("all_to_all_v", splits=splits) == ([6, 15, 24, 33], [21, 20, 19, 18])
    assert plan("barrier", 0, cluster).copies_in == ()


def test_staging_shares_pcie_with_other_traffic() -> None:
    """On a real node: the copies of an op are on the PCIe links of its GPUs."""
    cluster = Cluster.preset("pcie-a100")
    run = one(cluster, "all_reduce", 64 * MIB)
    used = {
        name: carried
        for name, carried in zip(run.links.names, run.links.link_bytes(), strict=True)
        if carried and "gpu0" in name
    }
    assert sorted(used.values()) == pytest.approx([64 * MIB, 64 * MIB])


def test_two_ops_of_a_group_run_at_once_and_the_third_waits() -> None:
    build = GraphBuilder()
    world = build.group("world", range(2))
    for rank in range(2):
        lane = build.lane(rank)
        for number in range(3):
            build.collective(lane, world, "barrier", 0, stream=f"op {number}")
    run = simulate(build.build(), HostStar(2), library=Gloo(costs=COSTS))
    alone = plan("barrier", 0, HostStar(2)).idle
    assert run.end.tolist()[:3] == [alone, alone, 2 * alone]


def test_two_ops_at_once_share_the_threads_that_copy() -> None:
    """Each alone fills its process' thread, so two take twice as long."""
    build = GraphBuilder()
    world = build.group("world", range(2))
    for rank in range(2):
        lane = build.lane(rank)
        for number in range(2):
            build.collective(
                lane, world, "all_reduce", 64 * MIB, stream=f"op {number}", device=Device.CPU
            )
    cluster = Cluster.preset("cpu-ethernet")
    run = simulate(build.build(), cluster, library=Gloo())
    ranks = (0, 1)
    alone = Gloo().plan(Request("all_reduce", 64 * MIB, ranks, on_host=True), cluster).idle
    assert run.end_time == pytest.approx(2 * alone, rel=0.02)
    threads = [
        carried
        for name, carried in zip(run.links.names, run.links.link_bytes(), strict=True)
        if "tcp" in name
    ]
    assert len(threads) == 4
    assert threads == pytest.approx([2 * 64 * MIB] * 4)  # both ops, 2 (n-1)/n of their bytes


def test_messages_of_gpu_memory_are_refused_as_torch_fails_on_them() -> None:
    with pytest.raises(ScenarioError, match="Gloo sends host memory only"):
        plan("send_recv", 1, GpuHosts(2))
    assert plan("send_recv", 1, GpuHosts(2), on_host=True).idle > 0


def test_premul_sum_is_refused_and_avg_is_not() -> None:
    with pytest.raises(ScenarioError, match=r"ReduceOp\.PREMUL_SUM"):
        plan("all_reduce", 4, HostStar(2), redop="premul_sum")
    assert plan("all_reduce", 4, HostStar(2), redop="avg").idle > 0


def test_reduce_scatter_says_what_it_is() -> None:
    assert "done as an all_reduce" in plan("reduce_scatter", 8, HostStar(2)).notes[0]


def test_all_processes_of_a_node_use_its_interface() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2)

    def nics(gloo: Gloo) -> set[str]:
        request = Request("all_to_all", MIB, tuple(range(16)))
        part = gloo.plan(request, cluster).parts[-1]
        names = [links_of(gloo, cluster).names[i] for i in part.phases[0].link]
        return {name.split("->")[0] for name in names if name.startswith("node0/nic")}

    assert nics(Gloo()) == {"node0/nic0"}
    assert nics(Gloo(interface=5)) == {"node0/nic5"}
    with pytest.raises(ScenarioError, match=r"library\.interface: 8: node 0 has NICs 0 to 7"):
        nics(Gloo(interface=8))


class Islands(HostStar):
    """Hosts that no fabric joins."""

    def fabric_route(self, a: int, b: int, *, key: int = 0) -> Route | None:
        return None


def test_nodes_that_cannot_reach_each_other_are_named() -> None:
    with pytest.raises(TopologyError, match=r"gloo: node \d cannot reach node \d by NIC 0"):
        plan("all_gather", 8, Islands(2))
    alone = HostStar(2)
    alone.nics = ()
    with pytest.raises(TopologyError, match="node 0 has no NIC to leave it by"):
        plan("all_gather", 8, alone)


def test_gloo_needs_a_cluster_and_knows_its_settings() -> None:
    with pytest.raises(ScenarioError, match="Gloo needs a cluster"):
        Gloo().plan(Request("barrier", 0, (0, 1)), None)
    with pytest.raises(ScenarioError, match="no algorithm 'bcub'. Did you mean 'bcube'"):
        make_library(LibrarySection("gloo", algo="bcub"))
    for wrong in ({"channels": 2}, {"pieces": 2}):
        with pytest.raises(ScenarioError, match="means nothing to library gloo"):
            make_library(LibrarySection("gloo", **wrong))
    with pytest.raises(ScenarioError, match=r"library\.interface: means nothing to library ideal"):
        make_library(LibrarySection(interface=1))
    with pytest.raises(ScenarioError, match="counted from 0"):
        Gloo(interface=-1)
    assert make_library(LibrarySection("gloo", interface=1)).name == "gloo"


def test_every_constant_has_a_source() -> None:
    found = constants()
    for name in ("reduce_rate", "op_overhead", "copy_overhead"):
        assert found.sources[name]
    for medium in found.media.values():
        assert medium.sources["rate"]
        assert medium.sources["latency"]
    assert found.of("slingshot") == found.of("ethernet")


def groups_of(*libraries: str) -> Graph:
    build = GraphBuilder()
    build.lane(0)
    for number, library in enumerate(libraries):
        build.group(f"g{number}", range(2), library=library)
    return build.build()


def test_each_group_has_its_own_library() -> None:
    ideal = Ideal()
    both = for_groups(ideal, groups_of("", "gloo", "ideal"))
    assert isinstance(both, Libraries)
    assert library_of(both, "") is library_of(both, "ideal") is ideal
    assert library_of(both, "gloo").name == "gloo"
    assert (both.name, both.concurrency, library_of(both, "gloo").concurrency) == ("ideal", 1, 2)
    cluster = Cluster.preset("cpu-ethernet")
    assert len(links_of(both, cluster)) == len(cluster.links) + 4
    request = Request("all_reduce", MIB, (0, 1))
    assert both.plan(request, cluster) is ideal.plan(request, cluster)


def test_one_library_alone_plans_for_all() -> None:
    ideal = Ideal()
    assert for_groups(ideal, groups_of("", "ideal")) is ideal
    recorded = Recorded()
    assert library_of(recorded, "nccl") is recorded
    assert library_of(recorded, "gloo").concurrency == 0  # its recorded streams say what is at once
    cluster = Cluster.preset("cpu-ethernet")
    assert links_of(recorded, cluster) is cluster.links


def test_two_libraries_with_links_of_their_own_cannot_run_together() -> None:
    with pytest.raises(ScenarioError, match="only one of them can run"):
        Libraries(Gloo(), {"other": Gloo()})


def test_a_folded_graph_is_refused_as_each_process_has_links() -> None:
    fold = Fold.of(np.zeros(4, np.int64), {"dp": np.arange(4).reshape(1, 4)}, {})
    build = GraphBuilder(fold)
    for rank in fold.representatives:
        group = build.orbit("dp", rank)
        build.collective(build.lane(rank), group, "all_reduce", MIB, stream="c")
    with pytest.raises(ScenarioError, match="library gloo has links for each process"):
        simulate(build.build(), Cluster.preset("dgx-a100"), library=Gloo())


def test_who_must_be_there_when() -> None:
    """Members of rooted ops join as data reaches them: round by round down a binomial tree."""
    tree = plan("broadcast", MIB, HostStar(4), root=0)
    assert tree.start == Start.PATH
    first, second, third, fourth = tree.parts[0].joins.tolist()
    assert first == second == 0  # what software does before the first message is their own
    # a MiB at 1 GB/s later the root sends on, and who has it a little later
    assert third - first == pytest.approx(MIB * 1000, abs=1)
    assert third < fourth < third + 20 * US
    assert plan("reduce", MIB, HostStar(4), root=0).start == Start.PATH
    for kind in ("all_reduce", "all_gather", "all_to_all", "barrier"):
        made = plan(kind, 0 if kind == "barrier" else MIB, HostStar(4))
        assert made.start == Start.ALL
        assert all(not part.joins.any() for part in made.parts)
    assert plan("send_recv", MIB, HostStar(2)).start == Start.PAIR


def test_pairs_of_a_node_are_done_before_those_of_several() -> None:
    """The messages of an all-to-all need no other; those of a ring do."""
    cluster = Cluster.preset("pcie-a100", nodes=2)
    gloo, ranks = Gloo(costs=COSTS), tuple(range(cluster.world_size))
    near, far = gloo.plan(Request("all_to_all", 64 * MIB, ranks, on_host=True), cluster).parts
    assert near.idle < far.idle
    assert len(gloo.plan(Request("all_gather", MIB, ranks, on_host=True), cluster).parts) == 1


@pytest.mark.parametrize(
    ("kind", "size", "ranks"),
    [("all_reduce", 0, 4), ("send_recv", 0, 2), ("all_reduce", MIB, 1), ("barrier", 0, 1)],
)
def test_what_moves_nothing_costs_its_call(kind: str, size: int, ranks: int) -> None:
    made = plan(kind, size, HostStar(ranks))
    (part,) = made.parts
    assert part.idle == COSTS.op_overhead
    assert part.joins.tolist() == [0] * ranks
    assert part.leaves.tolist() == [COSTS.op_overhead] * ranks
    assert made.programs == ()


def test_a_barrier_of_several_sends_though_it_has_no_bytes() -> None:
    assert plan("barrier", 0, HostStar(4)).parts[0].idle > COSTS.op_overhead
