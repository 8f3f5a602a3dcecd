"""
Tokens on their way to experts and back, as work items.

An all-to-all before routed experts and one after, forward and backward. Experts that tensor
parallelism divides meet all copies of tokens under Megatron: gathered behind the first all-to-all,
reduced in front of the second (token_dispatcher.py of Megatron-Core). Shared experts may run during
the all-to-alls: their first products during the one before, the last during the one after
(shared_experts.py there); in the backward the other way round.
"""

from __future__ import annotations

import msgspec

from commsim.models import NOTHING, GpuWork, ModelShape, Split, expert_all_to_all_bytes
from commsim.workload.training.work_items import WorkList, scaled

__all__ = ["ExpertRouting"]


class ExpertRouting(msgspec.Struct, frozen=True):
    """Writes a layer's routed experts on a rank that gets `load` times the mean of tokens.

    `skewed`: not all ranks get the mean. `copied`: experts are divided, and meet all copies.
    """

    shape: ModelShape
    split: Split
    width: int
    load: float
    skewed: bool
    copied: bool

    def write(
        self,
        work_list: WorkList,
        work: GpuWork,
        *,
        shared: GpuWork = NOTHING,
        backward: bool = False,
    ) -> None:
        """Write the experts' `work` between the all-to-alls, and `shared` beside these."""
        first = 2 / 3 if self.shape.gated else 1 / 2
        before = 1 - first if backward else first
        self._route(work_list, scaled(shared, before), back=backward, dispatch=not backward)
        size = round(self._bytes(dispatch=False) * self.split.tp * self.load)
        if self.copied:
            work_list.collective("all_gather", "tp", size)
        work_list.compute(scaled(work, self.load), block="experts")
        if self.copied:
            work_list.collective("reduce_scatter", "tp", size)
        self._route(work_list, scaled(shared, 1 - before), back=not backward, dispatch=False)

    def _bytes(self, *, dispatch: bool) -> int:
        return expert_all_to_all_bytes(self.shape, self.split, width=self.width, dispatch=dispatch)

    def _route(self, work_list: WorkList, shared: GpuWork, *, back: bool, dispatch: bool) -> None:
        """Write the all-to-all that brings tokens to their experts, or `back`.

        The `dispatch` of a forward may be narrower than what its backward and the way back send.
        """
        beside = shared.seconds > 0
        if self.split.ep > 1:
            kind = "all_to_all"
            if self.skewed:
                kind = "from_skewed" if back else "to_skewed"
            work_list.collective(kind, "ep", self._bytes(dispatch=dispatch), beside=beside)
        if beside:
            work_list.compute(shared, block="shared")
            work_list.join()
