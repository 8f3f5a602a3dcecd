"""Programs: what each call becomes, what it waits for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from helpers.star import Star

from commsim.engine import simulate
from commsim.errors import DeadlockError, ScenarioError
from commsim.graph import Graph
from commsim.libraries import LibrarySection, make_library
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import ProgramSection, build_program
from commsim.workload.program_groups import ranks_text

MS = 10**9


def program(text: str, world_size: int | None = None) -> Graph:
    section = decode(yaml.safe_load(text), ProgramSection, "x.yaml")
    return build_program(section, world_size=world_size, where="x.yaml: workload.program").graph


def run(text: str, n: int = 2) -> Timeline:
    library = make_library(LibrarySection())
    return simulate(program(text), Star(n), library=library)


def spans(timeline: Timeline) -> dict[tuple[int, str], tuple[int, int]]:
    """Return (start, end) per (rank, op name)."""
    graph = timeline.graph
    columns = zip(timeline.op, timeline.lane, timeline.start, timeline.end, strict=True)
    return {(int(lane), graph.op_name(op)): (int(s), int(e)) for op, lane, s, e in columns}


DESIGN = """
groups: {pair: [0, 1]}
ranks:
  0: [{isend: {to: 1, bytes: 64MiB, as: s}}, {compute: 2ms}, {wait: s},
      {all_reduce: {bytes: 1MiB, group: pair}}]
  1: [{irecv: {from: 0, bytes: 64MiB, as: r}}, {wait: r}, {all_reduce: {bytes: 1MiB, group: pair}}]
"""


def test_the_program_of_the_manual() -> None:
    graph = program(DESIGN)
    ops = [
        (int(graph.lane[op]), graph.streams[graph.stream[op]], graph.op_name(op))
        for op in range(len(graph))
    ]
    assert ops == [
        (0, "isend 1", "isend to 1"),
        (0, "main", "compute"),
        (0, "main", "wait s"),
        (0, "main", "all_reduce"),
        (1, "irecv 0", "irecv from 0"),
        (1, "main", "wait r"),
        (1, "main", "all_reduce"),
    ]
    assert graph.dep_op.tolist() == [0, 4]  # the two waits, each for its call
    assert graph.messages.size.tolist() == [64 * 2**20]
    assert [g.ranks for g in graph.groups] == [(0, 1), (0, 1)]


def test_isend_lets_compute_run_beside_it_and_send_does_not() -> None:
    beside = spans(run(DESIGN))
    transfer = beside[0, "isend to 1"]
    assert beside[0, "compute"] == (0, 2 * MS)
    assert transfer[0] == 0
    assert beside[0, "wait s"][0] == transfer[1]  # 64 MiB at 1 GB/s end after the 2 ms
    blocking = spans(
        run(
            """
ranks:
  0: [{send: {to: 1, bytes: 64MiB}}, {compute: 2ms}]
  1: [{recv: {from: 0, bytes: 64MiB}}]
"""
        )
    )
    assert blocking[0, "compute"][0] == blocking[0, "send to 1"][1] == transfer[1]


def test_isend_starts_where_the_program_has_come_to_it() -> None:
    timeline = spans(
        run(
            """
ranks:
  0: [{compute: 3ms}, {isend: {to: 1, bytes: 1MB, as: s}}, {wait: [s]}]
  1: [{irecv: {from: 0, bytes: 1MB, as: r}}, {wait: r}]
"""
        )
    )
    assert timeline[0, "isend to 1"][0] == 3 * MS


def test_two_ranks_that_both_receive_first_build_and_deadlock() -> None:
    text = """
ranks:
  0: [{recv: {from: 1, bytes: 1MiB}}, {send: {to: 1, bytes: 1MiB}}]
  1: [{recv: {from: 0, bytes: 1MiB}}, {send: {to: 0, bytes: 1MiB}}]
"""
    assert len(program(text)) == 4
    with pytest.raises(DeadlockError):
        run(text)


def test_non_blocking_receives_resolve_it() -> None:
    timeline = run(
        """
