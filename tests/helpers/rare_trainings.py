"""
Random trainings of what few have: experts, Ulysses, more schedules, offload, parameter servers,
DataParallel, lists of what is recomputed, other precisions, several steps.
"""

from __future__ import annotations

import random
from typing import Any

from helpers.random_scenarios import draw_degrees

__all__ = ["rare_training"]

Data = dict[str, Any]

SCHEDULES = (
    "gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_h1", "zb_h2", "zb_1p", "zb_v",
    "dualpipe", "dualpipev",
)  # fmt: skip
VIRTUAL = (
    "interleaved_1f1b",
    "breadth_first",
)  # these have as many virtual stages as are asked for
TWO_PARTS = ("zb_v", "dualpipev")  # and these two
KINDS = ("ddp", "zero", "fsdp", "hsdp", "dataparallel", "parameter_server")
RECOMPUTE = ("none", "selective", "full", "selective_op", ["core_attn"], ["layernorm", "mlp"])


def rare_training(rng: random.Random, world: int, precisions: set[str]) -> Data:
    """Return a training of `world` ranks in one of some precisions."""
    degrees = draw_degrees(rng, world)
    if rng.random() < 0.15:
        degrees = dict.fromkeys(degrees, 1) | {"dp": world}
    tp, pp, cp = degrees["tp"], degrees["pp"], degrees["cp"]
    model: Data = {
        "hidden": 64 * tp * cp * rng.randint(1, 4),
        "heads": 4 * tp * cp,
        "vocab": 1024 * tp,
        "seq_len": 128 * cp * tp,
    }
    parallel: Data = {axis: degree for axis, degree in degrees.items() if degree > 1}
    micro, many, parts = rng.randint(1, 2), rng.randint(1, 3), 1
    if pp > 1:
        many = 2 * pp * rng.randint(1, 2)
        parallel["schedule"] = rng.choice(SCHEDULES)
        if parallel["schedule"] in VIRTUAL:
            parallel["virtual_stages"] = 2
        parts = 2 if parallel["schedule"] in (*VIRTUAL, *TWO_PARTS) else 1
    model["layers"] = pp * parts * rng.randint(1, 2)
    _divide_layers(rng, parallel)
    if rng.random() < 0.5:
        _add_experts(rng, model, parallel)
    if rng.random() < 0.3:
        parallel["order"] = rng.sample(("tp", "cp", "dp", "pp"), 4)
    made: Data = {
        "model": model,
        "batch": {"global": degrees["dp"] * micro * many, "micro": micro},
        "parallel": parallel,
        "data_parallel": _data_parallel(rng, degrees, model, parallel),
        "recompute": rng.choice(RECOMPUTE),
        "precision": rng.choice(sorted(precisions)),
    }
    return made | _more(rng, made["recompute"])


def _more(rng: random.Random, recompute: Any) -> Data:
    made: Data = {}
    if rng.random() < 0.5:
        made["compute"] = {"efficiency": 0.4}
    if rng.random() < 0.2:
        made["steps"] = 3
    if rng.random() < 0.2 and recompute != "none":
        made["recompute_every"] = 2
    return made


def _divide_layers(rng: random.Random, parallel: Data) -> None:
    """Choose how tensors and contexts are divided."""
    if "tp" in parallel:
        if rng.random() < 0.6:
            parallel["sequence_parallel"] = True
        elif rng.random() < 0.5 and "pp" in parallel:
            parallel["scatter_gather"] = True
        if rng.random() < 0.5:
            parallel["tp_overlap"] = rng.choice(("full", "none", "ring", "weight"))
    if "cp" in parallel and rng.random() < 0.6:
        parallel["context"] = "ulysses"


