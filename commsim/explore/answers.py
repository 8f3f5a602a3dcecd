"""
What the page is told: of a run, and of ring against tree on the same cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from commsim.cluster import Cluster, ClusterSection, build_cluster
from commsim.explore.settings import scenario_yaml
from commsim.libraries import LibrarySection
from commsim.sections import decode
from commsim.study.bench import BenchResult, bench
from commsim.study.run import Result

__all__ = ["bench_answer", "bench_of", "report_html", "run_answer", "step_answer"]

_SIZES = tuple(2**k for k in range(10, 33, 2))
_PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers", "runtime", "slack")
_BENCHED = ("op", "size", "time_us", "busbw_gbs", "algo", "proto", "chosen", "bound_us")


def run_answer(result: Result) -> dict[str, Any]:
    """Return what `step_answer` leaves out: what limits the step, and the report's sections."""
    return {"headline": result.headline, "sections": result.live_sections()}


def step_answer(result: Result, data: Mapping[str, Any], command: str) -> dict[str, Any]:
    """Return what is known of a run at once, as plain data: its headline without what limits it,
    its figures and timeline, numbers to compare, memory, cost, how to run it again.

    `data` is the scenario that was run, `command` the command line that says the same.
    """
    metrics = result.metrics
    cost, cluster = metrics.cost or {}, result.cluster
    return {
        **result.live_head(),
        "numbers": {
            "step time": metrics.step_time_s,
            "tokens per second": metrics.tokens_per_s,
            "MFU": metrics.mfu,
            "bubble fraction": metrics.bubble_fraction,
            "memory of the fullest GPU": (metrics.memory_gib or {}).get("peak"),
            "cost per step": cost.get("per_step"),
        },
        "memory": _memory(result),
        "cost": {name: value for name, value in cost.items() if name not in ("bill", "sources")},
        "shape": _shape(cluster, data),
        "command": command,
        "yaml": scenario_yaml(data, command),
    }


def bench_of(data: Mapping[str, Any], op: str) -> BenchResult | None:
    """Time `op` over all GPUs of a scenario's cluster, by each algorithm; None for one GPU."""
    if data.get("cluster") is None:
        return None
    section = decode(data["cluster"], ClusterSection, "the scenario: cluster")
    cluster = build_cluster(section, "the scenario")
    if cluster.world_size < 2:
        return None
    library = LibrarySection.decode(data.get("library") or {}).having(algo=None, proto=None)
    return bench(cluster, op, _SIZES, algo="all", library=library)


def report_html(result: Result) -> str:
    """Return the report of a run as one page."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        result.report(path)
        return path.read_text(encoding="utf-8")


def bench_answer(found: BenchResult | None, op: str) -> dict[str, Any]:
    """Return the curves of a bench: of each algorithm, the fastest protocol at each size."""
    if found is None:
        return {"op": op, "curves": {}, "chosen": [], "system": None}
    fastest: dict[tuple[str, int], dict[str, Any]] = {}
    rows = [{name: getattr(row, name) for name in _BENCHED} for row in found.results]
    for row in rows:
        kept = fastest.setdefault((row["algo"], row["size"]), row)
        if row["time_us"] < kept["time_us"]:
            fastest[row["algo"], row["size"]] = row
    curves: dict[str, list[dict[str, Any]]] = {}
    for (algo, _), row in fastest.items():
        curves.setdefault(algo, []).append(row)
    return {
        "op": op,
        "curves": curves,
        "chosen": [row for row in rows if row["chosen"]],
        "system": found.system,
    }


def _memory(result: Result) -> dict[str, Any] | None:
    """Return the GiB of the fullest GPU by what holds them, and what a GPU has."""
    memory, facts = result.metrics.memory_gib, result.training
    if memory is None or facts is None:
        return None
    rooms = set(facts.capacity_of_rank)
    return {
        "parts": [[name, memory[name]] for name in _PARTS if memory.get(name)],
        "peak": memory["peak"],
        "fits": memory["fits"],
        "capacity": rooms.pop() / 2**30 if len(rooms) == 1 else None,
        "sentence": result.memory,
    }


def _shape(cluster: Cluster | None, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows from the choices: GPUs, replicas, the batch."""
    training = data.get("workload", {}).get("training") or {}
    return {
        "gpus": None if cluster is None else cluster.world_size,
        "dp": training.get("parallel", {}).get("dp", 1) if training else None,
        "batch": training.get("batch", {}).get("global") if training else None,
        "seq_len": training.get("model", {}).get("seq_len") if training else None,
    }
