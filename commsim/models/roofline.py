"""
Times for ops of which only FLOPs, bytes and shapes are known: the ops of a captured program.

Each op is one kernel of eager PyTorch, or several: a matrix product takes its time by shape
(`matmul`), fused attention its FLOPs at the share of the peak that the kernel reaches which torch
takes on the GPU, half of them under a causal mask, everything else its bytes at the memory's
bandwidth; and each its launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.cluster import Cluster, GpuSpec
from commsim.errors import ScenarioError
from commsim.graph import Graph, OpKind
from commsim.models.constants import (
    FlashShare,
    GpuConstants,
    generation_of,
    gpu_constants,
    read_constants,
)
from commsim.models.fused_attention import WIDE_HEAD, fused_share
from commsim.models.matmul import Machine, Matmul, matmul_seconds
from commsim.ops import element_bytes, element_type
from commsim.units import to_picoseconds

__all__ = ["OpShape", "op_seconds", "precision_of", "resolve_durations", "shapes_of"]

_CAUSAL = 0.5


class OpShape(msgspec.Struct, frozen=True):
    """The product that an op is: `kind` is matmul, attention, attention_backward or other.

    matmul: [m, k] x [k, n], `batch` times; attention: m queries, n keys, heads of width k.
    """

    kind: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    causal: bool = False


def precision_of(dtype: str) -> str:
    """Return what a dtype of torch, or "tf32", is called in a GPU's table of peaks."""
    known = None if dtype == "tf32" else element_type(dtype)
    return dtype if known is None or known.peak is None else known.peak


def shapes_of(graph: Graph) -> dict[str, OpShape]:
    """Return the products of a captured graph by the names of their ops."""
    products: Mapping[str, Sequence[Any]] = graph.meta.get("capture", {}).get("products", {})
    return {name: OpShape(*values) for name, values in products.items()}


def resolve_durations(graph: Graph, cluster: Cluster) -> Graph:
    """Return `graph` with a duration for every compute op that has FLOPs but none.

    Each lane takes the GPU of its rank; the ranks that it stands for must have the same.

    Raises:
        ScenarioError: a rank that the cluster has not, a GPU whose speed is not known, a precision
            that it has not, or FLOPs of a product without a shape.
    """
    open_ = np.flatnonzero((graph.kind == OpKind.COMPUTE) & (graph.duration < 0))
    if not open_.size:
        return graph
    shapes = shapes_of(graph)
    launches: Mapping[str, int] = graph.meta.get("capture", {}).get("launches", {})
    duration = graph.duration.copy()
    known: dict[tuple[GpuSpec, int, float, float], int] = {}
    lanes = [_gpu(cluster, int(rank)) for rank in graph.lane_rank]
    columns = (graph.lane, graph.name, graph.flops, graph.traffic)
    for op, lane, name, flops, traffic in zip(
        open_.tolist(), *(column[open_].tolist() for column in columns), strict=True
    ):
        gpu = lanes[lane]
        key = (gpu, name, flops, traffic)
        if key not in known:
            called = graph.names[name]
            shape = shapes.get(called)
            if shape is not None and flops:
                _check_shape(shape, called)
            seconds = op_seconds(
                gpu,
                shape,
                flops=flops,
                traffic=max(traffic, 0.0),
                launches=launches.get(called, 1),
            )
            known[key] = max(1, to_picoseconds(seconds, f"workload.graph: compute {called!r}"))
        duration[op] = known[key]
    return replace(graph, duration=duration)


def _check_shape(shape: OpShape, name: str) -> None:
    by_shape = shape.kind == "matmul" or shape.kind.startswith("attention")
    if by_shape and not min(shape.m, shape.n, shape.k, shape.batch):
        raise ScenarioError(
            f"workload.graph: {name!r} has FLOPs, but a length of its product is 0."
            " Capture the script again."
        )


def op_seconds(
    gpu: GpuSpec, shape: OpShape | None, *, flops: float, traffic: float, launches: int = 1
) -> float:
    """Return the time of one op in seconds, with the launches of its kernels."""
    constants = _constants(gpu)
    memory = traffic / (gpu.memory_bandwidth * constants.memory_efficiency)
    launch = launches * constants.launch_us * 1e-6
    if shape is None or not flops:
        return memory + launch
    if shape.kind == "matmul":
        return max(_matmul(gpu, constants, shape), memory) + launch
    return max(flops / _rate(gpu, constants, shape), memory) + launch


def _constants(gpu: GpuSpec) -> GpuConstants:
    if generation_of(gpu) is None:
        raise ScenarioError(
            f"workload.graph: how fast a {gpu.name} computes is not known here. Take a cluster of"
            " other GPUs (`commsim presets clusters`)."
        )
    return gpu_constants(gpu, where="workload.graph")


def _matmul(gpu: GpuSpec, constants: GpuConstants, shape: OpShape) -> float:
    peak, width = _peak(gpu, shape.dtype)
    efficiency = (
        constants.batched_efficiency
        if shape.batch > 1
        else constants.fp8_efficiency
        if width == 1
        else constants.matmul_efficiency
    )
    # The ramp over k lasts as long at any precision (`KernelModel.machine`).
    ramp = peak / _peak(gpu, "bfloat16")[0] if width == 1 else 1.0
    return matmul_seconds(
        Matmul(shape.m, shape.n, shape.k, shape.batch),
        Machine(peak, gpu.memory_bandwidth, gpu.sm_count, constants, ramp),
        efficiency=efficiency,
        width=width,
    )


def _rate(gpu: GpuSpec, constants: GpuConstants, shape: OpShape) -> float:
    """Return the FLOP/s of an attention kernel (counted over all positions), or of a like one."""
    peak, _ = _peak(gpu, shape.dtype)
    if not shape.kind.startswith("attention"):
        return peak * constants.matmul_efficiency
    flash = _flash(gpu, constants, shape)
    share = fused_share(
        flash.backward if shape.kind == "attention_backward" else flash.forward,
        width=shape.k,
        keys=shape.n,
        rows=shape.batch * shape.m,
        sms=gpu.sm_count,
        causal=shape.causal,
    )
    return peak * share / (_CAUSAL if shape.causal else 1.0)


def _flash(gpu: GpuSpec, constants: GpuConstants, shape: OpShape) -> FlashShare:
    """Return the shares of the attention that torch takes: cuDNN's is for heads of up to 128."""
    captured, generation = read_constants().captured, generation_of(gpu) or ""
    kernel = captured.attention_on.get(generation, captured.attention)
    if kernel == "cudnn" and (shape.k > WIDE_HEAD or element_bytes(shape.dtype) != 2):
        kernel = captured.attention
    share: FlashShare = getattr(constants.flash, kernel)
    return share


def _peak(gpu: GpuSpec, dtype: str) -> tuple[float, int]:
    precision, width = precision_of(dtype), element_bytes(dtype)
    peak = gpu.tflops.get(precision)
    if not peak:
        having = ", ".join(gpu.tflops) or "none"
        raise ScenarioError(
            f"workload.graph: it multiplies in {dtype}; {gpu.name} has no peak for that"
            f" ({having}). Capture the script in another precision, or take another GPU."
        )
    return peak * 1e12, width


def _gpu(cluster: Cluster, rank: int) -> GpuSpec:
    if rank >= cluster.world_size:
        raise ScenarioError(
            f"workload.graph: has rank {rank}, the cluster has {cluster.world_size} GPUs."
            " Use more nodes, or capture with a smaller --world-size."
        )
    return cluster.gpu(rank)
