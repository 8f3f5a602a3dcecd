"""
Attention whose keys and values lie on several ranks (context parallelism), as work items.

Ring: keys and values go round d - 1 times, each time during attention's core on the block before;
backward with their gradients. Transformer Engine's runs so. torch's gathers all keys and values at
once during the first step (_AllGatherRotater, its default), and in the backward passes the
gradients of a step on during the next one, the last ones with nothing beside them
(_templated_ring_attention_backward of torch/distributed/tensor/experimental/_attention.py). Under
torch.compile nothing runs beside these: a traced collective is waited for at once
(_maybe_wrap_tensor of torch/distributed/_functional_collectives.py), and the compiler moves both in
front of the first use (reorder_for_locality; github pytorch/pytorch issue 174280).
Ulysses: all-to-alls of q, k, v and the output.
"""

from __future__ import annotations

import msgspec

from commsim.models import (
    ComputeModel,
    GpuWork,
    ModelShape,
    Split,
    context_ring_bytes,
    score_width,
    ulysses_bytes,
    value_width,
)
from commsim.workload.training.work_items import EXCHANGE, WorkList, scaled

__all__ = ["ContextAttention"]

_MASKED = 0.75
"""What of a later step's results there is under a causal mask: all queries meet half of the keys,
or half of the queries all, as each rank has an early and a late block (context_parallel.py of
github NVIDIA/TransformerEngine, which adds up partial outputs after each step, and partial
gradients of q, k and v in the backward)."""


class ContextAttention(msgspec.Struct, frozen=True):
    """Writes a layer's attention on one of the ranks that share a sequence."""

    shape: ModelShape
    split: Split
    model: ComputeModel
    width: int
    context: str

    def write(self, work_list: WorkList, work: GpuWork, core: float, *, backward: bool) -> None:
        """Write attention, whose `core` takes so many seconds: a ring hides only behind that."""
        if self.context == "ulysses":
            return self._ulysses(work_list, work)
        share = core / work.seconds if work.seconds else 0.0
        work_list.compute(scaled(work, 1 - share), block="attention projections")
        for step in range(self.split.cp):
            self._pass_on(work_list, step, backward=backward)
            masked = 1.0 if step == 0 else _MASKED
            merge = self.model.merging(masked * self._merged(backward=backward), backward=backward)
            part = scaled(work, share / self.split.cp)
            work_list.compute(part + merge, block=f"attention {step}")
            work_list.join()
        if self._torch and backward:
            work_list.collective(EXCHANGE, "cp", self._gradients)
        return None

    @property
    def _torch(self) -> bool:
        return self.model.stack.ring != "fused"

    @property
    def _beside(self) -> bool:
        """Whether the core runs while keys, values and gradients travel."""
        return self.model.stack.ring != "compiled"

    @property
    def _keys(self) -> int:
        """The bytes of a rank's keys and values as they travel."""
        return context_ring_bytes(self.shape, self.split, width=self.width, repeated=self._torch)

    @property
    def _gradients(self) -> int:
        """The bytes of their gradients, as torch passes them on: in fp32."""
        return self._keys // self.width * 4

    def _pass_on(self, work_list: WorkList, step: int, *, backward: bool) -> None:
        """Write what travels during a step of the core."""
        d = self.split.cp
        if not self._torch:
            if step < d - 1:
                size = self._keys * (2 if backward else 1)
                work_list.collective(EXCHANGE, "cp", size, beside=True)
            return
        if step == 0:
            work_list.collective("all_gather", "cp", d * self._keys, beside=self._beside)
        elif backward:
            work_list.collective(EXCHANGE, "cp", self._gradients, beside=self._beside)

    def _merged(self, *, backward: bool) -> float:
        """Return the entries that a step of the ring adds up: outputs, or gradients of q, k, v."""
        tokens = self.split.tokens
        if not backward:
            return tokens * value_width(self.shape) / self.split.tp
        keys = context_ring_bytes(self.shape, self.split, width=1, repeated=self._torch)
        return tokens * score_width(self.shape) / self.split.tp + keys

    def _ulysses(self, work_list: WorkList, work: GpuWork) -> None:
        sizes = {
            tensor: ulysses_bytes(self.shape, self.split, width=self.width, tensor=tensor)
            for tensor in ("q", "k", "v", "o")
        }
        for tensor in ("q", "k", "v"):
            work_list.collective("all_to_all", "cp", sizes[tensor])
        work_list.compute(work, block="attention")
        work_list.collective("all_to_all", "cp", sizes["o"])
