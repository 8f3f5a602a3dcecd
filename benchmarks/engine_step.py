"""
A published training step through commsim itself: a scenario, its graph, the engine.

The scenario of a row is what a user would write: a preset of the node with the network that the
row names, the layout, the software stack. Nothing is fitted here.
"""

from __future__ import annotations

from typing import Any

import msgspec
from closed_form import layers_per_stage, overlapped, scattered
from fitted import Fitted
from stack_communication import stack_communication
from training_rows import Row

from commsim.errors import ScenarioError
from commsim.models import RECOMPUTE
from commsim.scenario import scenario_from
from commsim.study.run import run

__all__ = ["engine_seconds", "row_scenario"]

NODES = {
    "V100-SXM3-32GB": "dgx-2",
    "V100-SXM2-16GB": "dgx-1v",
    "V100-SXM2-32GB": "dgx-1v",
    "A100-SXM4-40GB": "dgx-a100-40gb",
    "A100-SXM4-80GB": "dgx-a100",
    "H100-SXM5-80GB": "dgx-h100",
    "H200-SXM-141GB": "dgx-h200",
    "B200-SXM-180GB": "dgx-b200",
}


def engine_seconds(row: Row, fitted: Fitted) -> float:
    """Return the step time that commsim simulates for a row, in seconds.

    Raises:
        ScenarioError: the row is no whole step, or a layout that commsim does not have.
    """
    assert row.shape is not None
    if row.shape.vocab == 1:
        raise ScenarioError("a published layer, not a step")
    if row.slower is not None or row.recompute not in RECOMPUTE:
        raise ScenarioError("a GPU or a recompute that commsim does not have")
    data = row_scenario(row, attention=attention(row, fitted))
    result = run(scenario_from(data, row.case_id, default_name=row.case_id))
    return float(result.metrics.step_time_s)


def attention(row: Row, fitted: Fitted) -> str:
    """Return the attention that a row ran with: the stack's own if fused, else as it says."""
    own = fitted.stack(row.stack).attention
    if not row.flash:
        return "unfused"
    return "fa2" if own == "unfused" else own


def row_scenario(row: Row, *, attention: str) -> dict[str, Any]:
    """Return the scenario of a row as plain data."""
    return {
        "name": row.case_id,
        "cluster": _cluster(row),
        "workload": {"training": _training(row, attention)},
        "library": _library(row),
    }


def _library(row: Row) -> dict[str, Any]:
    """Return the NCCL of the row's time: what it makes of small groups differs by release."""
    version = stack_communication(row.stack).nccl
    return {"name": "nccl"} | ({"version": version} if version else {})


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
    if nodes > 1:
        overrides["nic"] = {"bandwidth": f"{row.network / nics * 8 / 1e9:g}Gbps"}
    if inside < row.node:
        overrides["gpu"] = overrides.get("gpu", {}) | {"count": inside}
    return {"preset": preset, "nodes": nodes, "overrides": overrides}


def _training(row: Row, attention: str) -> dict[str, Any]:
    stack = row.stack
    return {
        "model": _model(row),
        "parallel": _parallel(row),
        "data_parallel": _data_parallel(row),
        "batch": {"global": row.microbatches * row.dp * row.micro, "micro": row.micro},
        "precision": row.precision,
        "recompute": row.recompute,
        "compute": {"stack": stack, "attention": attention},
    }


def _model(row: Row) -> dict[str, Any]:
    shape = {
        name: value
        for name, value in msgspec.structs.asdict(row.shape).items()
        if value is not None and name != "max_seq"
    }
    if row.shape is not None and row.shape.experts is not None:
        shape["experts"] = msgspec.structs.asdict(row.shape.experts)
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
    layers = row.shape.layers if row.shape else 0
    if row.pp > 1 and layers % (row.pp * row.vpp):
        parallel["layers_per_stage"] = _uneven(row)
    return parallel


def _uneven(row: Row) -> list[int]:
    """Return the layers of each stage, or of each virtual stage: the ends have one fewer."""
    stages = layers_per_stage(row)
    if row.vpp == 1:
        return stages
    parts = row.pp * row.vpp
    return [max(stages) // row.vpp - (part in (0, parts - 1)) for part in range(parts)]


def _data_parallel(row: Row) -> dict[str, Any]:
    data: dict[str, Any] = {"overlap": overlapped(row)}
    if row.dp == 1:
        return {}
    if row.zero == 3 or row.schedule == "fsdp":
        data = {"kind": "fsdp"}
    elif row.zero:
        data |= {"kind": "zero", "stage": row.zero}
    if row.precision == "bf16" and row.stack != "torch-fsdp":
        data["gradients"] = "fp32"
    if row.stack == "torch-fsdp":
        data["gradients"] = "fp32" if "mp_mode DEFAULT" in row.note else "bf16"
    return data | _buckets(row, 4 if data.get("gradients") == "fp32" else 2)


def _buckets(row: Row, width: int) -> dict[str, str]:
    """Return the bytes that the row's stack reduces at once, where it has buckets of its own."""
    entries = stack_communication(row.stack).bucket
    if entries is None or row.zero == 3 or row.schedule == "fsdp":
        return {}
    return dict.fromkeys(("bucket", "first_bucket"), f"{entries * width}B")
