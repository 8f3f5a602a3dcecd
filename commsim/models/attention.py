"""
The time of attention's core: scores, softmax, and their product with the values.

Fused (FlashAttention): 2 a s^2 (e_qk + e_v) FLOPs, half of them if the mask is causal, at the
share of the peak that the kernel reaches at their shape (`fused_attention`); the backward does 2.5
times the FLOPs. A ring of d ranks meets s/d keys in its first step, under the mask, and s/2d in
the others: by what each computes, that takes as long as rows of s/(2d - 1).
Unfused: two batched products, four in the backward, and the scores pass through memory: forward
2 for scale, mask and softmax, and 5 for dropout (2 and half a mask, which take twice their time
because random numbers are drawn); backward 3 for softmax and 2.5 for dropout. The stack's
`softmax` multiplies them.
"""

from __future__ import annotations

from commsim.models.constants import FusedPass
from commsim.models.fused_attention import fused_share
from commsim.models.kernels import KernelModel
from commsim.models.matmul import Matmul, matmul_bytes, matmul_seconds
from commsim.models.operations import Core
from commsim.models.work import GpuWork

__all__ = ["attention_backward", "attention_forward"]

_FLASH_BACKWARD = 2.5
_SOFTMAX_FORWARD, _SOFTMAX_BACKWARD = 2.0, 3.0
_DROPOUT_FORWARD, _DROPOUT_BACKWARD = 5.0, 2.5
_FORWARD_VECTORS, _BACKWARD_VECTORS = 1.0, 2.0
_CAUSAL = 0.5


def attention_forward(model: KernelModel, core: Core) -> GpuWork:
    """Return the forward of one microbatch's attention on a rank."""
    if model.efficiency is not None:
        return GpuWork(0.0, core.flops)
    if model.flash:
        kernel, speedup = model.flash_share.forward, model.attention_speedup
        return _fused(model, core, _CAUSAL * core.flops, kernel, _FORWARD_VECTORS, speedup)
    passes = _SOFTMAX_FORWARD + core.dropout * _DROPOUT_FORWARD
    return _unfused(model, core, _forward_products(core), passes)


def attention_backward(model: KernelModel, core: Core) -> GpuWork:
    """Return the backward of one microbatch's attention on a rank."""
    if model.efficiency is not None:
        return GpuWork(0.0, 2 * core.flops)
    if model.flash:
        kernel, flops = model.flash_share.backward, _CAUSAL * _FLASH_BACKWARD * core.flops
        return _fused(model, core, flops, kernel, _BACKWARD_VECTORS)
    forward = _forward_products(core)
    products = [p for op in forward for p in (op.input_gradient, op.weight_gradient)]
    passes = _SOFTMAX_BACKWARD + core.dropout * _DROPOUT_BACKWARD
    return _unfused(model, core, products, passes)


def _fused(
    model: KernelModel,
    core: Core,
    flops: float,
    kernel: FusedPass,
    vectors: float,
    speedup: float = 1.0,
) -> GpuWork:
    """Return a fused pass of `flops`; `vectors` counts how often queries to outputs are moved."""
    share = speedup * fused_share(
        kernel,
        width=core.width,
        keys=core.block,
        rows=core.heads * core.queries,
        sms=model.gpu.sm_count,
    )
    traffic = vectors * core.vector_bytes
    seconds = flops / (model.wide_peak * share)
    return GpuWork(max(seconds, traffic / model.bandwidth), flops, traffic)


def _forward_products(core: Core) -> list[Matmul]:
    return [
        Matmul(core.queries, core.keys, core.width, core.heads),
        Matmul(core.queries, core.value, core.keys, core.heads),
    ]


def _unfused(model: KernelModel, core: Core, products: list[Matmul], passes: float) -> GpuWork:
    machine = model.machine(wide=True)
    scores = passes * model.stack.softmax * core.score_bytes * model.width / 2
    efficiency = model.constants.batched_efficiency
    seconds = scores / model.bandwidth + sum(
        matmul_seconds(op, machine, efficiency=efficiency, width=model.width) for op in products
    )
    flops = sum(2.0 * op.m * op.n * op.k * op.batch for op in products)
    return GpuWork(seconds, flops, scores + sum(matmul_bytes(op, model.width) for op in products))
