"""
The compute model: how long a rank's part of a layer takes on a GPU under a software stack.

Each operation has the time of its roofline: matrix products by their shape (`matmul`), attention
by its products and, unfused, by the bytes of its scores, everything else by bytes (`kernels`).
Kernels are launched with a gap; if Python issues them slower than the GPU runs them, Python
sets the pace (`host`). Experts launch kernels of their own each. The gradient of a layer's weights
counts the products and the bytes of adding them up as W, everything else of the backward as B.

Not modelled: clocks that fall under load, padding of odd shapes, fragmentation of memory,
host-side stalls (data loading, logging).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from commsim.cluster import GpuSpec
from commsim.models.attention import attention_backward, attention_forward
from commsim.models.compute_section import ComputeSection
from commsim.models.constants import (
    Stack,
)
from commsim.models.host import captured, paced
from commsim.models.kernels import WIDE, KernelModel
from commsim.models.matmul import Matmul
from commsim.models.measured import measured
from commsim.models.not_fitted import not_fitted
from commsim.models.operations import LOSS_FORWARD, BlockOps, embedding_ops, head_ops, layer_ops
from commsim.models.precision import recipe_of
from commsim.models.recompute import Recompute, modules_of
from commsim.models.shape import ModelShape
from commsim.models.split import Split, tensor_parallel_bytes
from commsim.models.stragglers import slowest
from commsim.models.work import NOTHING, Block, GpuWork
from commsim.units import PS_PER_SECOND

__all__ = ["ComputeModel"]

_MERGE_PASSES = 3  # read the partial result and the sum, write the sum
_RING_MERGES = {"torch": (38, 26), "compiled": (10, 18)}
"""Bytes per entry of a partial result, and of a partial gradient, in torch's ring
(torch/distributed/tensor/experimental/_attention.py). Eager: _SDPAMerger casts (2 + 4), subtracts
(8 + 4), multiplies (4 + 4) and subtracts again (8 + 4) in fp32; a gradient is added (6 + 4) and
joined with the other half (8 + 8). Compiled: each is one kernel (2 + 4 + 4), and the join of
gradients, which a message needs in one piece (4 + 4)."""
WHOLE = {
    "mlp": frozenset({"mlp"}), "router": frozenset({"moe"}), "shared": frozenset({"moe"}),
    "experts": frozenset({"moe"}),
}  # fmt: skip
"""Blocks that modules run again as a whole."""
_RING_LATENCY, _RING_SHARE = 25e-6, 0.8
"""Of an all-reduce inside a node, only to say how long Python may run ahead."""


class ComputeModel(msgspec.Struct, frozen=True):
    """Prices work on one GPU at one precision under one software stack."""

    kernels: KernelModel
    section: ComputeSection = ComputeSection()
    stack_name: str = ""
    gpus: int = 1
    """How many GPUs work in step: all are as slow as the slowest."""

    @property
    def gpu(self) -> GpuSpec:
        """The GPU."""
        return self.kernels.gpu

    @property
    def stack(self) -> Stack:
        """The software, with its attention as it is on this GPU."""
        return self.kernels.stack

    @property
    def precision(self) -> str:
        """The precision by the name that was given."""
        return self.kernels.precision

    @property
    def slowest(self) -> float:
        """How many times as long as the mean the slowest GPU takes."""
        given = self.section.spread
        return slowest(self.gpus, self.kernels.constants.spread if given is None else given)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed about compute, for the notes of a run."""
        if self.section.efficiency is not None:
            return (f"compute: {self.section.efficiency:.0%} of the GPU's peak throughout",)
        remarks = (
            f"compute: roofline model of {self.gpu.name}, stack {self.stack_name}"
            f" ({self.stack.year}), attention {self.stack.attention}"
        )
        if self.slowest > 1:
            remarks += f"; the slowest of {self.gpus:,} GPUs takes {self.slowest - 1:.1%} longer"
        return (remarks, *(f"compute: {gap}" for gap in self.not_fitted))

    @property
    def not_fitted(self) -> tuple[str, ...]:
        """What of the constants no published step was fitted for, a sentence each."""
        return not_fitted(self.kernels, self.stack_name)

    @property
    def flash(self) -> bool:
        """Whether attention is fused and keeps no scores."""
        return self.kernels.flash

    def layer(
        self,
        shape: ModelShape,
        split: Split,
        *,
        layer: int = 0,
        recompute: Recompute = "none",
        collective: float | None = None,
    ) -> tuple[Block, ...]:
        """Return the blocks of a layer for one microbatch: attention and mlp, or with experts.

        `collective` is the time in seconds of one tensor-parallel collective, if it is known
        better than by `collective_seconds`.
        """
        behind = self.collective_seconds(shape, split) if collective is None else collective
        made = layer_ops(shape, split, layer=layer, fused_experts=self.stack.fused_experts)
        ops = captured(made, self.section.cuda_graph or "none")
        blocks = tuple(self._block(op, split, recompute, behind, last=op is ops[-1]) for op in ops)
        return measured(blocks, self.section.layer)

    def embedding(self, shape: ModelShape, split: Split) -> Block:
        """Return the lookup and its gradient."""
        block = self._block(embedding_ops(shape, split), split, "none", 0.0)
        return measured((block,), self.section.embedding)[0]

    def head(self, shape: ModelShape, split: Split) -> Block:
        """Return the final norm, the output matrix and the loss."""
        block = self._block(head_ops(shape, split), split, "none", 0.0)
        return measured((block,), self.section.head)[0]

    def collective_seconds(self, shape: ModelShape, split: Split) -> float:
        """Estimate one tensor-parallel all-reduce over NVLink: a ring at 0.8 of its bandwidth."""
        if split.tp == 1 or not self.gpu.nvlink_bandwidth:
            return 0.0
        moved = 2 * (split.tp - 1) / split.tp * tensor_parallel_bytes(shape, split, width=2)
        return _RING_LATENCY + moved / (_RING_SHARE * self.gpu.nvlink_bandwidth)

    def optimizer(self, parameters: int) -> GpuWork:
        """Return one optimizer step over `parameters` entries on this GPU."""
        traffic = self.stack.optimizer_bytes * parameters
        seconds = self.kernels.fixed(traffic).seconds + self.stack.optimizer_ms * 1e-3
        if self.section.optimizer is not None:
            return GpuWork(self.section.optimizer / PS_PER_SECOND, 0.0, traffic)
        return GpuWork(seconds * self.section.scale, 0.0, traffic)

    def merging(self, entries: float, *, backward: bool = False) -> GpuWork:
        """Return what adding `entries` partial results of a ring's step to a sum takes."""
        if self.stack.ring != "fused":
            each = _RING_MERGES[self.stack.ring][backward]
            return self._moved(self.kernels.fixed(each * entries))
        return self._moved(self.kernels.stream(_MERGE_PASSES * 2 * entries))

    def adding_up(self, size: int, parts: int) -> GpuWork:
        """Return what adding up the `parts` of a reduction of `size` bytes takes."""
        return self._moved(self.kernels.fixed(size * (1 + 1 / parts)))

    def gather_copy(self, entries: int) -> GpuWork:
        """Return what copying `entries` gathered parameters out of their flat buffer takes."""
        return self._moved(self.kernels.fixed(self.stack.gather_copy_bytes * entries))

    def scatter_copy(self, entries: int) -> GpuWork:
        """Return what copying the gradients of `entries` parameters into a flat buffer takes."""
        return self._moved(self.kernels.fixed(self.stack.scatter_copy_bytes * entries))

    def list_copies(self, ranks: int) -> GpuWork:
        """Return what a collective of lists takes to copy the parts of `ranks`, one by one."""
        return self._moved(GpuWork(ranks * self.stack.list_copy_us * 1e-6))

    def _moved(self, work: GpuWork) -> GpuWork:
        flat = self.section.efficiency is not None
        return work.lasting(0.0 if flat else work.seconds * self.section.scale)

    def microbatch(self) -> GpuWork:
        """Return what a microbatch takes on a stage besides its layers, forward and backward."""
        if self.section.efficiency is not None:
            return NOTHING
        return GpuWork(self.stack.microbatch_ms * 1e-3 * self.section.scale)

    @property
    def gradient_width(self) -> int:
        """Bytes per gradient as it is reduced: fp16 as it is, bf16 as the stack does."""
        if self.precision in WIDE:
            return 4
        return 2 if self.precision == "fp16" else self.stack.gradient_width

    @property
    def gathers_fp8(self) -> bool:
        """Whether inputs of products are gathered with a byte per entry."""
        return self.stack.fp8_gathers and recipe_of(self.precision).tensor_scaled

    @property
    def width(self) -> int:
        """Bytes per entry of activations: 4 in fp32 and tf32, else 2 (fp8 is for products only)."""
        return self.kernels.width

    def _block(
        self,
        ops: BlockOps,
        split: Split,
        recompute: Recompute,
        behind: float,
        *,
        last: bool = False,
    ) -> Block:
        behind *= ops.collectives
        forward = self._forward(ops, ops.matmuls, ops.forward_bytes, split, behind)
        again = self._recomputed(ops, split, recompute, behind, forward, last=last)
        backward, weight = self._backward(ops, split, behind)
        ends = self._ends(ops, ops.matmuls, forward)
        inputs = tuple(op.input_gradient for op in reversed(ops.matmuls))
        ends_backward = self._ends(ops, inputs, backward + weight)
        if ops.core is None:
            return Block(
                ops.name, forward, backward, weight, again,
                ends=ends, ends_backward=ends_backward,
            )  # fmt: skip
        ahead = self._products(ops, ops.matmuls) + self.kernels.stream(ops.forward_bytes)
        core = self._share(attention_forward(self.kernels, ops.core), ahead)
        outside = self._outside(ops)
        core_backward = self._share(attention_backward(self.kernels, ops.core), outside)
        return Block(
            ops.name, forward, backward, weight, again, core, core_backward, ends, ends_backward
        )

    def _ends(
        self, ops: BlockOps, products: tuple[Matmul, ...], work: GpuWork
    ) -> tuple[float, float]:
        """Return the shares of `work` that the first and the last of `products` take."""
        if not products or not work.seconds or self.section.efficiency is not None:
            return 0.0, 0.0
        first, last = (self._products(ops, (op,)).seconds for op in (products[0], products[-1]))
        whole = max(work.seconds, first + last)
        return first / whole, last / whole

    def _recomputed(
        self,
        ops: BlockOps,
        split: Split,
        recompute: Recompute,
        behind: float,
        forward: GpuWork,
        *,
        last: bool,
    ) -> GpuWork:
        """Return what of a block's forward runs again before its backward."""
        if modules_of(recompute):
            return self._modules(ops, split, modules_of(recompute), forward)
        if recompute == "selective_op":
            work = self._products(ops, ops.dropped)
            work += self.kernels.stream(ops.forward_bytes - ops.last_bytes)
            issued = replace(ops, collectives=0, waits=False)
            return self._finish(work, self.stack.forward_kernels * ops.share, split, issued)
        if recompute == "selective" and ops.core is not None and not self.flash:
            return self._finish(attention_forward(self.kernels, ops.core), 0.0, split)
        if recompute != "full":
            return NOTHING
        if self.stack.early_stop and last:
            kept = ops.forward_bytes - ops.last_bytes
            return self._forward(ops, ops.matmuls[:-1], kept, split, behind)
        return forward

    def _modules(
        self, ops: BlockOps, split: Split, modules: frozenset[str], forward: GpuWork
    ) -> GpuWork:
        """Return what of a block's forward runs again for some modules of Megatron's."""
        if ops.name in WHOLE and modules & WHOLE[ops.name]:
            return forward
        work = self.kernels.stream(ops.norm_bytes) if "layernorm" in modules else NOTHING
        if "moe_act" in modules:
            work += self.kernels.stream(ops.act_bytes)
        if "mla_up_proj" in modules and ops.core is not None:
            work += self._products(ops, ops.matmuls[1:-1])
        if "core_attn" in modules and ops.core is not None:
            work += attention_forward(self.kernels, ops.core)
        return self._finish(work, 0.0, split) if work.seconds or work.flops else NOTHING

    def _share(self, core: GpuWork, outside: GpuWork) -> float:
        """Return the share of attention's core in its block, by FLOPs at a flat efficiency."""
        if self.section.efficiency is not None:
            return core.flops / (core.flops + outside.flops)
        return core.seconds / (core.seconds + outside.seconds)

    def _forward(
        self,
        ops: BlockOps,
        products: tuple[Matmul, ...],
        moved: float,
        split: Split,
        behind: float,
    ) -> GpuWork:
        work = self._products(ops, products) + self.kernels.stream(moved)
        inputs = products[:1] if ops.fused else products
        work += self._casts(ops, sum(op.m * op.k * op.batch for op in inputs))
        work += self._loss(ops, LOSS_FORWARD)
        if ops.core is not None:
            work += attention_forward(self.kernels, ops.core)
        kernels = self.stack.forward_kernels * ops.share
        own = self.stack.expert_kernels * ops.experts
        return self._finish(work, kernels, split, ops, behind, experts=own)

    def _backward(self, ops: BlockOps, split: Split, behind: float) -> tuple[GpuWork, GpuWork]:
        """Return the gradients of the input and of the weights.

        Python issues both in one pass: what it makes wait beyond the weights' own products
        counts with the input.
        """
        inputs = self._input_gradient(ops)
        products = tuple(op.weight_gradient for op in ops.matmuls)
        entries = sum(op.k * op.n * op.batch for op in ops.matmuls)
        added = self.kernels.fixed(self.stack.accumulate_bytes * entries)
        weights = self._products(ops, products) + added + self.kernels.stream(ops.weight_bytes)
        kernels = max(self.stack.backward_kernels * ops.share, len(products))
        own = 2 * self.stack.expert_kernels * ops.experts
        both = self._finish(inputs + weights, kernels, split, ops, behind, experts=own)
        weight = self._finish(weights, 0.0, split)
        return inputs.lasting(max(0.0, both.seconds - weight.seconds)), weight

    def _input_gradient(self, ops: BlockOps) -> GpuWork:
        work = self._outside(ops)
        return work if ops.core is None else work + attention_backward(self.kernels, ops.core)

    def _outside(self, ops: BlockOps) -> GpuWork:
        """Return the gradient of the input without attention's core."""
        products = tuple(op.input_gradient for op in ops.matmuls)
        work = self._products(ops, products) + self.kernels.stream(ops.backward_bytes)
        outputs = ops.matmuls[-1:] if ops.fused else ops.matmuls
        work += self._casts(ops, sum(op.m * op.n * op.batch for op in outputs))
        return work + self._loss(ops, 1 - LOSS_FORWARD)

    def _products(self, ops: BlockOps, products: tuple[Matmul, ...]) -> GpuWork:
        return self.kernels.products(products, wide=ops.wide)

    def _casts(self, ops: BlockOps, entries: int) -> GpuWork:
        return NOTHING if ops.wide else self.kernels.casts(entries)

    def _loss(self, ops: BlockOps, share: float) -> GpuWork:
        return self.kernels.fixed(share * self.stack.loss_bytes * ops.logits)

    def _finish(
        self,
        work: GpuWork,
        kernels: float,
        split: Split,
        ops: BlockOps | None = None,
        behind: float = 0.0,
        *,
        experts: float = 0.0,
    ) -> GpuWork:
        """Add launches and the pace of the host, or take the flat efficiency instead.

        `experts` are kernels that experts launch one by one. Without `ops` the host keeps up.
        """
        if self.section.efficiency is not None:
            seconds = work.flops / self.kernels.peak
            return work.lasting(seconds / self.section.efficiency * self.section.scale)
        parallel = split.tp > 1
        gpu = work.seconds * (1 + self.stack.tensor_parallel_loss * parallel) * self.slowest
        gpu += (kernels + experts) * self.kernels.constants.launch_us * 1e-6
        if ops is not None:
            collectives = ops.collectives * parallel
            cpu = self.stack.cpu_us * kernels + self.stack.expert_cpu_us * experts
            cpu += self.stack.collective_us * collectives
            gpu = paced(gpu, ops, self.stack, issued=cpu * 1e-6, behind=behind)
        return work.lasting(gpu * self.section.scale)
