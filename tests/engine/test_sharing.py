"""Communication kernels take SMs and memory bandwidth from the compute beside them."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import Device, Graph, GraphBuilder
from commsim.libraries import Ideal, Plan, Request

US = 1_000_000
H100 = Cluster.preset("dgx-h100")


class Holding(Ideal):
    """The ideal library, with kernels that hold half of the SMs and a quarter of the memory."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        plan = super().plan(request, cluster)
        quarter = H100.gpu(0).memory_bandwidth / 4
        return replace(plan, sms=H100.gpu(0).sm_count // 2, touched=quarter * plan.idle * 1e-12)


def overlapped(*, traffic: float = -1.0, late: int = 0) -> Graph:
    """Each of two ranks computes 1 ms; beside it a collective of a length of its own."""
    build = GraphBuilder()
    world = build.group("world", range(2))
    for rank in range(2):
        lane = build.lane(rank)
        build.compute(lane, 1000 * US, name="work", traffic=traffic)
        wait = []
        if late:
            wait = [build.compute(lane, late, name="late", stream="other", device=Device.CPU)]
        build.collective(
            lane, world, "all_reduce", 2**27, stream="comm", after=wait if rank else []
        )
    return build.build()


def ends(graph: Graph, *, overlap_slowdown: bool = True) -> tuple[int, int]:
    timeline = simulate(graph, H100, library=Holding(), overlap_slowdown=overlap_slowdown)
    work = np.flatnonzero(graph.kind == 0)
    return int(timeline.end[work[0]]), int(timeline.end[graph.kind == 1].max())


def test_arithmetic_loses_the_sms_held() -> None:
    done, moved = ends(overlapped())
    assert moved < 1000 * US
    # half speed while the kernel is there: as much again as it lasts, halved
    assert done == pytest.approx(1000 * US + moved / 2, abs=10)


def test_memory_bound_work_loses_bandwidth() -> None:
    done, moved = ends(overlapped(traffic=H100.gpu(0).memory_bandwidth * 1e-3 * 0.9))
    assert done == pytest.approx(1000 * US + moved / 4, abs=10)


def test_a_kernel_that_waits_holds_its_sms() -> None:
    graph = overlapped(late=400 * US)
    timeline = simulate(graph, H100, library=Holding())
    work = [int(end) for end in timeline.end[graph.kind == 0]]
    moved = int(timeline.end[graph.kind == 1].max()) - 400 * US
    # rank 0's kernel waits 400 us for rank 1, at half speed all the while
    assert work[0] == pytest.approx(1000 * US + (400 * US + moved) / 2, abs=10)
    assert timeline.end[[op for op in range(len(graph)) if graph.op_name(op) == "work"][1]] == (
        pytest.approx(1000 * US + moved / 2, abs=10)
    )


def test_can_be_switched_off() -> None:
    done, _ = ends(overlapped(), overlap_slowdown=False)
    assert done == 1000 * US
