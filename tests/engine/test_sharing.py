"""Communication kernels take SMs and memory bandwidth from the compute beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.engine.clock import Clock
from commsim.engine.sharing import Sharing, is_in_memory
from commsim.graph import Device, Graph, GraphBuilder
from commsim.libraries import Ideal, Plan, PlanPart, Request, Start
from commsim.libraries.plan import empty_phase

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


def test_work_that_passes_its_bytes_in_more_than_half_of_its_time_is_bound_by_memory() -> None:
    """Of 1000 us, the bytes of the ops take all, just a half and a little more, or none."""
    build = GraphBuilder()
    lane, second = build.lane(0), H100.gpu(0).memory_bandwidth
    for share in (1.0, 0.5, 0.501, 0.0):
        build.compute(lane, 1000 * US, name="work", traffic=second * 1e-3 * share)
    assert is_in_memory(build.build(), H100).tolist() == [True, False, True, False]


class Run:
    """Ops by hand on lanes of one GPU each; op 3 is bound by memory, op 4 on the CPU."""

    def __init__(self) -> None:
        build = GraphBuilder()
        lanes = [build.lane(rank) for rank in range(2)]
        for op in range(8):
            build.compute(
                lanes[op == 7], 100, name="work", stream=f"s{op}",
                device=Device.CPU if op == 4 else Device.CUDA,
                traffic=H100.gpu(0).memory_bandwidth * 1e-10 if op == 3 else 0.0,
            )  # fmt: skip
        self.env = Clock()
        self.sharing = Sharing(self.env, build.build(), H100)
        self.ended: dict[int, int] = {}

    def work(self, op: int, duration: int = 100) -> None:
        self.sharing.work(op, duration, lambda _: self.ended.update({op: self.env.now}))

    def at(self, now: int, act: Callable[[], None]) -> None:
        self.env.call(lambda _: act(), now)

    def ends(self) -> dict[int, int]:
        self.env.run()
        return self.ended


def holding(sms: float, memory: float) -> Plan:
    """A plan whose kernels take those shares of a GPU."""
    gpu, phase = H100.gpu(0), empty_phase(1000)
    part = PlanPart((phase,), np.zeros(2, np.int64), np.zeros(2, np.int64))
    touched = memory * gpu.memory_bandwidth * 1000 * 1e-12
    return Plan((part,), Start.ALL, 2, sms=round(sms * gpu.sm_count), touched=touched)


@pytest.mark.parametrize(("sms", "memory", "compute", "in_memory"), [
    (0.5, 0.25, 200, 134), (1.0, 1.0, 1000, 1000), (0.5, 0.95, 200, 1000), (0.0, 0.5, 100, 100),
])  # fmt: skip
def test_what_is_held_slows_compute_on_that_gpu(
    sms: float, memory: float, compute: int, in_memory: int
) -> None:
    """A tenth is left at least; a plan without SMs takes nothing; the CPU and others go on."""
    run = Run()
    run.work(0)
    run.sharing.take(5, holding(sms, memory))
    for op in (3, 4, 7):
        run.work(op)
    assert run.ends() == {0: compute, 3: in_memory, 4: 100, 7: 100}


def test_work_goes_on_at_the_speed_that_it_has_after_each_change() -> None:
    """40 ps at full speed, 40 at a half, at a quarter from 80 on until 120, then all of it."""
    run = Run()
    run.work(0)
    run.at(40, lambda: run.sharing.take(5, holding(0.5, 0.0)))
    run.at(80, lambda: run.sharing.take(6, holding(0.25, 0.0)))
    run.at(120, lambda: run.sharing.give_back(5))
    run.at(120, lambda: run.sharing.give_back(6))
    run.at(130, lambda: run.sharing.give_back(6))  # it holds nothing any more
    assert run.ends() == {0: 40 + 40 + 40 + 30}


def test_a_slower_gpu_is_shared_as_a_faster_one() -> None:
    """At a quarter of its speed from 20 on, of which half is held from 60 on until the end."""
    run = Run()
    run.work(0)
    run.at(20, lambda: run.sharing.set_pace(0, 0.25))
    run.at(60, lambda: run.sharing.take(5, holding(0.5, 0.0)))
    run.at(60, lambda: run.work(1, 10))
    assert run.ends() == {0: 60 + 70 * 8, 1: 60 + 80}
