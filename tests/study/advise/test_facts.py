"""Facts that decide between layouts, of a model small enough to count; layouts as settings."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.toy_cluster import SMALL

from commsim.cluster import Cluster
from commsim.libraries import Ideal, Request
from commsim.models import MemoryUse, build_model
from commsim.ops import bus_factor
from commsim.sections import decode
from commsim.study.advise.judge import Judged
from commsim.study.advise.layouts import Candidate, Degrees, candidate_of, section_of
from commsim.study.advise.reasons import facts
from commsim.units import format_bandwidth, format_time
from commsim.workload import TrainingSection

GIB = 2**30
PARAMETERS = 4 * 784 + 256 + 8 + 256  # of SMALL: four layers, embedding, norm and head


def section(**settings: Any) -> TrainingSection:
    base = {"model": SMALL, "batch": {"global": 64, "micro": 1}}
    return decode(base | settings, TrainingSection, "x")


def worker(nodes: int = 2, *needs: int, capacity: int = 80, **settings: Any) -> Any:
    """Two nodes of eight H100, where DDP on all GPUs needs so many GiB at most recomputing."""
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    training = section(**settings)

    def least(degrees: Degrees, shard: str, recompute: int) -> Judged | None:
        assert (degrees, shard) == (Degrees(cluster.world_size, 1, 1, 1, 1), "ddp")
        one = Candidate(degrees, "1f1b", 1, 1, "none", "ddp")
        use = MemoryUse(needs[recompute] * GIB, 0, 0, 0)
        return Judged(one, use, 0, 0, 0.0) if needs[recompute] else None

    judge = SimpleNamespace(
        shape=build_model(training.model, where="x").shape, recomputes=range(len(needs)),
        least=least, capacity=capacity * GIB,
    )  # fmt: skip
    return SimpleNamespace(judge=judge, cluster=cluster, library=Ideal(), section=training)


def told(one: Any, compute_s: float = 3e-3, fit: tuple[bool, ...] = (True,)) -> list[str]:
    judged = dict(enumerate(SimpleNamespace(fits=each) for each in fit))
    best: Any = SimpleNamespace(breakdown=SimpleNamespace(compute_s=compute_s))
    return facts(one, SimpleNamespace(judged=judged), best)  # type: ignore[arg-type]


def test_whether_one_gpu_holds_the_model() -> None:
    """Without a layout that can run: 16 bytes of a parameter, 2 + 2 + 12 in bf16."""
    begin = f"model: {PARAMETERS / 1e9:.3g}e9 parameters, with"
    least = f"{begin} gradients, optimizer and the least activations"
    assert told(worker(1, 40, 30, 0))[0] == f"{least} 30 of 80 GiB: fits one GPU"
    assert told(worker(1, 80))[0] == f"{least} 80 of 80 GiB: fits one GPU"
    assert told(worker(1, 81))[0] == f"{least} 81 of 80 GiB: does not fit one GPU"
    state = PARAMETERS * 16 / GIB
    assert told(worker(1, 0))[0] == f"{begin} its optimizer {state:.3g} of 80 GiB: fits one GPU"


@pytest.mark.parametrize(("settings", "width"), [
    ({}, 16), ({"data_parallel": {"gradients": "fp32"}}, 18), ({"precision": "fp32"}, 16),
])  # fmt: skip
def test_the_largest_layer_by_its_state(settings: dict[str, Any], width: int) -> None:
    """784 parameters; fp32 has 4 bytes each of weights, gradients and two moments."""
    one = worker(1, **settings)
    capacity = one.cluster.gpu(0).memory_bytes / GIB
    line = told(one)[1]
    assert line.startswith("largest layer: layer")
    assert line.endswith(
        f", {784 * width / GIB:.3g} of {capacity:.3g} GiB with its optimizer: fits one GPU"
    )


@pytest.mark.parametrize(("vocab", "name"), [(160, "layer 0"), (640, "head")])
def test_the_largest_layer_counts_its_experts(vocab: int, name: str) -> None:
    """A layer of some 300 parameters with four experts of 2 x 8 x 32 and more: 2,400 in all; the
    head has 8 of each word, and a norm."""
    experts = {"experts": 4, "top_k": 2, "expert_ffn": 32}
    line = told(worker(1, model={**SMALL, "vocab": vocab, "experts": experts}))[1]
    assert line.startswith(f"largest layer: {name}, ")


def test_a_table_that_is_tied_is_the_embeddings() -> None:
    """The head of one device has no copy of it."""
    line = told(worker(1, model={**SMALL, "vocab": 6400, "tied_embeddings": True}))[1]
    assert line.startswith("largest layer: embedding, ")


def idle(one: Any, size: int, ranks: int) -> float:
    plan = one.library.plan(Request("all_reduce", size, tuple(range(ranks))), one.cluster)
    return float(plan.idle)


def test_how_fast_a_gpu_reaches_others() -> None:
    """Bandwidths as nccl-tests counts them; gradients of 2 bytes; a backward is two thirds."""
    one = worker(2)
    rates = {
        n: format_bandwidth(bus_factor("all_reduce", n) * GIB / (idle(one, GIB, n) * 1e-12))
        for n in (8, 16)
    }
    took = format_time(idle(one, PARAMETERS * 2, 16))
    assert told(one)[2] == (
        f"fabric: fast: busbw of an all-reduce of 1 GiB {rates[8]} within a node, {rates[16]} over"
        f" all GPUs; an all-reduce of all gradients over all GPUs takes {took}, a backward to hide"
        " it behind 2 ms"
    )
    assert told(one, 0.0)[2].startswith("fabric: slow: ")
    alone = worker(1)
    assert f"of 1 GiB {rates[8]} over all GPUs; an all-reduce" in told(alone)[2]
    assert "within a node" not in told(alone)[2]
    wide = worker(2, data_parallel={"gradients": "fp32"})
    assert f"takes {format_time(idle(wide, PARAMETERS * 4, 16))}," in told(wide)[2]


@pytest.mark.parametrize(("took", "speed"), [(2.0, "fast"), (2.1, "slow")])
def test_gradients_hide_behind_a_backward_that_takes_as_long(
    took: float, speed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two thirds of 3 s."""
    monkeypatch.setattr(sys.modules["commsim.study.advise.reasons"], "_idle", lambda *_: took)
    assert told(worker(2), 3.0)[2].startswith(f"fabric: {speed}: ")


