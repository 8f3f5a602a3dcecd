"""The calls of an Execution Trace as a record: bytes, waits, the rank that calls name."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.traces.formats.execution_calls import record_of
from commsim.traces.formats.execution_trace import CommNode, ExecutionTrace
from commsim.traces.formats.records import Issued

NODE: dict[str, Any] = {
    "name": "allreduce", "op": "all_reduce", "record_function": 1, "sequence": 3, "group": "2",
    "elements": 6, "out_elements": 8, "itemsize": 4, "dtype": "float32", "splits": (), "peer": 1,
}  # fmt: skip
GROUPS = {"0": (0, 1, 2, 3), "2": (1, 3)}


def trace(*nodes: dict[str, Any], rank: int = 0, groups: Any = GROUPS) -> ExecutionTrace:
    comms = tuple(CommNode(**NODE | node) for node in nodes)
    return ExecutionTrace("x.json", "7", rank, comms, "1.0.1", groups)


def one(**node: Any) -> Issued:
    (found,) = record_of(trace(node)).calls
    return found


def test_a_call_has_bytes_and_global_ranks() -> None:
    assert one() == Issued(
        "all_reduce", sent=24, received=32, dtype="float32", group="2", ranks=(1, 3), peer=3,
        sequence=3, name="allreduce", blocking=True,
    )  # fmt: skip
    assert one(op="broadcast").root == 3
    assert [one(op="broadcast", peer=peer).root for peer in (-1, 0, 2)] == [-1, 1, 2]
    unknown = one(group="9")
    assert (unknown.group, unknown.ranks, unknown.peer) == ("", (), 1)


@pytest.mark.parametrize(("elements", "itemsize", "size"), [
    (0, 4, 0), (6, 1, 6), (6, 0, -1), (6, -1, -1), (-1, 4, -1),
])  # fmt: skip
def test_bytes_need_elements_and_their_bytes(elements: int, itemsize: int, size: int) -> None:
    assert one(elements=elements, itemsize=itemsize).sent == size


def test_splits_are_bytes_of_an_uneven_exchange() -> None:
    assert one(op="all_to_all_v", splits=(2, 4)).splits == (8, 16)
    assert one(op="all_to_all", splits=(2, 4)).splits == ()


def test_a_wait_is_of_its_sequence_number() -> None:
    wait = {"name": "wait", "op": ""}
    found = record_of(
        trace(wait | {"sequence": 9}, {"sequence": 0}, {"sequence": 4}, {"sequence": -1},
              wait | {"sequence": 0}, wait | {"sequence": -1})
    )  # fmt: skip
    assert [call.after for call in found.calls] == [(), None, None, None, (1,), ()]
    assert [call.blocking for call in found.calls[1:4]] == [False, True, False]


def test_a_wait_is_of_its_group_and_of_all_that_was_coalesced() -> None:
    wait = {"name": "wait", "op": ""}
    found = record_of(
        trace({"counter": "1"}, {"counter": "2"}, {"counter": "2"}, {"counter": "3"},
              wait | {"counter": "1"}, wait | {"counter": "2"}, wait | {"counter": "4"})
    )  # fmt: skip
    assert [call.after for call in found.calls[4:]] == [(0,), (1, 2), ()]
    assert [call.blocking for call in found.calls[:4]] == [False, False, False, True]


def test_calls_of_unknown_names_are_counted_and_init_is_none_of_them() -> None:
    found = record_of(trace({"name": "init", "op": ""}, {"name": "odd", "op": ""}, {}))
    assert len(found.calls) == 1
    assert found.notes == (
        "PyTorch Execution Trace 1.0.1: calls in order, without times and without the work between"
        " them.",
        "x.json: 1 calls have a name that is not known; left out.",
    )
    assert len(record_of(trace({"name": "init", "op": ""})).notes) == 1


def test_the_world_reaches_to_the_largest_rank() -> None:
    assert record_of(trace({})).world_size == 4
    assert record_of(trace({}, groups={})).world_size == 0


def test_the_rank_is_what_most_calls_of_the_world_name() -> None:
    """Of calls without a root: there the number is the rank's own."""
    own = {"group": "0", "peer": 2}
    other = {"group": "2", "peer": 0}  # a place in another group says nothing
    root = {"group": "0", "op": "broadcast", "peer": 1}
    sent = {"group": "0", "op": "send", "peer": 1}
    nodes = [own, own, other, other, other, root, root, root, sent, sent, sent]
    assert record_of(trace(*nodes, rank=-1)).rank == 2
    assert record_of(trace(*nodes, rank=0)).rank == 0
    assert record_of(trace(own | {"peer": 0}, rank=-1)).rank == 0
    assert record_of(trace(own | {"peer": 4}, own | {"peer": -1}, rank=-1)).rank == -1
    assert record_of(trace(own, rank=-1, groups={})).rank == -1
    assert record_of(trace(own | {"group": "unlisted"}, rank=-1)).rank == 2
