"""What a graph becomes as GOAL, statement by statement."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.graph import Graph, GraphBuilder
from commsim.traces.formats.goal import writer
from commsim.traces.formats.goal.writer import write_goal


def statements(graph: Graph, folder: Path) -> list[list[str]]:
    """Return the lines of each rank."""
    path = folder / "x.goal"
    write_goal(graph, path)
    head, *ranks = path.read_text().split("\nrank ")
    assert head == f"num_ranks {len(ranks)}\n"
    for number, rank in enumerate(ranks):
        assert rank.startswith(f"{number} {{\n")
        assert rank.endswith("}\n")
    return [rank.splitlines()[1:-1] for rank in ranks]


def lines(graph: Graph, folder: Path, rank: int = 0) -> list[str]:
    return statements(graph, folder)[rank]


@pytest.mark.parametrize(
    ("ps", "ns"), [(0, 0), (499, 0), (500, 1), (1499, 1), (1500, 2), (2000, 2), (7_000_000, 7000)]
)
def test_work_is_rounded_to_whole_nanoseconds(ps: int, ns: int, tmp_path: Path) -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), ps, name="F")
    assert lines(build.build(), tmp_path) == [f"l1: calc {ns} cpu 0"]


@pytest.mark.parametrize(
    ("ps", "ns"), [(-1, 0), (0, 0), (499, 0), (500, 1), (1499, 1), (1500, 2), (2_000_000, 2000)]
)
def test_a_call_that_no_algorithm_has_is_what_it_took(ps: int, ns: int, tmp_path: Path) -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    before = build.compute(lane, 5000, name="F")
    group = build.group("peers", [0])
    call = build.collective(
        lane, group, "all_reduce", 64, stream="nccl", after=[before], recorded=ps
    )
    build.compute(lane, 1000, name="B", stream="copies", after=[call])
    graph = build.build()
    table = replace(graph.collectives, kind=("send_recv",))
    assert lines(replace(graph, collectives=table), tmp_path) == [
        "l1: calc 5 cpu 0",
        f"l2: calc {ns} cpu 1",
        "l2 requires l1",
        "l3: calc 1 cpu 2",
        "l3 requires l2",
    ]


def test_work_without_a_duration_is_refused_by_name(tmp_path: Path) -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), -1, name="matmul", flops=1e9)
    with pytest.raises(TraceError, match=r"matmul.*has FLOPs and no duration"):
        write_goal(build.build(), tmp_path / "x.goal")


def test_a_stream_is_a_cpu_and_follows_itself(tmp_path: Path) -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for number in range(258):
        build.compute(lane, 1000, name="F", stream=f"s{number}")
    build.compute(lane, 2000, name="F", stream="s1")
    written = lines(build.build(), tmp_path)
    assert written[:3] == ["l1: calc 1 cpu 0", "l2: calc 1 cpu 1", "l3: calc 1 cpu 2"]
    assert written[254:258] == [f"l{n + 1}: calc 1 cpu {min(n, 255)}" for n in range(254, 258)]
    assert written[258:] == ["l259: calc 2 cpu 1", "l259 requires l2"]


def test_what_follows_a_collective_is_written_after_it(tmp_path: Path) -> None:
    """Rank 0 begins with the collective, and rank 1 comes to it two ops later."""
    build = GraphBuilder()
    group = build.group("world", (1, 0))
    lane, other = build.lane(0), build.lane(1)
    reduce = build.collective(lane, group, "broadcast", 0, stream="nccl", root=0)
    build.compute(lane, 1000, name="F", after=[reduce])
    build.compute(lane, 2000, name="F", stream="nccl")
    build.compute(other, 3000, name="F")
    last = build.compute(other, 4000, name="F")
    build.collective(other, group, "broadcast", 0, stream="nccl", root=0, after=[last])
    one, two = statements(build.build(), tmp_path)
    assert one == [
        "l1: send 0b to 1 tag 1 cpu 0",
        "l2: calc 1 cpu 1",
        "l2 requires l1",
        "l3: calc 2 cpu 0",
        "l3 requires l1",
    ]
    assert two == [
        "l1: calc 3 cpu 0",
        "l2: calc 4 cpu 0",
        "l2 requires l1",
        "l3: recv 0b from 0 tag 1 cpu 1",
        "l3 requires l2",
    ]


def test_what_an_op_needs_twice_is_said_once(tmp_path: Path) -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    first = build.compute(lane, 1000, name="F")
    build.compute(lane, 1000, name="B", after=[first])
    assert lines(build.build(), tmp_path) == ["l1: calc 1 cpu 0", "l2: calc 1 cpu 0",
                                              "l2 requires l1"]  # fmt: skip


def test_messages_are_numbered_from_one_for_each_pair_and_way(tmp_path: Path) -> None:
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(3)]
    group = build.group("pp", range(3))
    for source, target, size in [(0, 1, 8), (0, 1, 9), (1, 0, 4), (0, 2, 0)]:
        build.send(lanes[source], target, size, group=group, stream=f"to {target}")
        build.recv(lanes[target], source, size, group=group, stream=f"from {source}")
    written = statements(build.build(), tmp_path)
    ops = [[line.split(": ")[1].split(" cpu")[0] for line in rank if ":" in line]
           for rank in written]  # fmt: skip
    assert sorted(ops[0]) == [
        "recv 4b from 1 tag 1",
        "send 0b to 2 tag 1",
        "send 8b to 1 tag 1",
        "send 9b to 1 tag 2",
    ]
    assert sorted(ops[1]) == ["recv 8b from 0 tag 1", "recv 9b from 0 tag 2", "send 4b to 0 tag 1"]
    assert ops[2] == ["recv 0b from 0 tag 1"]


def reduced(kind: str, size: int, ranks: tuple[int, ...], *, root: int = -1) -> GraphBuilder:
    """Return a collective between work of 1 ns and of 2 ns on each rank."""
    build = GraphBuilder()
    group = build.group("world", ranks)
    for rank in ranks:
        lane = build.lane(rank)
        first = build.compute(lane, 1000, name="F")
        call = build.collective(lane, group, kind, size, stream="nccl", after=[first], root=root)
        build.compute(lane, 2000, name="B", stream="copies", after=[call])
    return build


def test_a_ring_of_two_sends_halves_there_and_back(tmp_path: Path) -> None:
    """Each half goes to the other rank to be added, and its sum comes back: four sends of 5."""
    for written, other in zip(
        statements(reduced("all_reduce", 10, (0, 1)).build(), tmp_path), (1, 0), strict=True
    ):
        ops = [line for line in written if ":" in line]
        assert ops[0] == "l1: calc 1 cpu 0"
        assert ops[-1] == "l6: calc 2 cpu 2"
        assert sorted(op.partition(": ")[2] for op in ops[1:-1]) == [
            f"recv 5b from {other} tag 1 cpu 1",
            f"recv 5b from {other} tag 2 cpu 1",
            f"send 5b to {other} tag 1 cpu 1",
            f"send 5b to {other} tag 2 cpu 1",
        ]
        label = {op.partition(": ")[2]: op.partition(":")[0] for op in ops}
        first, second = (label[f"send 5b to {other} tag {tag} cpu 1"] for tag in (1, 2))
        come = label[f"recv 5b from {other} tag 1 cpu 1"]
        ties = {line for line in written if "requires" in line}
        assert f"{first} requires l1" in ties
        assert f"{come} requires l1" in ties
        assert f"{second} requires {come}" in ties
        assert {f"l6 requires l{n}" for n in range(2, 6)} <= ties


@pytest.mark.parametrize(("root", "at"), [(2, 2), (4, 4)])
def test_a_tree_starts_at_its_root_a_global_rank(root: int, at: int, tmp_path: Path) -> None:
    other = 6 - at
    graph = reduced("broadcast", 16, (4, 2), root=root).build()
    written = statements(graph, tmp_path)
    assert len(written) == 5
    assert written[0] == written[1] == written[3] == []
    assert written[at] == [
        "l1: calc 1 cpu 0",
        f"l2: send 16b to {other} tag 1 cpu 1",
        "l2 requires l1",
        "l3: calc 2 cpu 2",
        "l3 requires l2",
    ]
    assert written[other] == [
        "l1: calc 1 cpu 0",
        f"l2: recv 16b from {at} tag 1 cpu 1",
        "l2 requires l1",
        "l3: calc 2 cpu 2",
        "l3 requires l2",
    ]


def test_a_collective_of_one_rank_hands_on_what_it_needed(tmp_path: Path) -> None:
    assert lines(reduced("all_reduce", 10, (0,)).build(), tmp_path) == [
        "l1: calc 1 cpu 0",
        "l2: calc 2 cpu 1",
        "l2 requires l1",
    ]


def test_a_member_that_no_lane_has_takes_part_at_once(tmp_path: Path) -> None:
    build = GraphBuilder()
    group = build.group("world", (0, 3))
    lane = build.lane(0)
    first = build.compute(lane, 1000, name="F")
    build.collective(lane, group, "broadcast", 8, stream="nccl", after=[first], root=0)
    assert statements(build.build(), tmp_path) == [
        ["l1: calc 1 cpu 0", "l2: send 8b to 3 tag 1 cpu 1", "l2 requires l1"],
        [],
        [],
        ["l1: recv 8b from 0 tag 1 cpu 0"],
    ]


def test_unequal_splits_are_the_sizes_of_the_sends(tmp_path: Path) -> None:
    build = GraphBuilder()
    group = build.group("ep", (0, 1))
    for rank, splits in enumerate([(1, 6), (3, 2)]):
        build.collective(
            build.lane(rank), group, "all_to_all_v", sum(splits), stream="nccl", splits=splits
        )
    ops = [{line.partition(": ")[2] for line in rank} for rank in
           statements(build.build(), tmp_path)]  # fmt: skip
    assert ops == [
        {"send 6b to 1 tag 1 cpu 0", "recv 3b from 1 tag 1 cpu 0"},
        {"send 3b to 0 tag 1 cpu 0", "recv 6b from 0 tag 1 cpu 0"},
    ]


@pytest.mark.parametrize(("ranks", "fits"), [(2, True), (3, True), (4, False)])
def test_sends_beyond_the_most_are_refused(
    ranks: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broadcast has a send for each rank but the root; no more than two in one file here."""
    monkeypatch.setattr(writer, "_MAX_SENDS", 2)
    graph = reduced("broadcast", 8, tuple(range(ranks)), root=0).build()
    if fits:
        write_goal(graph, tmp_path / "x.goal")
    else:
        with pytest.raises(TraceError, match="more than 2 sends"):
            write_goal(graph, tmp_path / "x.goal")


