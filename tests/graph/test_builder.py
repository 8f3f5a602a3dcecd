"""The graph builder: what it matches, what it refuses, and how it says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.graph import Graph, GraphBuilder, OpKind, Phase, Tags
from commsim.graph.table import op_columns


def build_with(ranks: int) -> tuple[GraphBuilder, int]:
    build = GraphBuilder()
    for rank in range(ranks):
        build.lane(rank)
    return build, build.group("world", range(ranks))


def test_ops_keep_what_was_said_about_them() -> None:
    build, world = build_with(2)
    work = build.compute(0, 70, name="F3", tags=Tags(Phase.FORWARD, 1, 3, 0, 5), alloc=8, flops=2.0)
    build.collective(0, world, "all_reduce", 64, stream="dp", after=[(work, 9)])
    graph = build.build({"model": "tiny"})
    assert graph.kind.tolist() == [OpKind.COMPUTE, OpKind.COLLECTIVE]
    assert (graph.op_name(0), graph.op_name(1)) == ("F3", "all_reduce")
    columns = ("phase", "step", "microbatch", "stage", "layer", "duration", "alloc", "flops")
    assert [getattr(graph, c)[0] for c in columns] == [Phase.FORWARD, 1, 3, 0, 5, 70, 8, 2.0]
    assert graph.dep_ptr.tolist() == [0, 0, 1]
    assert (graph.dep_op.tolist(), graph.dep_delay.tolist()) == ([work], [9])
    assert graph.streams == ("compute", "dp")
    assert dict(graph.meta) == {"model": "tiny"}


def test_the_kth_call_on_a_group_meets_the_kth_of_the_others() -> None:
    build, world = build_with(2)
    for rank in range(2):
        build.collective(rank, world, "all_reduce", 8, stream="s")
    for rank in (1, 0):
        build.collective(rank, world, "all_gather", 16, stream="s", dtype="fp32")
    graph = build.build()
    assert graph.item.tolist() == [0, 0, 1, 1]
    assert graph.collectives.kind == ("all_reduce", "all_gather")
    assert graph.collectives.size.tolist() == [8, 16]
    ptr, ops = graph.members()
    assert (ptr.tolist(), ops.tolist()) == ([0, 2, 4], [0, 1, 2, 3])


def test_groups_count_their_calls_apart() -> None:
    build, world = build_with(2)
    other = build.group("other", [0, 1])
    build.collective(0, world, "all_reduce", 8, stream="s")
    build.collective(0, other, "barrier", 0, stream="s")
    build.collective(1, other, "barrier", 0, stream="s")
    build.collective(1, world, "all_reduce", 8, stream="s")
    assert build.build().item.tolist() == [0, 1, 1, 0]


def test_sends_and_receives_match_by_order_per_pair() -> None:
    build, world = build_with(3)
    sends = [build.send(0, peer, size, group=world, stream="p") for peer, size in
             ((1, 10), (2, 20), (1, 30))]  # fmt: skip
    recvs = [build.recv(1, 0, size, group=world, stream="p") for size in (10, 30)]
    recvs.append(build.recv(2, 0, 20, group=world, stream="p"))
    messages = build.build().messages
    assert messages.size.tolist() == [10, 30, 20]
    assert messages.target.tolist() == [1, 1, 2]
    assert messages.send_op.tolist() == [sends[0], sends[2], sends[1]]
    assert messages.recv_op.tolist() == recvs


def test_gloo_matches_by_tag_and_nccl_by_order_alone() -> None:
    for library, matched in (("gloo", [1, 0]), ("nccl", [0, 1])):
        build = GraphBuilder()
        pair = build.group("pair", [0, 1], library=library)
        sender, receiver = build.lane(0), build.lane(1)
        for tag in (5, 4):
            build.send(sender, 1, 8, group=pair, stream="p", tag=tag)
        recvs = [build.recv(receiver, 0, 8, group=pair, stream="p", tag=tag) for tag in (4, 5)]
        messages = build.build().messages
        of_send = dict(zip(messages.send_op.tolist(), messages.recv_op.tolist(), strict=True))
        assert [recvs.index(of_send[send]) for send in (0, 1)] == matched


def test_a_send_that_nobody_receives_is_kept_for_the_engine_to_find() -> None:
    build, world = build_with(2)
    build.send(0, 1, 8, group=world, stream="p")
    messages = build.build().messages
    assert (messages.send_op.tolist(), messages.recv_op.tolist()) == ([0], [-1])


def test_splits_become_a_matrix_and_the_largest_sender_is_the_size() -> None:
    build, world = build_with(2)
    build.collective(0, world, "all_to_all_v", 30, stream="s", splits=[10, 20])
    build.collective(1, world, "all_to_all_v", 50, stream="s", splits=[45, 5])
    table = build.build().collectives
    assert table.splits == (((10, 20), (45, 5)),)
    assert table.size.tolist() == [50]


def test_recorded_times_stay_with_their_collective_and_message() -> None:
    build, world = build_with(2)
    build.collective(0, world, "barrier", 0, stream="s")
    build.collective(0, world, "all_reduce", 8, stream="s", recorded=77)
    build.send(0, 1, 8, group=world, stream="p")
    build.recv(1, 0, 8, group=world, stream="p", recorded=33)
    graph = build.build()
    assert graph.collectives.recorded.tolist() == [-1, 77]
    assert graph.messages.recorded.tolist() == [33]


def test_batches_have_ids_of_their_own() -> None:
    build, world = build_with(2)
    first, second = build.batch(), build.batch()
    build.send(0, 1, 8, group=world, stream="p", batch=first)
    build.recv(0, 1, 8, group=world, stream="p", batch=second)
    assert build.build().batch.tolist() == [first, second]
    assert first != second


def test_windows_and_lanes() -> None:
    build = GraphBuilder()
    build.lane(4, multiplicity=3, offset=11)
    lane = build.lane(2)
    build.compute(lane, 1, name="a")
    build.window(lane, 0, 0)
    graph = build.build()
    assert graph.lane_rank.tolist() == [4, 2]
    assert graph.multiplicity.tolist() == [3, 1]
    assert graph.lane_offset.tolist() == [11, 0]
    assert graph.window.tolist() == [[-1, -1], [0, 0]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "all_gather"}, "rank 1: all_gather of 8 B"),
        ({"size": 16}, "rank 1: all_reduce of 16 B"),
        ({"dtype": "bf16"}, "rank 1: all_reduce of 8 B, bf16"),
    ],
)
def test_calls_that_differ_between_ranks_are_both_shown(change: dict[str, Any], said: str) -> None:
    build, world = build_with(2)
    call: dict[str, Any] = {"kind": "all_reduce", "size": 8, "dtype": ""}
    build.collective(0, world, stream="s", **call)
    with pytest.raises(ScenarioError) as caught:
        build.collective(1, world, stream="s", **(call | change))
    assert "call 0 on group 'world'" in str(caught.value)
    assert "rank 0: all_reduce of 8 B" in str(caught.value)
    assert said in str(caught.value)


def test_roots_that_differ_are_shown() -> None:
    build, world = build_with(2)
    build.collective(0, world, "broadcast", 8, stream="s", root=0)
    with pytest.raises(ScenarioError, match="root 1"):
        build.collective(1, world, "broadcast", 8, stream="s", root=1)


Act = Callable[[GraphBuilder, int], object]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda b, g: b.collective(0, g, "all_redcue", 8, stream="s"), "mean 'all_reduce'"),
        (lambda b, g: b.collective(2, g, "barrier", 0, stream="s"), "rank 2: barrier: not in"),
        (lambda b, g: b.collective(0, g, "broadcast", 8, stream="s"), "broadcast needs a root"),
        (
            lambda b, g: b.collective(0, g, "all_reduce", 8, stream="s", root=0),
            "all_reduce has no root",
        ),
        (lambda b, g: b.collective(0, g, "all_to_all_v", 8, stream="s"), "needs splits"),
        (
            lambda b, g: b.collective(0, g, "all_to_all", 8, stream="s", splits=[4, 4]),
            "has no splits",
        ),
        (
            lambda b, g: b.collective(0, g, "all_to_all_v", 8, stream="s", splits=[8]),
            "1 splits for 2 members",
        ),
        (lambda b, g: b.send(0, 2, 8, group=g, stream="p"), "rank 2 is not in group 'world'"),
        (lambda b, g: b.recv(2, 0, 8, group=g, stream="p"), "rank 2 is not in group 'world'"),
        (lambda b, g: b.send(0, 0, 8, group=g, stream="p"), "rank 0: send to itself"),
        (lambda b, g: b.compute(0, -1, name="F"), "F: a duration must not be negative"),
    ],
)
def test_what_cannot_be_is_refused_at_once(act: Act, said: str) -> None:
    build = GraphBuilder()
    for rank in range(3):
        build.lane(rank)
    group = build.group("world", [0, 1])
    with pytest.raises(ScenarioError, match=re.escape(said)):
        act(build, group)


def test_two_ends_of_a_message_must_agree_on_its_size() -> None:
    build, world = build_with(2)
    build.send(0, 1, 1024, group=world, stream="p")
    build.recv(1, 0, 2048, group=world, stream="p")
    said = "rank 0 sends 1 KiB to rank 1, which receives 2 KiB"
    with pytest.raises(ScenarioError, match=said):
        build.build()


def test_describe_says_who_does_what() -> None:
    build, world = build_with(2)
    build.compute(1, 1, name="B2")
    build.collective(1, world, "all_reduce", 2**20, stream="s")
    build.send(1, 0, 8, group=world, stream="p")
    build.recv(0, 1, 8, group=world, stream="p")
    graph = build.build()
    assert [graph.describe(op) for op in range(4)] == [
        "rank 1: B2",
        "rank 1: all_reduce of 1 MiB on group 'world'",
        "rank 1: send to rank 0",
        "rank 0: recv from rank 1",
    ]
    assert [graph.group_of(op) for op in range(4)] == [-1, world, world, world]


def test_work_in_bulk_comes_first_and_is_as_if_added_one_by_one() -> None:
    def graph(bulk: bool) -> Graph:
        build, world = build_with(2)
        if bulk:
            build.computes(
                ["F", "B"], lane=[0, 1, 0], duration=[5, 6, 7], name=[0, 0, 1], stage=2,
                dep_ptr=[0, 0, 1, 1], dep_op=[0], dep_delay=[9], flops=1.5,
            )  # fmt: skip
        else:
            tags = Tags(stage=2)
            build.compute(0, 5, name="F", tags=tags, flops=1.5)
            build.compute(1, 6, name="F", tags=tags, after=[(0, 9)], flops=1.5)
            build.compute(0, 7, name="B", tags=tags, flops=1.5)
        later = build.compute(1, 8, name="F", after=[2])
        assert later == 3
        build.depend(later, 1, delay=4)
        build.collective(0, world, "all_reduce", 64, stream="dp", after=[later])
        return build.build()

    one, other = graph(True), graph(False)
    for column in (*op_columns(), "dep_ptr", "dep_op", "dep_delay"):
        assert getattr(one, column).tolist() == getattr(other, column).tolist(), column
    assert (one.names, one.streams) == (other.names, other.streams)


def test_bulk_after_other_ops_or_with_a_later_need_is_a_slip_of_the_program() -> None:
    columns: dict[str, Any] = {"lane": [0], "duration": [5], "name": [0]}
    columns |= {"dep_ptr": [0, 0], "dep_op": [], "dep_delay": []}
    build, _ = build_with(1)
    build.computes(["F"], **columns)
    with pytest.raises(ValueError, match="come first"):
        build.computes(["F"], **columns)
    with pytest.raises(ValueError, match="comes with it"):
        build.depend(0, 0)
    build, _ = build_with(1)
    build.compute(0, 5, name="F")
    with pytest.raises(ValueError, match="come first"):
        build.computes(["F"], **columns)
