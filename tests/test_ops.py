"""The vocabulary: every tool's name for an op or an element type means the one thing."""

from __future__ import annotations

import re

import pytest
from helpers.paths import ROOT

from commsim.errors import ScenarioError
from commsim.ops import (
    COLLECTIVES,
    ELEMENT_TYPES,
    NCCL_TESTS_TYPES,
    NCCL_TYPES,
    REDUCE_OPS,
    bus_factor,
    element_bytes,
    element_type,
    op_of,
    reduce_op_of,
)

BYTES = {
    "torch.bfloat16": 2, "c10::BFloat16": 2, "c10::Half": 2, "Float": 4, "Long": 8, "Byte": 1,
    "unsigned char": 1, "long int": 8, "half": 2, "f8e4m3": 1, "fp8_e5m2": 1, "bool": 1,
    "f32": 4, "u8": 1, "i64": 8,
    "Short": 2, "complex64": 8, "torch.complex128": 16, "Float8_e4m3fn": 1, "uint16": 2, "": 4,
}  # fmt: skip


@pytest.mark.parametrize(("name", "size"), BYTES.items())
def test_every_spelling_has_its_bytes(name: str, size: int) -> None:
    assert element_bytes(name) == size


def test_no_spelling_stands_for_two_types() -> None:
    seen: dict[str, str] = {}
    for each in ELEMENT_TYPES.values():
        for spelling in (each.name, *each.spellings):
            assert seen.setdefault(spelling, each.name) == each.name


def test_an_unknown_type_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ScenarioError, match="unknown element type 'bfloat15'.*bfloat16"):
        element_bytes("bfloat15")
    assert element_type("quaternion") is None


def test_torch_hands_some_types_to_nccl_as_others() -> None:
    as_nccl = {name: each.nccl for name, each in ELEMENT_TYPES.items()}
    assert as_nccl["bool"] == "uint8"
    assert as_nccl["complex64"] == "float32"
    assert as_nccl["int16"] is None


def test_types_of_nccl_and_nccl_tests_are_in_the_table() -> None:
    assert set(NCCL_TYPES) <= set(ELEMENT_TYPES)
    assert len(NCCL_TESTS_TYPES) == len(NCCL_TYPES)
    for ours, theirs in zip(NCCL_TYPES, NCCL_TESTS_TYPES, strict=True):
        known = element_type(theirs)
        assert known is not None
        assert known.name == ours


OPS = {
    "allreduce_coalesced_": "all_reduce", "c10d::_allgather_base_": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "AllGather": "all_gather",
    "alltoallv": "all_to_all_v",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter", "bcast": "broadcast",
    "all_gather_into_tensor_out": "all_gather", "isend": "send", "matmul": "",
}  # fmt: skip


@pytest.mark.parametrize(("name", "op"), OPS.items())
def test_ops_by_the_names_of_torch_nccl_and_param(name: str, op: str) -> None:
    assert op_of(name) == op


def test_reduce_ops_by_their_names() -> None:
    assert [reduce_op_of(name) for name in ("ReduceOp.SUM", "prod", "mulsum", "xor")] == [
        "sum", "product", "premul_sum", "",
    ]  # fmt: skip
    assert all(reduce_op_of(name) == name for name in REDUCE_OPS)


def test_bus_factors_are_those_of_nccl_tests() -> None:
    factors = {op: bus_factor(op, 8) for op in (*COLLECTIVES, "send_recv")}
    part = 7 / 8
    assert factors == {
        "all_reduce": 2 * part, "reduce": 1, "broadcast": 1, "scatter": part, "gather": part,
        "all_gather": part, "reduce_scatter": part, "all_to_all": part, "all_to_all_v": part,
        "barrier": 0, "send_recv": 1,
    }  # fmt: skip


def test_no_other_module_keeps_a_table_of_element_types() -> None:
    table = re.compile(r'"(?:float16|half|bfloat16)": ?\(?(?:"\w+", ?)?\d')
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "commsim").rglob("*.py"))
        if path.name != "ops.py" and table.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
