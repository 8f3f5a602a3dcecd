"""Compute models and shapes of layers for tests."""

from __future__ import annotations

from typing import Any

from commsim.cluster.nodes.gpus import gpu_spec
from commsim.models import (
    ComputeModel,
    ComputeSection,
    ModelShape,
    compute_model,
)
from commsim.sections import decode

__all__ = ["PHASES", "gpt", "model", "section", "total"]

PHASES = ("forward", "backward", "weight")


def section(**settings: Any) -> ComputeSection:
    return decode(settings, ComputeSection, "x")


def model(gpu: str = "A100-SXM4-80GB", precision: str = "fp16", **settings: Any) -> ComputeModel:
    return compute_model(gpu_spec(gpu), precision=precision, section=section(**settings))


def gpt(hidden: int, heads: int, layers: int = 24) -> ModelShape:
    return ModelShape(
        layers=layers, hidden=hidden, heads=heads, kv_heads=heads, head_dim=hidden // heads,
        ffn=4 * hidden, vocab=50304, max_seq=1024, learned_position_rows=1024,
    )  # fmt: skip


def total(blocks: Any, phase: str, what: str = "seconds") -> float:
    return float(sum(getattr(getattr(block, phase), what) for block in blocks))