def test_a_gpu_alone_sends_nothing() -> None:
    one = worker(1)
    one.cluster = Cluster.preset("dgx-h100", overrides={"gpu": {"count": 1}, "nic": {"count": 1}})
    lines = told(one)
    assert lines[2] == "fabric: one GPU, nothing to send"
    capacity = one.cluster.gpu(0).memory_bytes / GIB
    assert f" of {capacity:.3g} GiB with its optimizer" in lines[1]
    one.cluster = Cluster.preset("dgx-h100", overrides={"gpu": {"count": 2}, "nic": {"count": 2}})
    assert told(one)[2].startswith("fabric: fast: busbw of an all-reduce of 1 GiB ")


def test_less_than_half_of_the_layouts_is_scarce_memory() -> None:
    one = worker(1)
    assert told(one, fit=(True, False, False))[3] == (
        "memory: scarce: 1 of the 3 layouts with the lowest bounds fit"
    )
    assert told(one, fit=(True, False))[3].startswith("memory: enough: 1 of the 2")


@pytest.mark.parametrize("shard", ["ddp", "zero-1", "zero-2", "fsdp", "hsdp-4"])
@pytest.mark.parametrize(
    "degrees", [Degrees(8, 1, 1, 1, 1), Degrees(4, 2, 2, 1, 1), Degrees(2, 1, 1, 2, 2)]
)
def test_a_layout_becomes_settings_and_settings_a_layout(shard: str, degrees: Degrees) -> None:
    overlap = "ring" if degrees.tp > 1 else "none"
    schedule = "zb_h1" if degrees.pp > 1 else "1f1b"
    one = Candidate(degrees, schedule, 1, 2, "full", shard, overlap)
    given = section(
        parallel={"cp": 2, "ep": 2, "context": "ulysses", "expert_skew": 1.5},
        data_parallel={"bucket": "3MiB", "first_bucket": "1MiB", "gradients": "fp32"},
        recompute="full", recompute_every=2,
    )  # fmt: skip
    made = section_of(one, given)
    assert candidate_of(made) == one
    parallel, data = made.parallel, made.data_parallel
    assert parallel.sequence_parallel == (degrees.tp > 1)
    assert parallel.tp_overlap == ("ring" if degrees.tp > 1 else None)
    assert parallel.context == ("ulysses" if degrees.cp > 1 else "ring")
    assert parallel.expert_skew == (1.5 if degrees.ep > 1 else 1.0)
    buckets = shard in ("ddp", "zero-1", "zero-2")
    assert (data.bucket, data.first_bucket) == ((3 * 2**20, 2**20) if buckets else (None, None))
    assert (data.gradients, made.batch.global_, made.batch.micro) == ("fp32", 64, 2)
    assert (made.recompute_every, made.recompute_first) == (None, None)


def test_settings_of_which_advise_tries_none() -> None:
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "dataparallel"}, {"kind": "parameter_server"},
        {"kind": "zero", "stage": 1, "offload": "cpu"},
    )  # fmt: skip
    for data in kinds:
        assert candidate_of(section(data_parallel=data)) is None
    zero = candidate_of(section(data_parallel={"kind": "zero", "stage": 3}))
    assert zero is not None
    assert (zero.shard, zero.schedule, zero.overlap) == ("fsdp", "1f1b", "none")
    alone = candidate_of(section(parallel={"schedule": "gpipe"}))
    assert alone is not None
    assert alone.schedule == "1f1b"  # there is no pipeline