ranks:
  0: [{irecv: {from: 1, bytes: 1MiB, as: r}}, {send: {to: 1, bytes: 1MiB}}, {wait: r}]
  1: [{irecv: {from: 0, bytes: 1MiB, as: r}}, {send: {to: 0, bytes: 1MiB}}, {wait: r}]
"""
    )
    assert len(timeline) == 6


def test_a_named_collective_is_asynchronous() -> None:
    graph = program(
        """
ranks:
  all: [{all_reduce: {bytes: 1MiB, as: g}}, {compute: 1ms}, {wait: g},
        {all_reduce: {bytes: 1MiB, async: true}}, barrier]
""",
        world_size=3,
    )
    streams = [graph.streams[s] for s in graph.stream[:5]]
    assert streams == ["group world", "main", "main", "group world", "main"]
    assert graph.lane_rank.tolist() == [0, 1, 2]
    assert graph.collectives.kind == ("all_reduce", "all_reduce", "barrier")
    assert graph.dep_op[:2].tolist() == [0, 2]  # the wait; the second call, issued after it


def test_all_is_for_ranks_without_calls_of_their_own() -> None:
    graph = program(
        "ranks: {all: [{compute: {duration: 1ms, name: work}}], 1: [{compute: 2ms}]}", world_size=3
    )
    assert graph.duration.tolist() == [1 * MS, 2 * MS, 1 * MS]
    assert [graph.op_name(op) for op in range(3)] == ["work", "compute", "work"]


def test_the_world_is_the_cluster_or_the_highest_rank_named() -> None:
    text = "ranks: {0: [{isend: {to: 3, bytes: 1B}}]}"
    assert program(text).groups[0].ranks == (0, 1, 2, 3)
    assert len(program(text, world_size=8).groups[0].ranks) == 8
    assert program("ranks: {all: [{compute: 1ms}]}").groups[0].ranks == (0,)


def test_a_groups_library_is_kept_and_gloo_matches_by_tag() -> None:
    graph = program(
        """
groups: {g: {ranks: [0, 1], library: gloo}}
ranks:
  0: [{isend: {to: 1, bytes: 1B, group: g, tag: 1}}, {isend: {to: 1, bytes: 2B, group: g, tag: 2}}]
  1: [{irecv: {from: 0, bytes: 2B, group: g, tag: 2}},
      {irecv: {from: 0, bytes: 1B, group: g, tag: 1}}]
"""
    )
    assert graph.groups[1].library == "gloo"
    assert sorted(graph.messages.size.tolist()) == [1, 2]
    assert len({int(s) for s in graph.stream}) == 4


def test_splits_of_each_rank_make_the_matrix() -> None:
    graph = program(
        """
ranks:
  0: [{all_to_all_v: {splits: [0B, 5B]}}]
  1: [{all_to_all_v: {splits: [7B, 1B]}}]
