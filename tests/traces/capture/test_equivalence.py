"""Two ranks that do the same: what may differ between them, and what may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from commsim.traces.capture.axes import FoundAxes
from commsim.traces.capture.equivalence import difference, signature
from commsim.traces.capture.records import (
    CapturedCall,
    CapturedMemory,
    CapturedMessage,
    CapturedWork,
    GroupMade,
    Mark,
    Product,
    Record,
    Recording,
    Sync,
    Waited,
    WaitsFor,
)

GROUPS = (GroupMade((0, 1), "dp"), GroupMade((2, 3), "dp"), GroupMade((0, 2), "pp"),
          GroupMade((1, 3), "pp"))  # fmt: skip
AXES = FoundAxes.of(GROUPS, 4)
MM = Product("matmul", 4, 2, 3, 1, "bfloat16")


def a_rank(rank: int, *records: Record) -> Recording:
    return Recording(rank, 4, "2.9", GROUPS, ("compute", "side"), records, CapturedMemory())


def same(one: Sequence[Record], other: Sequence[Record]) -> bool:
    return difference(a_rank(0, *one), a_rank(1, *other), AXES) == ""


def call(number: int = 1, **more: Any) -> CapturedCall:
    given: dict[str, Any] = {
        "op": "all_reduce",
        "group": 0,
        "size": 8,
        "stream": 0,
        "internal": True,
    } | more
    return CapturedCall(id=number, **given)


def sent(**more: Any) -> CapturedMessage:
    given: dict[str, Any] = {
        "sends": True,
        "peer": 2,
        "group": 2,
        "size": 8,
        "stream": 0,
        "id": 1,
    } | more
    return CapturedMessage(**given)


def test_work_without_a_product_and_waits_of_the_host_are_no_difference() -> None:
    assert same([CapturedWork("add", 0, 1.0, 1), Sync(0)], [])
    assert same([CapturedWork("mm", 0, 1.0, 1, MM)], [CapturedWork("mm", 0, 2.0, 9, MM), Sync(-1)])


@pytest.mark.parametrize(
    "other",
    [
        CapturedWork("bmm", 0, 1.0, 1, MM),
        CapturedWork("mm", 1, 1.0, 1, MM),
        CapturedWork("mm", 0, 1.0, 1, Product("matmul", 4, 2, 5, 1, "bfloat16")),
    ],
)
def test_another_product_is_a_difference(other: CapturedWork) -> None:
    assert not same([CapturedWork("mm", 0, 1.0, 1, MM)], [other])


def test_numbers_of_calls_and_events_are_told_apart_and_not_compared() -> None:
    mine: list[Record] = [call(3), call(5), Waited(3, 0), Mark(7, 0), WaitsFor(7, 1)]
    assert same(mine, [call(30), call(50), Waited(30, 0), Mark(3, 0), WaitsFor(3, 1)])
    assert not same(mine, [call(30), call(50), Waited(50, 0), Mark(7, 0), WaitsFor(7, 1)])
    assert not same(mine, [call(3), call(5), Waited(3, 1), Mark(7, 0), WaitsFor(7, 1)])
    assert not same(mine, [call(3), call(5), Waited(3, 0), Mark(7, 0), WaitsFor(8, 1)])
    assert not same(mine, [call(3), call(5), Waited(3, 0), WaitsFor(7, 0), WaitsFor(7, 1)])


def test_a_group_counts_by_its_axis_and_a_root_by_its_place() -> None:
    assert same([call(root=0)], [call(group=1, root=2)])
    assert same([call(root=-1)], [call(group=1)])
    assert not same([call(root=0)], [call(group=1, root=3)])
    assert not same([call(root=-1)], [call(root=0)])
    assert not same([call()], [call(group=2)])


@pytest.mark.parametrize(
    "more",
    [{"op": "barrier"}, {"size": 9}, {"stream": 1}, {"internal": False}, {"dtype": "int8"},
     {"redop": "max"}],
)  # fmt: skip
def test_another_call_is_a_difference(more: dict[str, Any]) -> None:
    assert not same([call()], [call(1, **more)])


def test_a_message_counts_by_its_way_and_the_place_of_its_peer() -> None:
    assert same([sent()], [sent(peer=3, group=3)])
    for more in ({"sends": False}, {"peer": 1, "group": 3}, {"size": 9}, {"tag": 1},
                 {"peer": 1, "group": 0}):  # fmt: skip
        assert not same([sent()], [sent(**more)])


def test_a_difference_is_said_where_it_is() -> None:
    one = a_rank(0, Sync(0), call(), call(2, size=8))
    other = a_rank(2, call(group=1), call(2, size=16, group=1))
    assert difference(one, other, AXES) == (
        "record 1 is all_reduce dp 8 on rank 0, all_reduce dp 16 on rank 2."
    )
    assert difference(one, a_rank(2, call(group=1)), AXES) == ("rank 0 has 2 records, rank 2 1.")
    assert [entry[0] for entry in signature(one, AXES)] == ["all_reduce", "all_reduce"]
