"""What recordings of ranks become: waits of streams, events and the program, roles, memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from commsim.errors import TraceError
from commsim.graph import HOST_STREAM, Device, Graph, Phase
from commsim.traces.capture.assemble import assemble, op_name, roles_of
from commsim.traces.capture.axes import FoundAxes
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

PAIR = (GroupMade((0, 1), "dp"),)
STREAMS = ("compute", "side", "third")


def recording(
    *records: Record, rank: int = 0, world: int = 2, groups: tuple[GroupMade, ...] = PAIR,
    memory: CapturedMemory = CapturedMemory(), notes: tuple[str, ...] = (),  # noqa: B008
) -> Recording:  # fmt: skip
    return Recording(rank, world, "2.9", groups, STREAMS, records, memory, notes=notes)


def work(name: str, stream: int = 0, **more: Any) -> CapturedWork:
    return CapturedWork(name, stream, 1e6, 64, **more)


def call(number: int, *, internal: bool, op: str = "all_reduce", stream: int = 0,
         **more: Any) -> CapturedCall:  # fmt: skip
    return CapturedCall(op, 0, 256, stream, number, internal, **more)


def on_gpu(graph: Graph) -> list[int]:
    """Return the ops of the first lane that the program issues."""
    return np.flatnonzero((graph.lane == 0) & (graph.device == Device.CUDA)).tolist()


def needs(graph: Graph) -> dict[str, set[str]]:
    """Return what each op of the first lane waits for, itself or by its host, by name."""

    def waited(op: int) -> set[str]:
        found: set[str] = set()
        for on in graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist():
            found |= {graph.op_name(on)} if graph.device[on] == Device.CUDA else waited(on)
        return found

    return {graph.op_name(op): waited(op) for op in on_gpu(graph)}


def stream_of(graph: Graph) -> dict[str, str]:
    return {graph.op_name(op): graph.streams[graph.stream[op]] for op in on_gpu(graph)}


def test_an_event_holds_what_its_stream_held_when_it_was_recorded() -> None:
    graph = assemble({0: recording(
        work("a"), Mark(1, 0), work("b"), WaitsFor(1, 1), work("c", 1), work("d", 1),
        WaitsFor(9, 2), work("e", 2),
    )})  # fmt: skip
    assert needs(graph) == {"a": set(), "b": set(), "c": {"a"}, "d": set(), "e": set()}
    assert stream_of(graph) == {"a": "compute", "b": "compute", "c": "side", "d": "side",
                                "e": "third"}  # fmt: skip


def test_an_event_holds_what_its_stream_still_waits_for() -> None:
    """Nothing runs on the second stream between its wait and its own event."""
    graph = assemble({0: recording(
        work("a"), Mark(1, 0), WaitsFor(1, 1), Mark(2, 1), WaitsFor(2, 2), work("c", 2),
    )})  # fmt: skip
    assert needs(graph)["c"] == {"a"}


@pytest.mark.parametrize(
    ("stream", "waited"), [(-1, {"a", "b"}), (0, {"a"}), (1, {"b"}), (2, set())]
)
def test_what_the_program_waits_for_holds_whatever_it_issues_then(
    stream: int, waited: set[str]
) -> None:
    graph = assemble({0: recording(
        work("a"), work("b", 1), Sync(stream), work("c", 2), work("d", 2), work("e", 1), work("f"),
    )})  # fmt: skip
    assert needs(graph) == {"a": set(), "b": set(), **dict.fromkeys("cdef", waited)}


def test_each_wait_of_the_program_holds_what_comes_after_it() -> None:
    graph = assemble({0: recording(
        work("a"), Sync(-1), work("b", 1), Sync(1), work("c"), work("d"),
    )})  # fmt: skip
    assert needs(graph) == {"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a", "b"}}


def test_the_program_issues_every_op_from_where_it_last_waited() -> None:
    """Its own op is the only thing that each waits for from there on, with calls and messages."""
    graph = assemble({0: recording(
        work("a"), call(1, internal=True), Sync(0), work("b", 1), call(2, internal=False),
    )})  # fmt: skip
    host = np.flatnonzero(graph.device == Device.CPU).tolist()
    assert [graph.op_name(op) for op in host] == ["step begins", "host waits for GPU"]
    assert {graph.streams[graph.stream[op]] for op in host} == {HOST_STREAM}
    issued = [
        [on for on in graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]] if on in host]
        for op in range(len(graph))
    ]
    assert issued == [[], [0], [0], [0], [3], [3]]


def test_a_call_on_the_callers_stream_is_one_op_of_it() -> None:
    graph = assemble({0: recording(work("a"), call(1, internal=False), work("b"))})
    (name,) = set(stream_of(graph)) - {"a", "b"}
    assert stream_of(graph)[name] == "compute"
    assert needs(graph) == {"a": set(), name: set(), "b": set()}


def test_an_internal_call_waits_for_its_caller_who_goes_on_until_told_to_wait() -> None:
    graph = assemble({0: recording(
        work("a"), work("x", 1), Mark(1, 1), WaitsFor(1, 0), call(1, internal=True), work("b"),
        Waited(1, 0), Waited(7, 0), work("c"),
    )})  # fmt: skip
    (name,) = set(stream_of(graph)) - {"a", "b", "c", "x"}
    assert stream_of(graph)[name] == "dp collectives"
    assert needs(graph) == {"a": set(), "x": set(), name: {"a", "x"}, "b": {"x"}, "c": {name}}


def test_collectives_carry_what_was_recorded() -> None:
    tagged: dict[str, Any] = {"phase": int(Phase.BACKWARD), "stage": 3, "microbatch": 2}
    graph = assemble({0: recording(
        call(1, internal=True, dtype="float32", redop="sum", **tagged),
        work("a", **tagged),
    )})  # fmt: skip
    table = graph.collectives
    assert (table.kind, table.size.tolist(), table.dtype, table.redop) == (
        ("all_reduce",), [256], ("float32",), ("sum",),
    )  # fmt: skip
    for op in on_gpu(graph):
        assert (graph.phase[op], graph.step[op], graph.stage[op], graph.microbatch[op]) == (
            Phase.BACKWARD, 0, 3, 2,
        )  # fmt: skip


@pytest.mark.parametrize(("root", "roots"), [(0, [0, 2]), (1, [1, 3])])
def test_a_root_is_the_rank_at_the_same_place_of_each_group(root: int, roots: list[int]) -> None:
    """Rank 0 alone is recorded; ranks that a root tells apart have lanes of their own."""
    groups = (GroupMade((0, 1), "dp"), GroupMade((2, 3), "dp"))
    one = recording(call(1, internal=True, op="broadcast", root=root), world=4, groups=groups)
    graph = assemble({0: one})
    assert graph.collectives.root.tolist() == roots
    assert graph.lane_rank.tolist() == [0, 1, 2, 3]


def test_ranks_that_do_the_same_are_one_lane() -> None:
    graph = assemble({0: recording(call(1, internal=True))})
    assert (graph.lane_rank.tolist(), graph.multiplicity.tolist()) == ([0], [2])


def test_memory_of_communication_counts_at_the_next_op_once() -> None:
    graph = assemble({0: recording(
        work("a", alloc=1, free=2), call(1, internal=True, alloc=10, free=20),
        call(2, internal=True, alloc=100, free=200), work("b", alloc=3, free=5), work("c"),
    )})  # fmt: skip
    at = {graph.op_name(op): op for op in range(len(graph))}
    assert [int(graph.alloc[at[name]]) for name in "abc"] == [1, 113, 0]
    assert [int(graph.free[at[name]]) for name in "abc"] == [2, 225, 0]


def message(sends: bool, peer: int, number: int, **more: Any) -> CapturedMessage:
    return CapturedMessage(sends, peer, 0, 8, 0, number, **more)


def exchange(batch: tuple[int, int]) -> Mapping[int, Recording]:
    """Return two ranks that send each other a message."""
    return {
        rank: recording(
            work("a"),
            *(
                message((way + rank) % 2 == 0, 1 - rank, 1 + way, batch=batch[way])
                for way in range(2)
            ),
            Waited(1, 0),
            work("b"),
            rank=rank,
        )
        for rank in range(2)
    }


def test_messages_go_between_the_places_of_a_group() -> None:
    graph = assemble(exchange((-1, -1)))
    table = graph.messages
    found = zip(table.source.tolist(), table.target.tolist(), table.size.tolist(), strict=True)
    assert sorted(found) == [(0, 1, 8), (1, 0, 8)]
    assert graph.lane_rank.tolist() == [0, 1]
    assert "dp 0-1" in graph.streams
    assert set(graph.batch.tolist()) == {-1}


@pytest.mark.parametrize(("batches", "sizes"), [((0, 0), [2]), ((0, 1), [1, 1]), ((4, -1), [1])])
def test_messages_issued_as_one_are_a_batch(batches: tuple[int, int], sizes: list[int]) -> None:
    graph = assemble(exchange(batches))
    mine = [b for b in graph.batch[graph.lane == 0].tolist() if b >= 0]
    assert sorted(mine.count(b) for b in set(mine)) == sizes
    assert "dp messages" in graph.streams
    assert ("dp 0-1" in graph.streams) == (-1 in batches)


STAGES = (GroupMade((0, 1), "dp"), GroupMade((2, 3), "dp"), GroupMade((0, 2), "pp"),
          GroupMade((1, 3), "pp"))  # fmt: skip


def stage(rank: int) -> Recording:
    """Return a rank of two stages that sends to, or receives from, the other one."""
    peer = (rank + 2) % 4
    group = 2 + rank % 2
    return recording(
        CapturedMessage(rank < 2, peer, group, 8, 0, 1), rank=rank, world=4, groups=STAGES
    )


@pytest.mark.parametrize(
    ("known", "roles"),
    [((0, 2), [0, 0, 2, 2]), ((0, 1, 2), [0, 1, 2, 2]), ((1, 3), [1, 1, 3, 3]),
     ((0, 1, 2, 3), [0, 1, 2, 3])],
)  # fmt: skip
def test_a_rank_does_as_the_nearest_recorded_one_below_it_at_its_place(
    known: tuple[int, ...], roles: list[int]
) -> None:
    axes = FoundAxes.of(STAGES, 4)
    assert roles_of({rank: stage(rank) for rank in known}, axes).tolist() == roles


def test_a_place_that_nobody_recorded_is_refused() -> None:
    with pytest.raises(TraceError, match=r"rank 2: its part was not captured.*groups of pp\."):
        assemble({0: stage(0)})


def test_ranks_that_made_different_groups_are_refused() -> None:
    other = recording(rank=1, groups=(GroupMade((1, 0), "dp"),))
    with pytest.raises(TraceError, match="ranks 0 and 1 made different process groups"):
        assemble({0: recording(work("a")), 1: other})


@pytest.mark.parametrize(
    ("product", "name"),
    [
        (None, "aten::mm"),
        (Product("other", 0, 0, 0, 0, "bfloat16"), "aten::mm"),
        (Product("matmul", 1, 2, 3, 1, "bfloat16"), "aten::mm 1x3x2 bfloat16"),
        (Product("matmul", 4, 2, 3, 2, "tf32"), "aten::mm 4x3x2 x2 tf32"),
        (Product("attention", 4, 2, 3, 8, "float16", True), "aten::mm 4x3x2 x8 float16 causal"),
    ],
)
def test_the_name_of_a_product_tells_its_shape(product: Product | None, name: str) -> None:
    assert op_name(work("aten::mm", product=product)) == name


def test_what_is_known_besides_the_ops() -> None:
    """Rank 0 stands for 0 and 1, rank 2 for 2 and 3; work done again is no work of the model."""
    mm = Product("matmul", 4, 2, 3, 1, "bfloat16")
    memory = CapturedMemory(1, 2, 3, 4, 5)
    first = recording(
        *stage(0).records, CapturedWork("mm", 0, 10.0, 1, mm),
        CapturedWork("mm", 0, 100.0, 1, mm, again=True), world=4, groups=STAGES, memory=memory,
        notes=("one",),
    )  # fmt: skip
    second = recording(
        *stage(2).records, CapturedWork("x", 0, 1000.0, 1), work("mul", launches=3), rank=2,
        world=4, groups=STAGES, notes=("two",),
    )  # fmt: skip
    meta = assemble({2: second, 0: first}, script="train.py").meta["capture"]
    assert meta == {
        "script": "train.py",
        "torch": "2.9",
        "model_flops": 2 * 10 + 2 * 1000 + 2e6,
        "hardware_flops": 2 * 110 + 2 * 1000 + 2e6,
        "role_of_rank": [0, 0, 2, 2],
        "memory": {
            "2": dict.fromkeys(("parameters", "gradients", "optimizer", "other", "peak"), 0),
            "0": {"parameters": 1, "gradients": 2, "optimizer": 3, "other": 4, "peak": 5},
        },
        "products": {"mm 4x3x2 bfloat16": ["matmul", 4, 2, 3, 1, "bfloat16", False]},
        "launches": {"mul in 3": 3},
        "notes": ["rank 0: one", "rank 2: two"],
    }