def _add_experts(rng: random.Random, model: Data, parallel: Data) -> None:
    """Give the model experts, and divide them among some of the replicas."""
    replicas = parallel.get("dp", 1) * parallel.get("cp", 1)
    ep = rng.choice(_divisors(replicas))
    width = 64 * parallel.get("tp", 1)
    experts = model["experts"] = {
        "experts": 2 * ep * rng.randint(1, 3),
        "top_k": rng.randint(1, 2),
        "expert_ffn": width * rng.randint(1, 5),
    }
    if rng.random() < 0.3:
        experts["every"] = 2
    if ep == 1:
        return
    parallel["ep"] = ep
    if rng.random() < 0.4:
        parallel["dispatcher"] = rng.choice(("alltoall", "deepep", "deepep-fp8"))
    if rng.random() < 0.3:
        parallel["expert_skew"] = rng.choice((1.3, 2))
    elif rng.random() < 0.3:
        parallel["expert_capacity"] = 1.25
    if rng.random() < 0.5 and parallel.get("schedule", "1f1b") in ("1f1b", "interleaved_1f1b"):
        parallel["expert_overlap"] = True
    if rng.random() < 0.3:
        parallel["shared_overlap"] = True
        experts["shared_expert_ffn"] = width
    if parallel.get("sequence_parallel") and rng.random() < 0.4:
        parallel["etp"] = 1


def _data_parallel(
    rng: random.Random, degrees: dict[str, int], model: Data, parallel: Data
) -> Data:
    kind = rng.choice([one for one in KINDS if _goes_with(one, degrees, model, parallel)])
    data: Data = {"kind": kind}
    replicas = degrees["dp"] * degrees["cp"]
    if kind == "zero":
        whole = _goes_with("fsdp", degrees, model, parallel)
        data["stage"] = rng.randint(1, 3 if whole else 1)
        if data["stage"] < 3 and rng.random() < 0.3:
            data["offload"] = "cpu"
        if data["stage"] < 3 and rng.random() < 0.3:
            data["prefetch"] = False
    elif kind == "fsdp" and rng.random() < 0.5:
        data["shard"] = "grad_op"
    elif kind == "hsdp":
        data["shard"] = rng.choice(_divisors(replicas))
    elif kind == "parameter_server":
        data["sync"] = rng.random() < 0.5
        if degrees["dp"] > 2 and rng.random() < 0.5:
            data["servers"] = rng.randint(1, degrees["dp"] // 2)
    if kind in ("fsdp", "hsdp"):
        if rng.random() < 0.4:
            data["prefetch"] = rng.randint(0, 3)
        if rng.random() < 0.3 and data.get("shard") != "grad_op":
            data["reshard"] = rng.choice(("microbatch", "step"))
    if kind == "ddp" or data.get("stage") in (1, 2):
        _add_buckets(rng, data, parallel)
    if kind != "dataparallel" and rng.random() < 0.3:
        data["gradients"] = rng.choice(("fp32", "fp16"))
    return data


def _goes_with(kind: str, degrees: dict[str, int], model: Data, parallel: Data) -> bool:
    """Say whether a kind of data parallelism can be had with what else is divided."""
    if kind in ("dataparallel", "parameter_server"):  # these copy the whole model
        whole = degrees["tp"] * degrees["pp"] * degrees["cp"] == 1 and "experts" not in model
        return whole and (kind == "dataparallel" or degrees["dp"] > 1)
    if kind == "hsdp" and "ep" in parallel:
        return False  # experts have groups of their own
    if kind in ("fsdp", "hsdp"):  # one order of units, each forward and backward by itself
        return parallel.get("schedule") != "dualpipe" and "expert_overlap" not in parallel
    return True


def _add_buckets(rng: random.Random, data: Data, parallel: Data) -> None:
    if rng.random() < 0.4:
        data["bucket"] = rng.choice(("100kB", "1MiB", "30MiB"))
    if rng.random() < 0.3:
        data["overlap"] = rng.random() < 0.5
    if rng.random() < 0.3 and data.get("stage") != 2:
        data["no_sync"] = rng.random() < 0.5 or parallel.get("schedule") == "dualpipe"


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
