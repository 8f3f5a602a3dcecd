"""Any product of the ways of splitting a model: it runs, and does the whole model's work."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.share import examples
from helpers.toy_cluster import SMALL, ToyCluster, training
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine import simulate
from commsim.graph import OpKind, Phase
from commsim.libraries import Ideal
from commsim.workload.schedules import SCHEDULES

MODEL = {**SMALL, "layers": 8, "heads": 4, "hidden": 16, "vocab": 64}
EXPERTS = {**MODEL, "experts": {"experts": 4, "top_k": 2, "expert_ffn": 16}}
KINDS: list[dict[str, Any]] = [
    {"kind": "ddp"}, {"kind": "ddp", "overlap": False}, {"kind": "ddp", "no_sync": False},
    {"kind": "zero", "stage": 1}, {"kind": "zero", "stage": 1, "prefetch": False},
    {"kind": "zero", "stage": 2}, {"kind": "zero", "stage": 3}, {"kind": "fsdp"},
    {"kind": "fsdp", "shard": "grad_op"}, {"kind": "fsdp", "prefetch": 0},
    {"kind": "hsdp", "shard": 2},
]  # fmt: skip


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    """Return the settings of a layout of at most 16 ranks."""
    tp, cp = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)]))
    pp, dp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    parallel: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
    parallel["order"] = draw(st.permutations(["tp", "cp", "dp", "pp"]))
    parallel["schedule"] = draw(st.sampled_from(list(SCHEDULES))) if pp > 1 else "1f1b"
    if parallel["schedule"] in ("interleaved_1f1b", "breadth_first"):
        parallel["virtual_stages"] = 2
    if tp > 1:
        parallel["sequence_parallel"] = draw(st.booleans())
        parallel["tp_overlap"] = draw(st.sampled_from(["none", "weight", "full"]))
        if pp > 1 and not parallel["sequence_parallel"]:
            parallel["scatter_gather"] = draw(st.booleans())
    if cp > 1:
        parallel["context"] = draw(st.sampled_from(["ring", "ulysses"]))
    data = draw(st.sampled_from(KINDS))
    sharded = data["kind"] in ("fsdp", "hsdp") or data.get("stage") == 3
    if (sharded and parallel["schedule"] == "dualpipe") or (data["kind"] == "hsdp" and dp * cp < 2):
        data = {"kind": "ddp"}
    if parallel["schedule"] == "dualpipe" and data.get("no_sync") is False:
        data = {"kind": "ddp"}
    if data["kind"] == "ddp":
        data = {**data, "bucket": "1000B", "first_bucket": "600B"}
    return {
        "parallel": parallel, "data_parallel": data,
        "batch": {"global": dp * 8, "micro": 1},
        "model": {**MODEL, "tied_embeddings": draw(st.booleans())},
        "recompute": draw(st.sampled_from(["none", "full"])),
    }  # fmt: skip


@examples(20)
@given(given_settings=layouts())
def test_any_product_runs_and_does_the_whole_work(given_settings: dict[str, Any]) -> None:
    degrees = [given_settings["parallel"][axis] for axis in ("tp", "cp", "pp", "dp")]
    n = degrees[0] * degrees[1] * degrees[2] * degrees[3]
    cluster = ToyCluster(n, speed=1e10, latency=1000)
    workload = training(n, cluster=cluster, **given_settings)
    graph, facts = workload.graph, workload.training
    assert facts is not None
    timeline = simulate(graph, cluster, library=Ideal())
    assert len(timeline) == len(graph)
    work = (graph.kind == OpKind.COMPUTE) & (graph.phase != Phase.OPTIMIZER)
    done = graph.flops[work].sum() / 2
    wanted = facts.hardware_flops if given_settings["recompute"] == "full" else facts.model_flops
    assert done == pytest.approx(wanted, rel=1e-9)
    assert timeline.memory.held.min(initial=0) >= 0
    assert (graph.phase == Phase.OPTIMIZER).sum() == 2 * n


@examples(8)
@given(
    dp=st.sampled_from([4, 8]), ep=st.sampled_from([2, 4]), tp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2]), data=st.sampled_from(KINDS[:-1]),
    skew=st.sampled_from([1, 1.5]), schedule=st.sampled_from(["1f1b", "zb_h1", "zb_v", "dualpipe"]),
)  # fmt: skip
def test_experts_go_with_everything(
    dp: int, ep: int, tp: int, pp: int, data: dict[str, Any], skew: float, schedule: str
) -> None:
    sharded = data["kind"] == "fsdp" or data.get("stage") == 3
    if (sharded or data.get("no_sync") is False) and schedule == "dualpipe":
        schedule = "dualpipev"
    n = dp * tp * pp
    cluster = ToyCluster(n, speed=1e10, latency=1000)
    workload = training(
        n, cluster=cluster, model=EXPERTS, data_parallel=data,
        batch={"global": dp * 4, "micro": 1},
        parallel={"dp": dp, "ep": ep, "tp": tp, "pp": pp, "expert_skew": skew,
                  "schedule": schedule if pp > 1 else "1f1b"},
    )  # fmt: skip
    timeline = simulate(workload.graph, cluster, library=Ideal())
    assert len(timeline) == len(workload.graph)
    exchanges = [k for k in workload.graph.collectives.kind if k.startswith("all_to_all")]
    # four per layer and microbatch, in each group of ep ranks, in both steps
    groups = dp * tp // ep
    assert len(exchanges) == 2 * 8 * 4 * 4 * groups
