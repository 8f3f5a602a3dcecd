"""Bench and run predict by one function: the same choice and the same time for every type."""

from __future__ import annotations

import pytest
from helpers.share import share_of_each

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries import Request
from commsim.libraries.nccl import Nccl
from commsim.study.bench import bench

PLACES = {
    "two nodes": Cluster.preset("dgx-h100", nodes=2),
    "a node": Cluster.preset("dgx-h100"),
    "thin": Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"bandwidth": "10Gbps"}}),
}
# broadcast and reduce apart: in nccl-tests' loop their latency hides
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@pytest.mark.parametrize(("place", "dtype"), share_of_each(
    [(place,) for place in PLACES],
    [("float",), ("bfloat16",), ("f8e4m3",), ("int8",), ("double",)], 0.4,
))  # fmt: skip
def test_bench_and_run_agree(place: str, dtype: str) -> None:
    cluster, library = PLACES[place], Nccl()
    ranks = tuple(range(cluster.world_size))
    for row in bench(cluster, OPS, ["4K", "4M", "1G"], dtype=dtype).results:
        plan = library.plan(Request(row.op, row.size, ranks, dtype=dtype), cluster)
        assert row.time_us == pytest.approx(plan.idle / 1e6, rel=1e-9), row
        if row.op != "all_to_all":
            assert plan.algorithm == f"{row.algo} {row.proto}"
            assert plan.channels == row.nchannels


def test_eight_bit_floats_are_not_added_up_in_switches() -> None:
    """fp8, 4 MiB, two DGX H100: bench took NVLSTree, which does no fp8."""
    (row,) = bench(PLACES["two nodes"], "all_reduce", "4M", dtype="f8e4m3").results
    assert row.algo != "NVLSTree"


@pytest.mark.parametrize("dtype", ["int16", "torch.int16", "float4_e2m1fn_x2"])
def test_types_that_torch_refuses_are_refused(dtype: str) -> None:
    request = Request("all_reduce", 1 << 20, tuple(range(8)), dtype=dtype)
    with pytest.raises(ScenarioError, match="NCCL has no such type, and torch refuses it"):
        Nccl().plan(request, PLACES["a node"])


@pytest.mark.parametrize("dtype", ["bool", "complex64", "torch.float8_e4m3fn", "torch.bfloat16"])
def test_types_that_torch_hands_over_are_planned(dtype: str) -> None:
    request = Request("all_gather", 1 << 20, tuple(range(8)), dtype=dtype)
    assert Nccl().plan(request, PLACES["a node"]).idle > 0


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_chains_latency_hides_behind_the_iterations_before(op: str) -> None:
    """As nccl-tests count: rank 0 does not wait for the last rank before it begins anew."""
    cluster = PLACES["two nodes"]
    rows = bench(cluster, op, ["64", "4G"]).results
    ranks = tuple(range(cluster.world_size))
    once = [Nccl().plan(Request(op, row.size, ranks, root=0), cluster).idle / 1e6 for row in rows]
    assert rows[0].time_us < 0.7 * once[0]  # 64 bytes: 15 hops alone
    assert 0.9 * once[1] < rows[1].time_us <= once[1]  # 4 GiB: hardly any of it is latency
