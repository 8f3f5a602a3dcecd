"""Attention on ranks that share a sequence, item by item: rings of each stack, and Ulysses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.models import GpuWork, ModelShape, Split
from commsim.workload.training.context_attention import ContextAttention
from commsim.workload.training.work_items import WorkList

SHAPE = ModelShape(
    layers=1, hidden=8, heads=4, kv_heads=2, head_dim=2, ffn=8, vocab=32, max_seq=12,
)  # fmt: skip


class Model:
    """Adding up takes a us for each entry, and 1000 more in a backward."""

    def __init__(self, ring: str) -> None:
        self.stack = SimpleNamespace(ring=ring)

    def merging(self, entries: float, *, backward: bool) -> GpuWork:
        return GpuWork(1e-6 * (entries + 1000 * backward))


def spelled(
    ring: str = "fused",
    context: str = "ring",
    *,
    backward: bool = False,
    took: float = 10,
    **how: Any,
) -> list[str]:
    """Return the items of attention of 10 us, 6 of them its core, on one of three ranks."""
    model: Any = Model(ring)
    made = WorkList()
    made.at(0, 0, "A")
    split = Split(1, 12, cp=3, **how)
    attention = ContextAttention(SHAPE, split, model, 2, context)
    attention.write(made, GpuWork(1e-6 * took), 0.6 * took * 1e-6, backward=backward)
    return [
        "+" * item.joins
        + (f"{item.name} {item.duration / 1e6:g}" if item.duration else f"{item.kind} {item.size}")
        + "*" * item.beside
        for item in made.items
    ]


def test_a_ring_passes_keys_and_values_on_beside_all_steps_but_the_last() -> None:
    """64 bytes: two for keys and values of 2 x 2 of each of 4 tokens; later steps add up 3/4."""
    assert spelled() == [
        "A attention projections 4", "exchange 64*", "A attention 0 34",
        "exchange 64*", "+A attention 1 26", "+A attention 2 26",
    ]  # fmt: skip
    assert spelled(backward=True) == [
        "A attention projections 4", "exchange 128*", "A attention 0 1066",
        "exchange 128*", "+A attention 1 1050", "+A attention 2 1050",
    ]  # fmt: skip
    assert spelled(tp=2)[2::2] == ["A attention 0 18", "+A attention 1 14"]
    assert spelled(tp=2, backward=True)[1:3] == ["exchange 64*", "A attention 0 1034"]


@pytest.mark.parametrize(("ring", "beside"), [("eager", "*"), ("compiled", "")])
def test_torch_gathers_for_every_head_and_passes_gradients_on_in_fp32(
    ring: str, beside: str
) -> None:
    joins = "+" if beside else ""
    assert spelled(ring) == [
        "A attention projections 4", f"all_gather 384{beside}", "A attention 0 34",
        f"{joins}A attention 1 26", "A attention 2 26",
    ]  # fmt: skip
    assert spelled(ring, backward=True) == [
        "A attention projections 4", f"all_gather 384{beside}", "A attention 0 1098",
        f"exchange 256{beside}", f"{joins}A attention 1 1074",
        f"exchange 256{beside}", f"{joins}A attention 2 1074", f"{joins}exchange 256",
    ]  # fmt: skip


def test_attention_of_no_time_still_adds_up() -> None:
    assert spelled(took=0) == [
        "exchange 64*", "A attention 0 32", "exchange 64*", "+A attention 1 24",
        "+A attention 2 24",
    ]  # fmt: skip


def test_ulysses_exchanges_heads_before_and_after() -> None:
    expected = ["all_to_all 64", "all_to_all 32", "all_to_all 32", "A attention 10",
                "all_to_all 64"]  # fmt: skip
    assert spelled(context="ulysses") == expected
    assert spelled(context="ulysses", backward=True) == expected
