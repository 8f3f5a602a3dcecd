"""
A published training step through commsim itself: a scenario, its graph, the engine.

The scenario of a row is what a user would write: a preset of the node with the network that the
row names, the layout, the software stack. Nothing is fitted here. A published layer is the
difference between a model of some layers and one of a few more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from step_compute import layers_per_stage
from training_rows import Row

from commsim.errors import ScenarioError
from commsim.scenario import scenario_from
from commsim.study.run.run import run

__all__ = ["Simulated", "engine_step", "row_scenario"]

NODES = {
    "V100-SXM3-32GB": "dgx-2",
    "V100-SXM2-16GB": "dgx-1v",
    "V100-SXM2-32GB": "dgx-1v",
    "A100-SXM4-40GB": "dgx-a100-40gb",
    "A100-SXM4-80GB": "dgx-a100",
    "H100-SXM5-80GB": "dgx-h100",
    "H800-SXM5-80GB": "dgx-h100",
    "H200-SXM-141GB": "dgx-h200",
    "B200-SXM-180GB": "dgx-b200",
    "B300-SXM-288GB": "dgx-b300",
    "GB200-per-GPU": "gb200-nvl72",
    "GB300-per-GPU": "gb300-nvl72",
    "GH200-96GB": "alps",
}
NCCL = {
    "megatron-2020": "2.18", "megatron-2021": "2.18", "megatron-2022": "2.18",
    "megatron-2023": "2.18", "megatron-deepspeed": "2.18", "megatron-deepspeed-2021": "2.18",
    "llm-foundry": "2.18",
}  # fmt: skip
"""The release of a stack's time where that is not commsim's own; older ones choose as 2.18, the
oldest that commsim knows."""
WHOLE = {"dgx-2": 16}
"""GPUs of a node preset where they are not eight."""
_FEW, _MORE = 4, 8


class Simulated(msgspec.Struct, frozen=True):
    """What the engine says of a row: seconds, and the memory of the fullest GPU in bytes."""

    seconds: float
    memory: float
    fits: bool
    notes: tuple[str, ...]


def engine_step(row: Row) -> Simulated:
    """Return what commsim simulates for a row.

    Raises:
        ScenarioError: a layout or a GPU that commsim does not have.
    """
    if row.is_layer:
        few, more = (_run(_layers(row, count)) for count in (_FEW, _MORE))
        seconds = (more.seconds - few.seconds) / (_MORE - _FEW)
        return Simulated(seconds, more.memory, more.fits, more.notes)
    return _run(row)


def _layers(row: Row, count: int) -> Row:
    assert row.shape is not None
    return replace(row, shape=msgspec.structs.replace(row.shape, layers=count))


def _run(row: Row) -> Simulated:
    result = run(scenario_from(row_scenario(row), row.case_id, default_name=row.case_id))
    memory = result.metrics.memory_gib or {"reserved": 0.0, "fits": True}
    return Simulated(
        float(result.metrics.step_time_s), memory["reserved"] * 2**30, bool(memory["fits"]),
        tuple(result.notes),
    )  # fmt: skip


def row_scenario(row: Row) -> dict[str, Any]:
    """Return the scenario of a row as plain data."""
    return {
        "name": row.case_id,
        "cluster": _cluster(row),
        "workload": {"training": _training(row)},
        "library": _library(row),
    }


def _library(row: Row) -> dict[str, Any]:
    """Return the NCCL of the row's time: what it makes of small groups differs by release."""
    return {"name": "nccl"} | ({"version": NCCL[row.stack]} if row.stack in NCCL else {})