"""
    )
    assert graph.collectives.splits == (((0, 5), (7, 1)),)
    assert graph.collectives.size.tolist() == [8]


WRONG: list[tuple[str, str]] = [
    (
        "ranks: {0: [{isnd: {to: 1, bytes: 1B}}]}",
        "program.ranks.0.0: no call 'isnd'. Did you mean",
    ),
    ("ranks: {0: [{compute: 2ms}, {send: {to: 1}}]}", "ranks.0.1.send: the setting 'bytes' is"),
    ("ranks: {0: [{send: {bytes: 1B}}]}", "ranks.0.0.send: the setting 'to' is missing"),
    ("ranks: {0: [{send: {to: 0, bytes: 1B}}]}", "ranks.0.0.send.to: rank 0 names itself"),
    ("ranks: {0: [{send: {to: -1, bytes: 1B}}]}", "send.to: rank -1 is not in group 'world'"),
    ("ranks: {0: [{send: {to: 2, bytes: 1}}]}", "ranks.0.0.send: bytes: 1 has no unit"),
    ("ranks: {0: [{wait: s}]}", "ranks.0.0.wait: rank 0 has nothing called 's' to wait for"),
    (
        "ranks: {0: [{isend: {to: 1, bytes: 1B, as: sent}}, {wait: snt}]}",
        "ranks.0.1.wait: rank 0 has nothing called 'snt' to wait for. Did you mean 'sent'?",
    ),
    ("ranks: {0: [{barrier: {group: par}}]}", "ranks.0.0.barrier.group: no group 'par'"),
    ("{groups: {g: [1, 2]}, ranks: {0: [{barrier: {group: g}}]}}", "rank 0 is not in group 'g'"),
    ("{groups: {g: [0, 0]}, ranks: {0: [barrier]}}", "groups.g: give at least one rank, and each"),
    ("ranks: {0: [{broadcast: {bytes: 1B}}], 1: []}", "ranks.0.0.broadcast: broadcast needs a"),
    ("ranks: {0: [{all_reduce: {}}], 1: []}", "all_reduce: the setting 'bytes' is missing"),
    ("ranks: {0: [{all_to_all_v: {splits: [1B]}}], 1: []}", "1 sizes for the 2 members"),
    ("ranks: {0: [{compute: 2}]}", "ranks.0.0.compute: duration: 2 has no unit"),
    ("ranks: {0: [compute]}", "ranks.0.0: 'compute' is not a call"),
    ("ranks: {0: [{compute: 1ms, wait: s}]}", "is not a call"),
    ("ranks: {one: [barrier]}", "ranks.one: 'one' is not a rank"),
    ("ranks: {-1: [barrier]}", "ranks.-1: -1 is not a rank"),
    ("ranks: {0: [barrier], '0': [barrier]}", "ranks.0: rank 0 is listed twice"),
    ("ranks: {}", "ranks: no rank calls anything"),
    (
        "ranks: {0: [{all_reduce: {bytes: 1B}}], 1: [{all_reduce: {bytes: 2B}}]}",
        "ranks.1.0.all_reduce: call 0 on group 'world' differs between ranks",
    ),
    (
        "ranks: {0: [{send: {to: 1, bytes: 1B}}], 1: [{recv: {from: 0, bytes: 2B}}]}",
        "workload.program: rank 0 sends 1 B to rank 1, which receives 2 B",
    ),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_what_cannot_be_is_refused_with_its_path(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        program(text)
    assert str(caught.value).startswith("x.yaml: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ranks: {5: [barrier]}", "ranks.5: no such rank: there are 4 ranks (0..3)"),
        ("ranks: {4: [barrier]}", "ranks.4: no such rank: there are 4 ranks (0..3)"),
        ("{groups: {g: [0, 9]}, ranks: {0: [barrier]}}", "groups.g: no rank 9: there are 4 ranks"),
        ("ranks: {0: [{send: {to: 4, bytes: 1B}}]}", "rank 4 is not in group 'world' [0, 1, 2, 3]"),
    ],
)
def test_a_rank_outside_the_cluster_is_refused(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        program(text, world_size=4)
    assert words in str(caught.value)


def test_a_repeated_name_means_the_latest_call() -> None:
    graph = program(
        """
ranks:
  0: [{isend: {to: 1, bytes: 1B, as: s}}, {isend: {to: 1, bytes: 1B, as: s}}, {wait: s}]
  1: [{recv: {from: 0, bytes: 1B}}, {recv: {from: 0, bytes: 1B}}]
"""
    )
    wait = [graph.op_name(op) for op in range(len(graph))].index("wait s")
    deps: Any = graph.dep_op[graph.dep_ptr[wait] : graph.dep_ptr[wait + 1]]
    assert deps.tolist() == [1]


@pytest.mark.parametrize("count", [1, 15, 16, 17])
def test_a_list_of_ranks_is_told_up_to_the_sixteenth(count: int) -> None:
    shown = ", ".join(map(str, range(min(count, 16))))
    assert ranks_text(range(count)) == f"[{shown}{', ...' if count == 17 else ''}]"
