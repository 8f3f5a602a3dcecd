"""
The scripts of a stage: the pieces of its forward, its backward in one, and its backward in two.

n  bytes of a microbatch's hidden state      t  tensor-parallel degree      d  context-parallel

Tensor parallelism (Narayanan et al., SC'21): an all-reduce of n behind attention and behind the
MLP, forward and backward. With sequence parallelism (Korthikanti et al., 2022) each is an
all-gather in front and a reduce-scatter behind, and the backward gathers the input once more,
beside the gradient's products. The embedding's rows and the logits are divided by the
vocabulary: one all-reduce each, and three of a number per token for the cross entropy.

Experts: an all-to-all before and one behind, forward and backward. Context: a ring passes keys
and values on d - 1 times beside attention's core (scores and values: the projections come before
and behind), backward with their gradients; Ulysses exchanges q, k, v and the output by all-to-all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from commsim.models import (
    Block,
    ComputeModel,
    ModelShape,
    Split,
    Work,
    context_ring_bytes,
    expert_all_to_all_bytes,
    is_moe_layer,
    score_width,
    tensor_parallel_bytes,
    ulysses_bytes,
    value_width,
)
from commsim.workload.training.pieces import COMPUTE, EXCHANGE, Piece, Script
from commsim.workload.training.stages import EMBEDDING, HEAD, Unit

__all__ = ["Author", "Scripts"]

_MASKED = 0.75
"""What of a later step's results there is under a causal mask: all queries meet half of the keys,
or half of the queries all, as each rank has an early and a late block (context_parallel.py of
github NVIDIA/TransformerEngine, which adds up partial outputs after each step, and partial
gradients of q, k and v in the backward)."""
_LOSS_BYTES = 4
_LOSS_REDUCTIONS = 3  # the largest logit, the logit of the target, the sum of exponentials


@dataclass(frozen=True, slots=True)
class Scripts:
    """The pieces of each kind of action of a stage."""

    forward: tuple[Piece, ...]
    backward: tuple[Piece, ...]
    input_backward: tuple[Piece, ...]
    weight: tuple[Piece, ...]

    @property
    def durations(self) -> tuple[int, int, int]:
        """The compute of a forward, an input and a weight gradient, in ps."""
        forward, first, second = (
            sum(piece.duration for piece in script)
            for script in (self.forward, self.input_backward, self.weight)
        )
        return forward, first, second


@dataclass(slots=True)
class Author:
    """Writes the scripts of stages for one kind of GPU.

    `load` is the share of the mean that this rank's experts get (1 where balanced).
    """

    shape: ModelShape
    split: Split
    model: ComputeModel
    width: int
    recompute: str = "none"
    tp_overlap: str = "none"
    context: str = "ring"
    load: float = 1.0
    skewed: bool = False
    _layers: dict[bool, tuple[Block, ...]] = field(default_factory=dict)

    def scripts(self, units: tuple[Unit, ...]) -> Scripts:
        """Return the scripts of a stage of these units."""
        forward, backward, first, second = Script(), Script(), Script(), Script()
        for index, unit in enumerate(units):
            forward.at(index, unit.layer, f"F {unit.name}")
            if index == 0:
                forward.compute(self.model.microbatch())
            self._forward(forward, unit)
        for index in reversed(range(len(units))):
            unit = units[index]
            for script, letter in ((backward, "B"), (first, "B"), (second, "W")):
                script.at(index, unit.layer, f"{letter} {unit.name}")
            self._backward(backward, unit, fused=True)
            self._backward(first, unit, fused=False)
            self._weight(second, unit)
        return Scripts(*(_never_empty(s) for s in (forward, backward, first, second)))

    def blocks(self, layer: int) -> tuple[Block, ...]:
        """Return the blocks of a layer; layers of one kind cost the same."""
        kind = is_moe_layer(self.shape, layer)
        if kind not in self._layers:
            self._layers[kind] = self.model.layer(
                self.shape, self.split, layer=layer, recompute=self.recompute
            )
        return self._layers[kind]

    @property
    def _n(self) -> int:
        return tensor_parallel_bytes(self.shape, self.split, width=self.width)

    @property
    def _gathers(self) -> bool:
        return self.split.tp > 1 and self.split.sequence_parallel

    def _forward(self, script: Script, unit: Unit) -> None:
        if unit.kind == EMBEDDING:
            script.compute(self.model.embedding(self.shape, self.split).forward)
            self._leave(script)
        elif unit.kind == HEAD:
            self._gather(script)
            script.compute(self.model.head(self.shape, self.split).forward)
            self._cross_entropy(script)
        else:
            self._layer_forward(script, self.blocks(unit.layer), again=False)

    def _layer_forward(self, script: Script, blocks: tuple[Block, ...], *, again: bool) -> None:
        """Write a layer's forward, or what full recompute runs of it `again`."""
        beside = self.tp_overlap == "full"
        for block in blocks:
            work = block.recompute if again else block.forward
            stops = again and block is blocks[-1] and self.model.stack.early_stop
            leaves = block.name != "router" and not stops
            if block.name != "experts":
                self._gather(script, beside=beside)
            if leaves and beside:
                self._leave(script, beside=True)
            if block.name == "experts":
                self._route(script, back=False)
                script.compute(_scaled(work, self.load), block=block.name)
                self._route(script, back=True)
            elif block.name == "attention":
                self._attention(script, work, work.seconds * block.core, backward=False)
            else:
                script.compute(work, block=block.name)
            if beside:
                script.join()
            elif leaves:
                self._leave(script)

    def _backward(self, script: Script, unit: Unit, *, fused: bool) -> None:
        if unit.kind == EMBEDDING:
            self._gather(script)
            block = self.model.embedding(self.shape, self.split)
            script.compute(block.full_backward if fused else block.input_backward)
        elif unit.kind == HEAD:
            block = self.model.head(self.shape, self.split)
            self._gradient(script, block, fused=fused)
        else:
            self._layer_backward(script, self.blocks(unit.layer), fused=fused)

    def _layer_backward(self, script: Script, blocks: tuple[Block, ...], *, fused: bool) -> None:
        if self.recompute == "full":
            self._layer_forward(script, blocks, again=True)
        elif any(block.recompute.seconds for block in blocks):
            script.compute(sum((block.recompute for block in blocks), Work(0.0)))
        for block in reversed(blocks):
            if block.name != "router":
                self._gather(script, beside=self.tp_overlap == "full")
            if block.name == "experts":
                self._route(script, back=True)
                work = block.backward + block.weight if fused else block.backward
                script.compute(_scaled(work, self.load), block=block.name)
                self._route(script, back=False)
            else:
                self._gradient(script, block, fused=fused)

    def _gradient(self, script: Script, block: Block, *, fused: bool) -> None:
        """Write the input gradient, what follows it on the tensor axis, and the weight's.

        Overlapped in full, that starts with the gradient; beside weights, behind it.
        """
        full, beside = self.tp_overlap == "full", self.tp_overlap == "weight" and fused
        if full:
            self._leave(script, beside=True)
        if self._gathers:  # the input, of which only 1/t was kept
            script.collective("all_gather", "tp", self._n, beside=True)
        work = block.backward + block.weight if fused and not beside else block.backward
        if block.name == "attention":
            core = block.backward.seconds * block.core_backward
            self._attention(script, work, core, backward=True)
        else:
            script.compute(work, block=_shown(block))
        script.join()
        if not full:
            self._leave(script, beside=beside)
        if beside:
            script.compute(block.weight, block=_shown(block))
            script.join()

    def _weight(self, script: Script, unit: Unit) -> None:
        if unit.kind == EMBEDDING:
            script.compute(self.model.embedding(self.shape, self.split).weight)
        elif unit.kind == HEAD:
            script.compute(self.model.head(self.shape, self.split).weight)
        else:
            for block in reversed(self.blocks(unit.layer)):
                work = _scaled(block.weight, self.load if block.name == "experts" else 1.0)
                script.compute(work, block=_shown(block))

    def _gather(self, script: Script, *, beside: bool = False) -> None:
        if self._gathers:
            script.collective("all_gather", "tp", self._n, beside=beside)

    def _leave(self, script: Script, *, beside: bool = False) -> None:
        if self.split.tp > 1:
            kind = "reduce_scatter" if self._gathers else "all_reduce"
            script.collective(kind, "tp", self._n, beside=beside)

    def _cross_entropy(self, script: Script) -> None:
        for _ in range(_LOSS_REDUCTIONS if self.split.tp > 1 else 0):
            script.collective("all_reduce", "tp", _LOSS_BYTES * self.split.tokens)

    def _route(self, script: Script, *, back: bool) -> None:
        """Write the all-to-all that brings tokens to their experts, or `back`."""
        if self.split.ep > 1:
            size = expert_all_to_all_bytes(self.shape, self.split, width=self.width)
            kind = "all_to_all"
            if self.skewed:
                kind = "from_skewed" if back else "to_skewed"
            script.collective(kind, "ep", size)

    def _attention(self, script: Script, work: Work, core: float, *, backward: bool) -> None:
        """Write attention, whose `core` takes so many seconds: a ring hides only behind that."""
        d = self.split.cp
        if d == 1:
            script.compute(work, block="attention")
        elif self.context == "ulysses":
            self._ulysses(script, work)
        else:
            size = context_ring_bytes(self.shape, self.split, width=self.width)
            share = core / work.seconds if work.seconds else 0.0
            script.compute(_scaled(work, 1 - share), block="attention projections")
            for step in range(d):
                if step < d - 1:
                    script.collective(EXCHANGE, "cp", size * (2 if backward else 1), beside=True)
                masked = 1.0 if step == 0 else _MASKED
                merge = self.model.merging(masked * self._merged(backward=backward))
                script.compute(_scaled(work, share / d) + merge, block=f"attention {step}")
                script.join()

    def _merged(self, *, backward: bool) -> float:
        """Return the entries that a step of the ring adds up: outputs, or gradients of q, k, v."""
        tokens = self.split.tokens
        if not backward:
            return tokens * value_width(self.shape) / self.split.tp
        keys = context_ring_bytes(self.shape, self.split, width=self.width) / self.width
        return tokens * score_width(self.shape) / self.split.tp + keys

    def _ulysses(self, script: Script, work: Work) -> None:
        sizes = {
            tensor: ulysses_bytes(self.shape, self.split, width=self.width, tensor=tensor)
            for tensor in ("q", "k", "v", "o")
        }
        for tensor in ("q", "k", "v"):
            script.collective("all_to_all", "cp", sizes[tensor])
        script.compute(work, block="attention")
        script.collective("all_to_all", "cp", sizes["o"])


def _never_empty(script: Script) -> tuple[Piece, ...]:
    """Return the pieces of a script; one of no time where it has no compute, for what waits."""
    if not any(piece.kind == COMPUTE for piece in script.pieces):
        script.pieces.append(Piece(script.unit, script.name, script.layer))
    return tuple(script.pieces)


def _shown(block: Block) -> str:
    return block.name if block.name not in (EMBEDDING, HEAD) else ""


def _scaled(work: Work, factor: float) -> Work:
    return Work(work.seconds * factor, work.flops * factor, work.traffic * factor)
