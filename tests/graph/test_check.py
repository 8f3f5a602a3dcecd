"""What a graph must be before it may run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.errors import ScenarioError
from commsim.graph import CopyDirection, Graph, GraphBuilder, Group, Messages
from commsim.graph.check import validate


def chain() -> Graph:
    build = GraphBuilder()
    world = build.group("world", [0, 1])
    build.lane(0), build.lane(1)
    first = build.compute(0, 5, name="a")
    build.compute(1, 5, name="b", after=[first])
    build.collective(0, world, "broadcast", 8, stream="s", root=0)
    return build.build()


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"lane": ints(0, 1, 2)}, r"a lane index is outside 0\.\.1"),
        ({"stream": ints(0, -1, 0)}, "a stream index is outside"),
        ({"name": ints(0, 1, 9)}, "a name index is outside"),
        ({"dep_op": ints(3)}, r"a dependency index is outside 0\.\.2"),
        ({"dep_delay": ints(-1)}, "'dep_delay' holds -1; it goes from 0"),
        ({"lane_offset": ints(0, -5)}, "'lane_offset' holds -5"),
        ({"lane_rank": ints(0, 0)}, "two lanes have the same rank"),
        ({"duration": ints(5, -1, -1)}, "rank 1: b has no duration"),
        ({"layer": ints(0, 0)}, "column 'layer' does not have one entry per op"),
        ({"groups": (Group("world", (0, 0)),)}, "'world': ranks must be distinct"),
        ({"groups": (Group("world", ()),)}, "'world': ranks must be distinct and not empty"),
        ({"stage": ints(0, 2**63 - 1, 0)}, "'stage' holds 9223372036854775807; it goes from -1"),
        ({"multiplicity": ints(1, 2**62)}, "'multiplicity' holds"),
        ({"duration": ints(5, 5, -2)}, "'duration' holds -2"),
        ({"flops": np.array([np.nan, 0, 0])}, "'flops' holds what is no amount of work"),
        ({"traffic": np.array([0, 1e31, 0])}, "'traffic' holds what is no amount of work"),
        ({"alloc": ints(2**62, 2**62, 2**62)}, "'alloc' comes to more than 4 EiB"),
        ({"batch": ints(7, -1, -1)}, "'batch' is of calls"),
        ({"window": ints(2, 0, -1, -1).reshape(2, 2)}, "the window of rank 0 does not go from"),
        ({"window": ints(0, 1, -1, -1).reshape(2, 2)}, "the window of rank 0 does not go from"),
        ({"groups": (Group("world", (0, 2**63)),)}, "'world': has a rank that is no rank"),
        ({"groups": (Group("world", tuple(range(1, 40))),)}, r"15, 16\], and 23 more"),
        ({"groups": (Group("world", (1, 2)),)}, r"root 0 is not one of its ranks \[1, 2\]"),
    ],
)
def test_a_graph_that_does_not_fit_together_is_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        validate(replace(chain(), **columns))


@pytest.mark.parametrize("column", ["alloc", "free"])
def test_memory_of_4_eib_is_taken(column: str) -> None:
    validate(replace(chain(), **{column: ints(2**61, 2**61, 0)}))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"item": ints(-2)}, "a copy goes neither to the host nor from it"),
        ({"item": ints(2)}, "a copy goes neither to the host nor from it"),
        ({"size": ints(-1)}, "rank 0: copy to host has no duration"),
    ],
)
def test_a_copy_without_a_way_or_a_size_is_refused(columns: dict[str, Any], said: str) -> None:
    build = GraphBuilder()
    build.host_copy(build.lane(0), 8, way=CopyDirection.TO_HOST)
    with pytest.raises(ScenarioError, match=said):
        validate(replace(build.build(), **columns))


def pair() -> Graph:
    build = GraphBuilder()
    world = build.group("world", [0, 1])
    build.lane(0), build.lane(1)
    build.send(0, 1, 8, group=world, stream="p"), build.recv(1, 0, 8, group=world, stream="p")
    for rank in range(2):
        build.collective(rank, world, "all_to_all_v", 8, stream="s", splits=(4, 4))
    return build.build()


@pytest.mark.parametrize(
    ("table", "columns", "said"),
    [
        ("messages", {"source": ints(7)}, "a send of rank 7 on group 'world', which it is not in"),
        ("messages", {"recv_op": ints(0)}, "a recv is not the op that its message names"),
        ("messages", {"recorded": ints(-2)}, "'recorded' has an entry outside"),
        ("messages", {"eager": ints(2)}, r"'eager' has an entry outside -1\.\.1"),
        ("messages", {"size": ints(-2)}, "a message of -2 bytes"),
        ("collectives", {"eager": ints(3)}, r"'eager' has an entry outside -1\.\.2"),
        ("collectives", {"eager": ints(-2)}, r"'eager' has an entry outside -1\.\.2"),
        ("collectives", {"size": ints(-2)}, "a collective of -2 bytes"),
        ("collectives", {"root": ints(1)}, "all_to_all_v on group 'world': has no root"),
        ("collectives", {"splits": (((0, 8),),)}, "its splits are not 2 x 2 sizes"),
        ("collectives", {"splits": (((0, 8), (-8, 0)),)}, "its splits are not 2 x 2 sizes"),
        ("collectives", {"splits": (((2**61, 2**61), (1, 0)),)}, "sizes of 4 EiB in all"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    table: str, columns: dict[str, Any], said: str
) -> None:
    graph = pair()
    damaged = replace(getattr(graph, table), **columns)
    with pytest.raises(ScenarioError, match=said):
        validate(replace(graph, **{table: damaged}))


def test_a_message_posted_by_the_op_of_another_is_refused() -> None:
    graph = pair()
    columns = {name: getattr(graph.messages, name) for name in Messages.__struct_fields__}
    twice = Messages(**{name: np.tile(column, 2) for name, column in columns.items()})
    with pytest.raises(ScenarioError, match="a send is not the op that its message names"):
        validate(replace(graph, messages=twice))


def test_a_recorded_collective_needs_no_root() -> None:
    graph = chain()
    rootless = replace(graph.collectives, root=ints(-1))
    validate(replace(graph, collectives=replace(rootless, recorded=ints(0))))
    with pytest.raises(ScenarioError, match="broadcast on group 'world': needs a root"):
        validate(replace(graph, collectives=rootless))


def test_two_ops_that_wait_for_each_other_are_named() -> None:
    build = GraphBuilder()
    build.lane(0), build.lane(1)
    first = build.compute(0, 1, name="hen")
    second = build.compute(1, 1, name="egg", after=[first])
    build.depend(first, second)
    with pytest.raises(ScenarioError, match="cycle through rank 0: hen; rank 1: egg"):
        build.build()


def test_an_op_that_waits_for_a_later_one_of_its_stream_is_a_cycle() -> None:
    build = GraphBuilder()
    build.lane(0)
    first = build.compute(0, 1, name="a")
    build.depend(first, build.compute(0, 1, name="b"))
    with pytest.raises(ScenarioError, match="cycle"):
        build.build()


def test_an_op_may_wait_for_a_later_one_of_another_stream() -> None:
    build = GraphBuilder()
    build.lane(0)
    first = build.compute(0, 1, name="a")
    build.depend(first, build.compute(0, 1, name="b", stream="other"), delay=4)
    graph = build.build()
    assert (graph.dep_op.tolist(), graph.dep_delay.tolist()) == ([1], [4])


def has_cycle(streams: list[int], edges: list[tuple[int, int]]) -> bool:
    """Whether dependencies and stream order leave no order: by repeated removal of what is free."""
    before = {op: {a for a, b in edges if b == op} for op in range(len(streams))}
    for op, stream in enumerate(streams):
        before[op] |= {k for k in range(op) if streams[k] == stream}
    left = set(before)
    while free := {op for op in left if not before[op] & left}:
        left -= free
    return bool(left)


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=7).flatmap(
        lambda streams: st.tuples(
            st.just(streams),
            st.lists(st.tuples(*[st.integers(0, len(streams) - 1)] * 2), max_size=8, unique=True),
        )
    )
)
def test_cycles_are_found_exactly_where_there_are_some(
    case: tuple[list[int], list[tuple[int, int]]],
) -> None:
    streams, edges = case
    build = GraphBuilder()
    build.lane(0)
    for stream in streams:
        build.compute(0, 1, name="x", stream=str(stream))
    for source, target in edges:
        build.depend(target, source)
    if has_cycle(streams, edges):
        with pytest.raises(ScenarioError, match="cycle"):
            build.build()
    else:
        assert len(build.build()) == len(streams)
