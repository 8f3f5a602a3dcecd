"""A star of small GPUs, for training steps whose figures can be computed by hand."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.sections import decode
from commsim.workload import TrainingSection, Workload, build_training
from helpers.star import Star

GPU = GpuSpec(
    name="toy",
    memory_bytes=2**30,
    memory_bandwidth=1e12,
    tflops=MappingProxyType({"bf16": 1.0, "fp32": 0.5}),
    sm_count=1,
    compute_capability="8.0",
)

SMALL: dict[str, Any] = {
    "layers": 4, "hidden": 8, "heads": 2, "vocab": 32, "seq_len": 16,
    "tied_embeddings": False, "norm_has_bias": False, "linear_bias": False, "qkv_bias": False,
}  # fmt: skip
"""A layer has 8 + 192 + 64 + 8 + 256 + 256 = 784 parameters, the embedding and head 256 each."""


class ToyCluster(Star):
    """GPUs of 1 TFLOP/s and 1 TB/s around one switch."""

    def gpu(self, rank: int) -> GpuSpec:
        return GPU


def _reduced_small(data: dict[str, Any]) -> dict[str, Any]:
    """Return how gradients are reduced in the tests: bf16, in torch's buckets, if there are."""
    kind = data.get("kind", "ddp")
    if kind in ("ddp", "zero") and data.get("stage") != 3:
        data = {"bucket": "25MiB", "first_bucket": "1MiB", **data}
    return data if kind in ("dataparallel", "parameter_server") else {"gradients": "bf16", **data}


def training(n: int, *, cluster: ToyCluster | None = None, **settings: Any) -> Workload:
    """Build a training step of the small model on n GPUs; `settings` replace parts of it."""
    base: dict[str, Any] = {
        "model": SMALL,
        "batch": {"global": 8, "micro": 1},
        "parallel": {"dp": n},
        "compute": {"efficiency": 0.5},
    }
    settings = {**base, **settings}
    settings["compute"] = {"stack": "megatron", **settings["compute"]}
    if n > 1:
        settings["data_parallel"] = _reduced_small(settings.get("data_parallel", {}))
    section = decode(settings, TrainingSection, "x.yaml")
    return build_training(section, cluster or ToyCluster(n), where="x.yaml: workload.training")
