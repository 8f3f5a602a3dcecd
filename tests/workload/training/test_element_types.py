"""Collectives of a training step name the type of what they carry; its width is their bytes'."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.toy_cluster import training

from commsim.ops import element_bytes

REDUCING = ("all_reduce", "reduce_scatter")
KINDS: list[dict[str, Any]] = [
    {"kind": "ddp"},
    {"kind": "zero", "stage": 2},
    {"kind": "zero", "stage": 3},
    {"kind": "fsdp"},
    {"kind": "hsdp", "shard": 2},
]


def types(**settings: Any) -> dict[str, set[str]]:
    """Return the types of what is reduced and of what is gathered."""
    carried = training(4, **settings).graph.collectives
    found: dict[str, set[str]] = {"reduced": set(), "gathered": set()}
    for kind, dtype in zip(carried.kind, carried.dtype, strict=True):
        found["reduced" if kind in REDUCING else "gathered"].add(dtype)
    return found


@pytest.mark.parametrize("data", KINDS, ids=lambda data: str(data))
@pytest.mark.parametrize("gradients", ["bf16", "fp32"])
def test_gradients_are_reduced_in_their_own_type(data: dict[str, Any], gradients: str) -> None:
    found = types(data_parallel={**data, "gradients": gradients})
    assert found["reduced"] == {gradients}
    assert found["gathered"] <= {"bf16"}


def test_sizes_are_whole_numbers_of_elements() -> None:
    carried = training(4, data_parallel={"kind": "fsdp", "gradients": "fp32"}).graph.collectives
    for size, dtype in zip(carried.size.tolist(), carried.dtype, strict=True):
        assert size % element_bytes(dtype) == 0