def test_the_most_counts_all_collectives_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = GraphBuilder()
    group = build.group("world", (0, 1))
    for lane in (build.lane(0), build.lane(1)):
        for _ in range(3):
            build.collective(lane, group, "broadcast", 8, stream="nccl", root=0)
    graph = build.build()
    monkeypatch.setattr(writer, "_MAX_SENDS", 3)
    write_goal(graph, tmp_path / "x.goal")
    monkeypatch.setattr(writer, "_MAX_SENDS", 2)
    with pytest.raises(TraceError, match="more than 2 sends"):
        write_goal(graph, tmp_path / "x.goal")


def test_notes_say_what_is_lost_and_by_which_algorithms(tmp_path: Path) -> None:
    build = GraphBuilder()
    build.compute(build.lane(0), 1000, name="F")
    (lost,) = write_goal(build.build(), tmp_path / "x.goal")
    assert "whole nanoseconds" in lost
    _, chosen = write_goal(reduced("all_reduce", 8, (0, 1)).build(), tmp_path / "x.goal")
    assert chosen == (
        "GOAL: collectives are written as the sends of an algorithm: all_reduce by ring."
    )


def test_a_graph_of_nothing_has_one_rank_of_nothing(tmp_path: Path) -> None:
    assert statements(GraphBuilder().build(), tmp_path) == [[]]
