"""
Compiles a stage into work items: those of its forward, of its whole backward, and of a backward
that is split into the gradients of inputs and of weights.

n  bytes of a microbatch's hidden state      t  tensor-parallel degree

Tensor parallelism (Narayanan et al., SC'21): an all-reduce of n after attention and after the
MLP, forward and backward. With sequence parallelism (Korthikanti et al., 2022) each is an
all-gather in front and a reduce-scatter after, and the backward gathers the input once more,
during the gradient's products. The embedding's rows and the logits are divided by the
vocabulary: one all-reduce each, and three of a number per token for the cross entropy.

Experts: an all-to-all before and one after, forward and backward. Tensor parallelism that divides
them too gathers tokens in front of the router (torchtitan), or all copies behind the all-to-all
(Megatron); where it leaves them whole, each rank sends its own tokens. Context parallelism:
`context_attention`.
"""

from __future__ import annotations

import msgspec

from commsim.models import (
    NOTHING,
    Block,
    ComputeModel,
    GpuWork,
    ModelShape,
    Recompute,
    Split,
    is_moe_layer,
    modules_of,
    tensor_parallel_bytes,
)
from commsim.workload.training.context_attention import ContextAttention
from commsim.workload.training.expert_routing import ExpertRouting
from commsim.workload.training.stages import EMBEDDING, HEAD, Unit
from commsim.workload.training.work_items import COMPUTE, WorkItem, WorkList, scaled

__all__ = ["StageCompiler", "StageOps"]

_PIPELINED = 4
"""Parts of a product whose reduction runs beside the next part, as Transformer Engine splits it
(num_splits of `initialize_ub`, pytorch/module/base.py): that of the last one has none beside it.
Gathers go round a ring and hide whole, as a rank begins with its own part; in the backward a
reduction runs beside the weights' gradient (`ring_exchange`, `pipeline` and `bulk` there)."""
_LOSS_BYTES = 4
_LOSS_REDUCTIONS = 3  # the largest logit, the logit of the target, the sum of exponentials


class StageOps(msgspec.Struct, frozen=True):
    """The items of each kind of action of a stage."""

    forward: tuple[WorkItem, ...]
    backward: tuple[WorkItem, ...]
    input_backward: tuple[WorkItem, ...]
    weight: tuple[WorkItem, ...]

    @property
    def durations(self) -> tuple[int, int, int]:
        """The compute of a forward, an input and a weight gradient, in ps."""
        forward, first, second = (
            sum(item.duration for item in work_list)
            for work_list in (self.forward, self.input_backward, self.weight)
        )
        return forward, first, second


