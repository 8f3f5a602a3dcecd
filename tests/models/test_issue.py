"""The pace of a captured program: what it issues when, and what that takes."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import HOST_STREAM, Device, Graph, GraphBuilder
from commsim.libraries import Ideal
from commsim.models import default_host_overhead, issued
from commsim.models.constants import read_constants

US = 1_000_000


def program(*, lanes: int = 1) -> Graph:
    """Ops of 2, 30, 2 us; the program waits for the GPU; then two of 2 us on two streams."""
    build = GraphBuilder()
    for rank in range(lanes):
        lane = build.lane(rank)
        host = _host(build, lane, [])
        for at, us in enumerate((2, 30, 2)):
            last = build.compute(lane, us * US, name=f"op {at}", after=[host])
        host = _host(build, lane, [host, last])
        for at, stream in enumerate(("compute", "side")):
            build.compute(lane, 2 * US, name=f"late {at}", stream=stream, after=[host])
    return build.build()


def _host(build: GraphBuilder, lane: int, after: list[int]) -> int:
    return build.compute(
        lane, 0, name="host", stream=HOST_STREAM, after=after, device=Device.CPU
    )  # fmt: skip


def starts(graph: Graph) -> list[float]:
    """Return when each op of the GPU begins, in us."""
    line = simulate(graph, Cluster.preset("dgx-h100", nodes=1), library=Ideal())
    order = np.argsort(line.op)
    on_gpu = graph.device[line.op[order]] == Device.CUDA
    return [float(start) / US for start in line.start[order][on_gpu]]


def test_without_a_time_the_gpu_sets_the_pace() -> None:
    assert starts(issued(program(), 0)) == [0, 2, 32, 34, 34]


def test_an_op_runs_once_it_is_issued_and_the_gpu_is_free() -> None:
    """Issued at 10, 20, 30; the last of them runs from 50 to 52; then at 62 and 72."""
    assert starts(issued(program(), 10 * US)) == [10, 20, 50, 62, 72]


def test_every_rank_has_a_program_of_its_own() -> None:
    one = [10, 20, 50, 62, 72]
    assert starts(issued(program(lanes=2), 10 * US)) == one * 2


def test_a_slower_program_goes_on_at_its_pace_and_a_wait_is_one_more_op() -> None:
    assert starts(issued(program(), 100 * US)) == [100, 200, 300, 500, 600]


def test_other_delays_stay() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    host = _host(build, lane, [])
    first = build.compute(lane, US, name="a", after=[host])
    build.compute(lane, US, name="b", stream="side", after=[host, (first, 7 * US)])
    assert starts(issued(build.build(), 2 * US)) == [2, 10]


def test_a_graph_without_a_program_is_refused() -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), US, name="a")
    with pytest.raises(ScenarioError, match=r"workload\.host_overhead: the graph does not say"):
        issued(build.build(), US)


def test_a_program_that_issues_nothing() -> None:
    build = GraphBuilder()
    _host(build, build.lane(0), [])
    graph = build.build()
    assert issued(graph, US).dep_delay.tolist() == graph.dep_delay.tolist() == []


def test_a_time_that_no_clock_holds() -> None:
    with pytest.raises(ScenarioError, match=r"host_overhead: issuing all ops.*shorter time"):
        issued(program(), 2**61)


def test_default_is_the_measured_one() -> None:
    assert default_host_overhead() == read_constants().captured.host_us * US