def _cluster(row: Row) -> dict[str, Any]:
    if row.gpu not in NODES:
        raise ScenarioError(f"no node preset for {row.gpu}")
    inside = min(row.gpus, row.node)
    if row.gpus % inside:
        raise ScenarioError(f"{row.gpus} GPUs are no whole nodes of {inside}")
    overrides: dict[str, Any] = {}
    nodes, preset, nics = row.gpus // inside, NODES[row.gpu], row.node
    if row.nics == 4 and row.gpu.startswith("A100") and row.node == 8:
        preset, nics = "abci-a", 4  # two GPUs share a NIC
        overrides["gpu"] = {"spec": row.gpu}
    if nodes > 1 and not row.gpu.startswith("GB"):
        overrides["nic"] = {"bandwidth": f"{row.network / nics * 8 / 1e9:g}Gbps"}
    if inside != WHOLE.get(preset, 8) and not row.gpu.startswith("GB"):
        overrides["gpu"] = overrides.get("gpu", {}) | {"count": inside}
    if row.gpu.startswith("H800"):
        overrides["gpu"] = overrides.get("gpu", {}) | {"spec": row.gpu}
        overrides["nvlink"] = {"bandwidth": "200GB/s"}
    if row.gpu.startswith("H200") and row.node == 4:  # four on a board, each wired to each
        preset, overrides["gpu"] = "snellius-h100", {"spec": row.gpu, "count": inside}
    if row.slower is not None:
        spec = row.gpu_spec
        overrides["gpu"] = overrides.get("gpu", {}) | {
            "memory_bandwidth": f"{spec.memory_bandwidth:g}B/s",
            "memory": f"{spec.memory_bytes}B",
            "tflops": dict(spec.tflops),
        }
    return {"preset": preset, "nodes": nodes, "overrides": overrides}


def _training(row: Row) -> dict[str, Any]:
    compute: dict[str, Any] = {"stack": row.stack}
    if row.attention:
        compute["attention"] = row.attention
    if row.cuda_graph:
        compute["cuda_graph"] = row.cuda_graph
    if row.is_layer:
        nothing = {"forward": "0ps", "backward": "0ps"}
        compute |= {"embedding": nothing, "head": nothing, "optimizer": "1ps"}
    return {
        "model": _model(row),
        "parallel": _parallel(row),
        "data_parallel": _data_parallel(row),
        "batch": {"global": row.microbatches * row.dp * row.micro, "micro": row.micro},
        "precision": row.precision,
        "recompute": row.recompute if isinstance(row.recompute, str) else list(row.recompute),
        "compute": compute,
    }


def _model(row: Row) -> dict[str, Any]:
    shape = {
        name: value
        for name, value in msgspec.structs.asdict(row.shape).items()
        if value is not None and name != "max_seq"
    }
    for name in ("experts", "latent"):
        if shape.get(name) is not None:
            shape[name] = msgspec.structs.asdict(shape[name])
    return shape | {"seq_len": row.seq}


def _parallel(row: Row) -> dict[str, Any]:
    parallel: dict[str, Any] = {
        "dp": row.dp,
        "tp": row.tp,
        "pp": row.pp,
        "cp": row.cp,
        "ep": row.ep,
        "sequence_parallel": row.sequence_parallel and row.tp > 1,
        "schedule": row.schedule if row.pp > 1 and row.schedule != "fsdp" else "1f1b",
        "virtual_stages": row.vpp if row.pp > 1 else 1,
        "scatter_gather": scattered(row),
    }
    if row.tp > 1 and row.tp_overlap:
        parallel["tp_overlap"] = row.tp_overlap
    if row.capacity:
        parallel["expert_capacity"] = row.capacity
    if (
        row.dp * row.cp % row.ep
    ):  # a group of experts spans tensor-parallel ranks, each with whole ones
        parallel["etp"] = 1
    layers = row.shape.layers if row.shape else 0
    if row.pp > 1 and layers % (row.pp * row.vpp) and sum(_uneven(row)) == layers:
        parallel["layers_per_stage"] = _uneven(row)
    return parallel


def scattered(row: Row) -> bool:
    """Return whether each rank of a tensor-parallel group sends its part of a boundary."""
    return row.pp > 1 and row.tp > 1 and not row.sequence_parallel


def _uneven(row: Row) -> list[int]:
    """Return the layers of each stage, or of each virtual stage: the ends have one fewer."""
    stages = layers_per_stage(row)
    if row.vpp == 1:
        return stages
    parts = row.pp * row.vpp
    return [max(stages) // row.vpp - (part in (0, parts - 1)) for part in range(parts)]


def _data_parallel(row: Row) -> dict[str, Any]:
    if row.dp * row.cp == 1 and not row.sharded:
        return {}
    data: dict[str, Any] = {"kind": "ddp"}
    if row.sharded:
        data = {"kind": "fsdp"} if not row.shard else {"kind": "hsdp", "shard": row.shard}
        if row.zero == 2:
            data["shard"] = "grad_op"
        elif "deepspeed" in row.stack:
            data = {"kind": "zero", "stage": 3}
    elif row.zero:
        data = {"kind": "zero", "stage": row.zero}
    if row.gradients:
        data["gradients"] = row.gradients
    return data
