"""
The pace of the host: Python issues kernels one by one, and the GPU waits if it is slower.

pass = (GPU^8 + CPU^8)^(1/8)
CPU  = kernels x cpu_us + kernels of experts x expert_cpu_us + collectives x collective_us

which is the larger of both with a smooth corner. GPU holds the tensor-parallel collective behind
a block as well, since Python runs ahead while it lasts; its time is taken off again, because a
block's time has no communication in it. What a CUDA graph holds is issued at once and costs the
host nothing. Experts that take all tokens that come cannot be issued before the host has learnt
how many those are: the GPU waits `routing_us`; with a capacity the number is known.
"""

from __future__ import annotations

from msgspec.structs import replace

from commsim.models.constants import Stack
from commsim.models.operations import BlockOps

__all__ = ["captured", "paced"]

_CORNER = 8
_HELD = ("attention", "router")
"""What Megatron's partial graphs of layers with experts hold: cuda_graph_scope attn, moe_router
and moe_preprocess (github NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs/qwen)."""


def captured(ops: tuple[BlockOps, ...], graph: str) -> tuple[BlockOps, ...]:
    """Return the blocks of a layer, those marked that a CUDA graph holds."""
    moe = any(op.experts for op in ops)
    return tuple(
        replace(op, captured=graph == "full" or (graph == "experts" and moe and op.name in _HELD))
        for op in ops
    )


def paced(gpu: float, ops: BlockOps, stack: Stack, *, issued: float, behind: float) -> float:
    """Return the seconds of a pass that takes `gpu` on the GPU and is `issued` by the host."""
    if ops.captured:
        return gpu
    waits = stack.routing_us * 1e-6 * ops.waits
    return _smooth_max(gpu + behind, issued) - behind + waits


def _smooth_max(first: float, second: float) -> float:
    largest = max(first, second)
    if not largest:
        return 0.0
    powers = (first / largest) ** _CORNER + (second / largest) ** _CORNER
    return float(largest * powers ** (1 / _CORNER))