class StageCompiler(msgspec.Struct):
    """Compiles stages into work items for one kind of GPU.

    `load` is the share of the mean that this rank's experts get (1 if balanced).
    """

    shape: ModelShape
    split: Split
    model: ComputeModel
    width: int
    recompute: Recompute = "none"
    tp_overlap: str = "none"
    context: str = "ring"
    load: float = 1.0
    skewed: bool = False
    _layers: dict[tuple[bool, bool], tuple[Block, ...]] = msgspec.field(default_factory=dict)

    def compile(self, units: tuple[Unit, ...]) -> StageOps:
        """Return the work items of a stage of these units."""
        forward, backward, first, second = WorkList(), WorkList(), WorkList(), WorkList()
        for index, unit in enumerate(units):
            forward.at(index, unit.layer, f"F {unit.name}")
            if index == 0:
                forward.compute(self.model.microbatch())
            self._forward(forward, unit)
        for index in reversed(range(len(units))):
            unit = units[index]
            for work_list, letter in ((backward, "B"), (first, "B"), (second, "W")):
                work_list.at(index, unit.layer, f"{letter} {unit.name}")
            self._backward(backward, unit, fused=True)
            self._backward(first, unit, fused=False)
            self._weight(second, unit)
        return StageOps(*(_never_empty(s) for s in (forward, backward, first, second)))

    def blocks(self, unit: Unit) -> tuple[Block, ...]:
        """Return the blocks of a layer; layers of one kind cost the same."""
        kind = is_moe_layer(self.shape, unit.layer), unit.again
        if kind not in self._layers:
            recompute = self.recompute if unit.again else "none"
            self._layers[kind] = self.model.layer(
                self.shape, self.split, layer=unit.layer, recompute=recompute
            )
        return self._layers[kind]

    @property
    def _n(self) -> int:
        return tensor_parallel_bytes(self.shape, self.split, width=self.width)

    @property
    def _gathers(self) -> bool:
        return self.split.tp > 1 and self.split.sequence_parallel

    @property
    def _beside(self) -> bool:
        """Whether collectives run during the products of their block."""
        return self.tp_overlap in ("ring", "full")

    def _forward(self, work_list: WorkList, unit: Unit) -> None:
        if unit.kind == EMBEDDING:
            work_list.compute(self.model.embedding(self.shape, self.split).forward)
            self._leave(work_list)
        elif unit.kind == HEAD:
            self._gather(work_list)
            work_list.compute(self.model.head(self.shape, self.split).forward)
            self._cross_entropy(work_list)
        else:
            self._layer_forward(work_list, self.blocks(unit), again=False)

    def _layer_forward(
        self, work_list: WorkList, blocks: tuple[Block, ...], *, again: bool
    ) -> None:
        """Write a layer's forward, or what full recompute runs of it `again`."""
        beside = self._beside
        for block in blocks:
            work = block.recompute if again else block.forward
            stops = again and block is blocks[-1] and self.model.stack.early_stop
            leaves = self._leaves_after(block) and not stops
            if block.name == "shared":
                continue
            if self._in_pieces(block):
                self._pieces(work_list, block, work, block.ends, leaves=leaves)
                continue
            if self._gathers_before(block):
                self._gather(work_list, beside=beside)
            if leaves and beside:
                self._leave(work_list, beside=True, splits=self._splits)
            if block.name == "experts":
                apart = _named(blocks, "shared")
                with_it = NOTHING if apart is None else apart.recompute if again else apart.forward
                self._experts.write(work_list, work, shared=with_it)
            elif block.name == "attention":
                self._attention(work_list, work, work.seconds * block.core, backward=False)
            else:
                work_list.compute(work, block=block.name)
            if beside:
                work_list.join()
            if leaves:
                self._add_up(work_list)
            if leaves and (not beside or self._splits > 1):
                self._leave(work_list, splits=self._splits if beside else 1)

    def _backward(self, work_list: WorkList, unit: Unit, *, fused: bool) -> None:
        if unit.kind == EMBEDDING:
            self._gather(work_list)
            block = self.model.embedding(self.shape, self.split)
            work_list.compute(block.full_backward if fused else block.input_backward)
        elif unit.kind == HEAD:
            block = self.model.head(self.shape, self.split)
            self._gradient(work_list, block, fused=fused)
        else:
            again = self.recompute if unit.again else "none"
            self._layer_backward(work_list, self.blocks(unit), again, fused=fused)

    def _layer_backward(
        self, work_list: WorkList, blocks: tuple[Block, ...], recompute: Recompute, *, fused: bool
    ) -> None:
        if recompute == "full":
            self._layer_forward(work_list, blocks, again=True)
        elif recompute == "selective_op":
            for block in blocks:  # what was gathered is not kept, what was reduced is
                if self._gathers_before(block):
                    self._gather(work_list)
                work_list.compute(block.recompute, block=_shown(block))
        elif any(block.recompute.seconds for block in blocks):
            self._run_again(work_list, blocks)
        for block in reversed(blocks):
            if block.name == "shared":
                continue
            if fused and self._in_pieces(block):
                work = block.backward + block.weight
                self._pieces(work_list, block, work, block.ends_backward)
                continue
            if self._leaves_after(block):
                self._gather(work_list, beside=self._beside)
            if block.name == "experts":
                apart = _named(blocks, "shared")
                work, with_it = (_gradient_work(one, fused=fused) for one in (block, apart))
                self._experts.write(work_list, work, shared=with_it, backward=True)
            else:
                self._gradient(work_list, block, fused=fused)

    def _run_again(self, work_list: WorkList, blocks: tuple[Block, ...]) -> None:
        """Write what parts of blocks run again; whole experts get their tokens again too."""
        travels = "moe" in modules_of(self.recompute)
        for block in blocks if travels else ():
            if block.name == "experts":
                self._experts.write(work_list, block.recompute)
            else:
                work_list.compute(block.recompute, block=_shown(block))
        if not travels:
            work_list.compute(sum((block.recompute for block in blocks), GpuWork(0.0)))

    def _gradient(self, work_list: WorkList, block: Block, *, fused: bool) -> None:
        """Write the input gradient, what follows it on the tensor axis, and the weight's.

        Overlapped in full, that starts with the gradient; beside weights, after it.
        """
        around = self._gathers_before(block)
        full, beside = self._beside, self.tp_overlap == "weight" and fused
        if full and around:
            self._leave(work_list, beside=True)
        if self._gathers and around and not self._torch:  # the input, of which only 1/t was kept
            work_list.collective("all_gather", "tp", self._n, beside=True)
        work = block.backward + block.weight if fused and not beside else block.backward
        if block.name == "attention":
            core = block.backward.seconds * block.core_backward
            self._attention(work_list, work, core, backward=True)
        else:
            work_list.compute(work, block=_shown(block))
        work_list.join()
        if around:
            self._add_up(work_list)
        if around and not full:
            self._leave(work_list, beside=beside)
        if beside:
            work_list.compute(block.weight, block=_shown(block))
            work_list.join()

    def _weight(self, work_list: WorkList, unit: Unit) -> None:
        if unit.kind == EMBEDDING:
            work_list.compute(self.model.embedding(self.shape, self.split).weight)
        elif unit.kind == HEAD:
            work_list.compute(self.model.head(self.shape, self.split).weight)
        else:
            for block in reversed(self.blocks(unit)):
                work = scaled(block.weight, self.load if block.name == "experts" else 1.0)
                work_list.compute(work, block=_shown(block))

    @property
    def _splits(self) -> int:
        """Into how many parts a forward's product is split, so that its reduction overlaps."""
        return _PIPELINED if self.tp_overlap == "ring" and not self._adds_up else 1

    def _in_pieces(self, block: Block) -> bool:
        """Whether a block's collectives run beside its ends only: torch's async TP fuses a gather
        with the product that takes it, and a reduction with the one that gives it
        (micro_pipeline_tp.py of torch/_inductor/fx_passes)."""
        return self._adds_up and self.split.cp == 1 and block.name in ("attention", "mlp")

    def _pieces(
        self,
        work_list: WorkList,
        block: Block,
        work: GpuWork,
        ends: tuple[float, float],
        *,
        leaves: bool = True,
    ) -> None:
        """Write a block whose gather hides behind its first product, its reduction behind its
        last."""
        first, last = ends
        self._gather(work_list, beside=True)
        work_list.compute(scaled(work, first), block=block.name)
        work_list.join()
        work_list.compute(scaled(work, 1 - first - last), block=block.name)
        if leaves:
            self._leave(work_list, beside=True)
        work_list.compute(scaled(work, last), block=block.name)
        work_list.join()
        if leaves:
            self._add_up(work_list)

    @property
    def _torch(self) -> bool:
        """Whether torch's own operators run, which keep what was gathered for the backward."""
        return self.model.stack.ring != "fused"

    @property
    def _adds_up(self) -> bool:
        """Whether a reduction's parts come one by one and are added up after the product: torch's
        async TP (_pipelined_produce_and_all2all of torch/distributed/_symmetric_memory)."""
        return self.tp_overlap == "ring" and self._torch and self.split.tp > 1

    def _add_up(self, work_list: WorkList) -> None:
        """Write the sum of the parts of a reduction that came from all ranks."""
        if self._adds_up:
            work_list.compute(self.model.adding_up(self._n, self.split.tp), block="sum")

    @property
    def _experts(self) -> ExpertRouting:
        copied = self._routes_own and not self.split.whole_experts
        return ExpertRouting(self.shape, self.split, self.width, self.load, self.skewed, copied)

    @property
    def _routes_own(self) -> bool:
        """Whether a rank routes its part of its tensor-parallel group's tokens, not all."""
        copies = self.model.stack.experts_gather == "copies"
        return self._gathers and (self.split.whole_experts or copies)

    def _gathers_before(self, block: Block) -> bool:
        """Return whether tokens are gathered in front of a block: once for router and experts."""
        if block.name == "router" and self._routes_own:
            return self._has_shared
        return block.name not in ("shared", "experts")

    def _leaves_after(self, block: Block) -> bool:
        """Return whether a block's results are reduced after it: once for router and experts."""
        last = "experts" if self.split.shared_apart else "router"
        if self._routes_own and block.name in ("router", "experts"):
            return block.name == last and self._has_shared
        return block.name != "router"

    @property
    def _has_shared(self) -> bool:
        experts = self.shape.experts
        return experts is not None and experts.shared_expert_ffn > 0

    def _gather(self, work_list: WorkList, *, beside: bool = False) -> None:
        """Write a gather before a product; next to it, each rank begins with its own part."""
        if not self._gathers:
            return
        size = self._n // (self.width if self.model.gathers_fp8 else 1)
        work_list.collective("all_gather", "tp", size, beside=beside)

    def _leave(self, work_list: WorkList, *, beside: bool = False, splits: int = 1) -> None:
        """Write the reduction after a product that is `splits` parts.

        Those but the last run next to the product, the last one after it.
        """
        if self.split.tp == 1:
            return
        size, kind = self._n // splits, "reduce_scatter" if self._gathers else "all_reduce"
        if beside and splits > 1:
            size = self._n - size
        work_list.collective(kind, "tp", size, beside=beside)

    def _cross_entropy(self, work_list: WorkList) -> None:
        if self.split.tp == 1:
            return
        if not self.split.loss_parallel:
            size = self.width * self.split.tokens * self.shape.vocab
            work_list.collective("all_gather", "tp", size)
            return
        for _ in range(_LOSS_REDUCTIONS):
            work_list.collective("all_reduce", "tp", _LOSS_BYTES * self.split.tokens)

    def _attention(
        self, work_list: WorkList, work: GpuWork, core: float, *, backward: bool
    ) -> None:
        """Write attention, of which the `core` (seconds) needs other ranks' keys and values."""
        if self.split.cp == 1:
            work_list.compute(work, block="attention")
        else:
            context = ContextAttention(self.shape, self.split, self.model, self.width, self.context)
            context.write(work_list, work, core, backward=backward)


def _never_empty(work_list: WorkList) -> tuple[WorkItem, ...]:
    """Return the items of a work list; one of no time if it has no compute, for what waits."""
    if not any(item.kind == COMPUTE for item in work_list.items):
        work_list.items.append(WorkItem(work_list.unit, work_list.name, work_list.layer))
    return tuple(work_list.items)


def _named(blocks: tuple[Block, ...], name: str) -> Block | None:
    return next((block for block in blocks if block.name == name), None)


def _gradient_work(block: Block | None, *, fused: bool) -> GpuWork:
    if block is None:
        return NOTHING
    return block.backward + block.weight if fused else block.backward


def _shown(block: Block) -> str:
    return block.name if block.name not in (EMBEDDING, HEAD) else ""
