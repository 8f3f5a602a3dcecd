"""PyTorch Execution Traces, node by node: what a call was given, by position."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commsim.traces.formats.execution_trace import (
    CommNode,
    ExecutionTrace,
    is_execution_trace,
    read_execution_trace,
)
from commsim.traces.formats.files import Document

COMMS = "record_param_comms"


def tensor(elements: int, itemsize: int = 4, name: int = 1) -> list[Any]:
    """[tensor id, storage id, offset, elements, bytes per element, device]."""
    return [name, 2, 0, elements, itemsize, "cuda:0"]


def node(
    name: str, inputs: list[Any], outputs: Any = (), types: Any = (), rf_id: int = 1
) -> dict[str, Any]:
    return {
        "name": name, "rf_id": rf_id, "inputs": inputs, "outputs": list(outputs),
        "input_types": list(types),
    }  # fmt: skip


def read(*nodes: dict[str, Any]) -> ExecutionTrace:
    data = {"schema": "1.0.1", "pid": 77, "nodes": list(nodes)}
    return read_execution_trace(Document("rank3.json", json.dumps(data).encode()))


def one(*nodes: dict[str, Any]) -> CommNode:
    (found,) = read(*nodes).comms
    return found


def test_schema_and_nodes_make_one() -> None:
    assert is_execution_trace(b'{"schema": "1", "nodes": []}')
    assert not is_execution_trace(b'{"nodes": []}')
    assert not is_execution_trace(b'{"schema": "1"}')


def test_a_recorded_call_by_position() -> None:
    inputs = [[tensor(6), tensor(4, name=5)], [9], ["dp", "x"], 5, "allreduce", [], []]
    types = ["GenericList[Tensor(float), Tensor(float)]", "Int"]
    found = read(node(COMMS, inputs, [[tensor(10)]], types, rf_id=3))
    assert (found.pid, found.rank, found.schema, found.library) == ("77", 3, "1.0.1", "nccl")
    assert found.comms == (
        CommNode(
            name="allreduce", op="all_reduce", record_function=3, sequence=9, group="dp",
            elements=10, out_elements=10, itemsize=4, dtype="float32", splits=(), peer=5,
            counter="dp",
        ),
    )  # fmt: skip
    assert not found.comms[0].is_wait


def test_a_call_and_its_wait_share_what_counts_them() -> None:
    """Schema 1.1.1 names the group of a wait, and counts messages apart; 1.0.1 does neither."""
    work = [
        one(node(COMMS, given)).work
        for given in (
            [[tensor(6)], [9, False], ["dp", "x"], 5, "allreduce", []],
            [[9, False], ["dp", "x"], 5, "wait", []],
            [[tensor(6)], [9, True], ["dp", "x"], 5, "send", []],
            [[tensor(6)], 9, 94594108284448, 5, "allreduce", []],
            [9, 0, 5, "wait", []],
        )
    ]
    assert work == [("dp", 9), ("dp", 9), ("dp messages", 9), ("", 9), ("", 9)]


def test_what_is_nested_is_read_as_what_is_flat() -> None:
    """Schemas from 1.0.2 on: values and types apart; rf_id among the attributes."""
    values = [[tensor(6)], 9, "dp", 0, "allreduce", []]
    nested = {
        "name": COMMS, "inputs": {"values": values, "types": ["Tensor(float)"]},
        "outputs": {"values": [[tensor(6)]]}, "attrs": [7, {"name": "x"}, {"name": "rf_id",
        "value": 1}],
    }  # fmt: skip
    flat = node(COMMS, values, [[tensor(6)]], ["Tensor(float)"], rf_id=1)
    assert one(nested) == one(flat)
    assert one(flat).record_function == 1


def test_a_wait_has_no_tensors() -> None:
    found = one(node(COMMS, [[4], "dp", 2, "wait", []]))
    assert (found.name, found.sequence, found.group, found.peer) == ("wait", 4, "dp", 2)
    assert found.is_wait
    assert (found.elements, found.out_elements, found.itemsize, found.dtype) == (-1, -1, -1, "")
    assert one(node(COMMS, [4, "dp", 2, "wait"])).is_wait  # and nothing behind its name


def test_calls_are_in_the_order_of_their_numbers_and_what_is_no_call_is_left_out() -> None:
    def given(name: object, rf_id: int) -> dict[str, Any]:
        return node(COMMS, [[tensor(1)], 0, "0", 0, name], rf_id=rf_id)

    found = read(given("allreduce", 8), given("broadcast", 2), given(5, 1), given("allgather", 5),
                 node(COMMS, [[tensor(1)], 0, "0", 0], rf_id=9))  # fmt: skip
    assert [call.name for call in found.comms] == ["broadcast", "allgather", "allreduce"]


@pytest.mark.parametrize(
    ("splits", "op", "kept"),
    [([2, 4], "all_to_all_v", (2, 4)), ([], "all_to_all", ()), ("2, 4", "all_to_all", ())],
)
def test_splits_are_the_input_after_the_name(splits: object, op: str, kept: Any) -> None:
    inputs = [[tensor(6)], 0, "0", 0, "all_to_allv", splits, [9]]
    assert (one(node(COMMS, inputs)).op, one(node(COMMS, inputs)).splits) == (op, kept)
    assert one(node(COMMS, inputs[:5])).splits == ()


def test_bytes_of_an_element_are_the_tensors_own_else_those_of_the_type() -> None:
    def given(itemsize: int, types: list[str]) -> tuple[int, str]:
        call = one(node(COMMS, [[tensor(6, itemsize)], 0, "0", 0, "allreduce"], types=types))
        return call.itemsize, call.dtype

    assert given(2, ["Tensor(c10::BFloat16)"]) == (2, "bfloat16")
    assert given(1, ["Tensor(float)"]) == (1, "float32")
    assert given(0, ["Tensor(float)"]) == (4, "float32")
    assert given(0, ["Int"]) == (-1, "")


def test_tensors_lie_in_lists_three_deep() -> None:
    def counted(value: object) -> int:
        return one(node(COMMS, [value, 0, "0", 0, "allreduce"])).elements

    assert counted(tensor(6)) == 6
    assert counted([[[tensor(6), tensor(1)], [tensor(2)]]]) == 9
    assert counted([[[[tensor(6)]]]]) == -1
    assert counted([tensor(6)[:5]]) == -1  # a field is missing
    assert counted([tensor(0)]) == 0
    assert counted([]) == counted("x") == -1


def test_groups_by_every_name_that_they_have() -> None:
    listed = [
        {"pg_name": "0", "backend_id": 12, "uid": "a", "ranks": [], "group_size": 3},
        {"pg_name": "1", "ranks": [0, 2]},
        {"pg_name": "one", "ranks": [], "group_size": 1},
        {"pg_name": "none", "ranks": [], "group_size": 0},
        {"pg_name": "many", "ranks": [], "group_size": 1_000_001},
    ]
    init = node("## process_group:init ##", [json.dumps(listed)])
    whole = {"0": (0, 1, 2), "12": (0, 1, 2), "a": (0, 1, 2), "1": (0, 2), "one": (0,)}
    assert read(init).groups == whole
    assert read(node("another", [json.dumps(listed)])).groups == {}
    cut = json.dumps(listed[:2] + listed[:1])[:-30]  # torch cuts long texts
    del whole["one"]
    assert read(node("## process_group:init ##", [cut])).groups == whole
    assert read(node("## process_group:init ##", [17])).groups == {}
    assert read(node("## process_group:init ##", ["[{"])).groups == {}


def c10d(name: str, *inputs: object, types: Any = ()) -> CommNode:
    return one(node(f"c10d::{name}", list(inputs), types=types))


def test_c10d_ops_say_what_gloo_was_asked_for() -> None:
    """The output comes first in those of a base tensor and those that gather or scatter."""
    found = c10d("allreduce_", [tensor(6)], 12, types=["GenericList[Tensor(float)]"])
    assert (found.name, found.op, found.sequence, found.group) == (
        "allreduce",
        "all_reduce",
        -1,
        "",
    )
    assert (found.elements, found.out_elements, found.itemsize) == (6, 6, 4)
    assert (found.dtype, found.peer) == ("float32", -1)
    for name in ("allgather_", "_allgather_base_", "gather_"):
        found = c10d(name, [tensor(12, 2)], [tensor(6)])
        assert (found.elements, found.out_elements, found.itemsize) == (6, 12, 4), name
    found = c10d("reduce_scatter_", [tensor(6)], [tensor(12)])
    assert (found.elements, found.out_elements) == (12, 6)
    found = c10d("scatter_", [tensor(6)], [tensor(12)])
    assert (found.elements, found.out_elements) == (12, 6)
    found = c10d("alltoall_base_", tensor(6), tensor(12))
    assert (found.elements, found.out_elements) == (12, 6)
    found = c10d("alltoall_", [tensor(6)], [tensor(12)])
    assert (found.elements, found.out_elements) == (6, 12)
    assert read(node("c10d::allreduce_", [[tensor(6)]])).library == "gloo"


def test_of_a_gathering_whose_one_side_is_empty_the_other_stands() -> None:
    found = c10d("gather_", [], [tensor(6)])
    assert (found.elements, found.out_elements) == (6, -1)
    found = c10d("gather_", [tensor(6)], [])
    assert (found.elements, found.out_elements) == (6, 6)
    found = c10d("barrier", [tensor(1)])
    assert (found.op, found.elements, found.out_elements) == ("barrier", 1, 1)


def test_c10d_messages_have_their_peer() -> None:
    found = c10d("send", [tensor(6)], 5, 0, types=["", "Tensor(float)"])
    assert (found.op, found.peer, found.elements, found.dtype) == ("send", 5, 6, "float32")
    assert c10d("recv_", [tensor(6)], 3).peer == 3
    assert c10d("recv_", [tensor(6)]).peer == -1
    assert c10d("broadcast_", [tensor(6)], 3).peer == -1


def test_without_calls_nothing_tells_the_library() -> None:
    found = read(node("c10d::wait_for_it", [1]), node("c10d::allreduce_", []))
    assert (found.comms, found.library) == ((), "")
