"""Which tensors of a unit sharded data parallelism gathers, and where it pads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.workload.training import sharded
from commsim.workload.training.sharded import Sharded
from commsim.workload.training.stages import HEAD, LAYER, Unit


@pytest.mark.parametrize(
    ("recompute", "kind", "again", "forward", "sizes"),
    [
        ("full", LAYER, True, False, (1, 2)),
        ("full", LAYER, True, True, (1,)),
        ("none", LAYER, True, False, (1,)),
        ("selective", LAYER, True, False, (1,)),
        ("full", HEAD, True, False, (1,)),
        ("full", LAYER, False, False, (1,)),
    ],
)
def test_only_a_layer_that_runs_again_in_full_gathers_for_its_second_forward(
    recompute: str,
    kind: str,
    again: bool,
    forward: bool,
    sizes: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharded, "gathered", lambda *_, expert: (1,))
    monkeypatch.setattr(sharded, "gathered_again", lambda *_, expert: (2,))
    plan = SimpleNamespace(section=SimpleNamespace(recompute=recompute))
    of: Any = SimpleNamespace(plan=plan, stack=None)
    place: Any = SimpleNamespace(forward=forward)
    found = Sharded._gathers_of(of, place, Unit(kind, 0, (), again), expert=False)
    assert found == sizes


@pytest.mark.parametrize(("entries", "padded"), [(0, 0), (1, 4), (4, 4), (5, 8), (8, 8), (9, 12)])
def test_entries_are_padded_to_whole_shards(entries: int, padded: int) -> None:
    assert Sharded._padded(entries, 4) == padded
