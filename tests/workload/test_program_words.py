"""Every word of torch.distributed: what it becomes, what it waits for, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from helpers.star import Star

from commsim.engine import simulate
from commsim.errors import DeadlockError, ScenarioError
from commsim.graph import CopyDirection, Device, Graph, OpKind
from commsim.libraries import Ideal
from commsim.sections import decode
from commsim.timeline import Timeline
from commsim.workload import ProgramSection, build_program

MS = 10**9


def program(text: str, world_size: int | None = None, library: str = "") -> Graph:
    section = decode(yaml.safe_load(text), ProgramSection, "x.yaml")
    built = build_program(
        section, world_size=world_size, library=library, where="x.yaml: workload.program"
    )
    return built.graph


def run(text: str, n: int = 2, library: str = "") -> Timeline:
    graph = program(text, world_size=n, library=library)
    return simulate(graph, Star(n), library=Ideal())


def refused(text: str, **how: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        program(text, **how)
    assert str(caught.value).startswith("x.yaml: workload.program")
    return str(caught.value)


def spans(timeline: Timeline) -> dict[tuple[int, str], tuple[int, int]]:
    """Return (start, end) per (rank, op name)."""
    graph = timeline.graph
    columns = zip(timeline.op, timeline.lane, timeline.start, timeline.end, strict=True)
    return {(int(lane), graph.op_name(op)): (int(s), int(e)) for op, lane, s, e in columns}


def streams(graph: Graph) -> list[str]:
    return [graph.streams[s] for s in graph.stream]


def deps(graph: Graph, op: int) -> list[int]:
    found: list[int] = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist()
    return found


ALL = {
    "all_reduce": "{bytes: 8B}",
    "reduce": "{bytes: 8B, dst: 1}",
    "broadcast": "{bytes: 8B, src: 1}",
    "scatter": "{bytes: 8B, src: 1}",
    "gather": "{bytes: 8B, dst: 1}",
    "all_gather": "{bytes: 8B}",
    "all_gather_into_tensor": "{bytes: 8B}",
    "reduce_scatter": "{bytes: 8B}",
    "reduce_scatter_tensor": "{bytes: 8B}",
    "all_to_all": "{bytes: 8B}",
    "all_to_all_single": "{bytes: 8B}",
    "barrier": "{}",
}


@pytest.mark.parametrize("word", ALL)
def test_each_word_is_its_collective_and_runs(word: str) -> None:
    op = {"all_to_all_single": "all_to_all"}.get(word, word)
    op = op.removesuffix("_into_tensor").removesuffix("_tensor")
    timeline = run(f"ranks: {{all: [{{{word}: {ALL[word]}}}]}}", n=2)
    assert timeline.graph.collectives.kind == (op,)
    assert timeline.graph.collectives.root.tolist() == [1 if "1" in ALL[word] else -1]
    assert timeline.end_time > 0


def test_roots_by_the_names_of_torch() -> None:
    """src and dst are global ranks, group_src and group_dst count within the group."""
    graph = program(
        """
groups: {g: [3, 1]}
ranks:
  1: &a [{broadcast: {bytes: 1B, src: 1, group: g}}, {scatter: {bytes: 2B, group_src: 0, group: g}},
         {gather: {bytes: 2B, group_dst: 1, group: g}}, {reduce: {bytes: 1B, root: 3, group: g}}]
  3: *a
"""
    )
    assert graph.collectives.root.tolist() == [1, 3, 1, 3]


def test_reduce_ops_and_types_are_kept() -> None:
    graph = program(
        "ranks: {all: [{all_reduce: {bytes: 8B, op: avg, dtype: bfloat16}}, {reduce: {bytes: 4B,"
        " dst: 0, op: max}}, {broadcast: {bytes: 4B, src: 0, dtype: float32}}]}",
        world_size=2,
    )
    assert graph.collectives.redop == ("avg", "max", "")
    assert graph.collectives.dtype == ("bfloat16", "", "float32")


def test_splits_make_any_all_to_all_one_with_splits() -> None:
    for word in ("all_to_all", "all_to_all_single"):
        graph = program(
            f"""
ranks:
  0: [{{{word}: {{bytes: 5B, splits: [0B, 5B], output_splits: [0B, 7B]}}}}]
  1: [{{{word}: {{splits: [7B, 1B], output_splits: [5B, 1B]}}}}]
"""
        )
        assert graph.collectives.kind == ("all_to_all_v",)
        assert graph.collectives.splits == (((0, 5), (7, 1)),)


def test_a_batch_is_issued_as_one_and_waited_for_as_one() -> None:
    """Both send before they receive: alone that deadlocks, in a batch it does not."""
    text = """
ranks:
  0: [{compute: 1ms}, {batch_isend_irecv: {ops: [{isend: {to: 1, bytes: 1MB}},
      {irecv: {from: 1, bytes: 1MB}}], as: b}}, {compute: 3ms}, {wait: b}]
  1: [{batch_isend_irecv: {ops: [{isend: {dst: 0, bytes: 1MB}}, {irecv: {src: 0, bytes: 1MB}}],
      as: b}}, {wait: b}]
"""
    timeline = run(text)
    graph = timeline.graph
    assert graph.batch.tolist() == [-1, 0, 0, -1, -1, 1, 1, -1]
    assert set(streams(graph)) == {"main", "batch"}
    assert deps(graph, 4) == [1, 2]
    found = spans(timeline)
    assert found[0, "isend to 1"][0] == found[0, "irecv from 1"][0] == MS
    assert found[0, "compute"] == (MS, 4 * MS)
    assert found[1, "wait b"][0] == pytest.approx(MS + MS, rel=0.01)


def test_gloo_runs_each_of_a_batch_by_itself() -> None:
    graph = program(
        "ranks: {0: [{batch_isend_irecv: [{isend: {to: 1, bytes: 1B}}, {irecv: {from: 1, bytes: 1B,"
        " tag: 3}}]}], 1: []}",
        library="gloo",
    )
    assert graph.batch.tolist() == [-1, -1]
    assert streams(graph) == ["isend 1 tag 0", "irecv 1 tag 3"]


def test_nccl_has_one_stream_per_pair_of_ranks() -> None:
    text = """
ranks:
  0: [{isend: {to: 1, bytes: 1MB, as: s}}, {irecv: {from: 1, bytes: 1MB, as: r}}, {wait: [s, r]}]
  1: [{isend: {to: 0, bytes: 1MB, as: s}}, {irecv: {from: 0, bytes: 1MB, as: r}}, {wait: [s, r]}]
"""
    assert streams(program(text, library="nccl"))[:2] == ["p2p 1", "p2p 1"]
    with pytest.raises(DeadlockError, match="too large to be buffered"):
        run(text, library="nccl")
    assert run(text).end_time > 0
    assert run(text, library="gloo").end_time > 0


def test_coalesced_calls_are_one_of_all_their_bytes() -> None:
    graph = program(
        """
ranks:
  all: [{coalesced: {calls: [{all_reduce: {bytes: 3B}}, {all_reduce: {bytes: 5B}}], as: c}},
        {compute: 1ms}, {wait: c}, {coalesced: [{all_gather: {bytes: 2B}}]}]
""",
        world_size=2,
    )
    assert graph.collectives.kind == ("all_reduce", "all_gather")
    assert graph.collectives.size.tolist() == [8, 2]
    assert streams(graph)[:4] == ["group world", "main", "main", "main"]


OBJECTS: list[tuple[str, str, list[tuple[str, int, int]]]] = [
    ("broadcast_object_list", "src: 1, ", [("broadcast", 8, 1), ("broadcast", 100, 1)]),
    ("all_gather_object", "", [("all_gather", 24, -1), ("all_gather", 300, -1)]),
    ("gather_object", "dst: 2, ", [("all_gather", 24, -1), ("gather", 300, 2)]),
    (
        "scatter_object_list",
        "src: 0, ",
        [("broadcast", 8, 0), ("scatter", 300, 0), ("scatter", 24, 0)],
    ),
]


@pytest.mark.parametrize(("word", "end", "expected"), OBJECTS, ids=[w for w, _, _ in OBJECTS])
def test_objects_send_their_sizes_first(
    word: str, end: str, expected: list[tuple[str, int, int]]
) -> None:
    graph = program(f"ranks: {{all: [{{{word}: {{{end}bytes: 100B}}}}]}}", world_size=3)
    table = graph.collectives
    found = list(zip(table.kind, table.size.tolist(), table.root.tolist(), strict=True))
    assert found == expected
    assert set(streams(graph)) == {"main"}


def test_compute_on_a_stream_of_its_own_runs_beside() -> None:
    found = spans(
        run(
            "ranks: {0: [{compute: {duration: 1ms, name: a}}, {compute: {duration: 4ms, name: b,"
            " stream: side, as: b}}, {compute: {duration: 2ms, name: c}}, {wait: b}]}"
        )
    )
    assert found[0, "b"] == (MS, 5 * MS)
    assert found[0, "c"] == (MS, 3 * MS)
    assert found[0, "wait b"] == (5 * MS, 5 * MS)


def test_synchronize_waits_for_all_streams() -> None:
    timeline = run(
        """
ranks:
  0: [{compute: {duration: 4ms, stream: side}}, {isend: {to: 1, bytes: 1MB}},
      {all_reduce: {bytes: 1B, async: true}}, synchronize, {compute: {duration: 1ms, name: last}}]
  1: [{irecv: {from: 0, bytes: 1MB}}, {all_reduce: {bytes: 1B, async: true}}]
"""
    )
    assert len(deps(timeline.graph, 3)) == 3
    assert spans(timeline)[0, "last"][0] == 4 * MS


def test_copies_to_and_from_the_host() -> None:
    graph = program(
        "ranks: {0: [{copy_to_host: 1MB}, {copy_from_host: {bytes: 2MB, stream: h2d, as: c}},"
        " {wait: c}]}"
    )
    assert graph.kind.tolist()[:2] == [OpKind.COPY, OpKind.COPY]
    assert graph.item.tolist()[:2] == [CopyDirection.TO_HOST, CopyDirection.FROM_HOST]
    assert graph.size.tolist()[:2] == [10**6, 2 * 10**6]
    assert streams(graph) == ["main", "h2d", "main"]
    assert deps(graph, 1) == [0]


def test_device_cpu_means_data_in_host_memory() -> None:
    graph = program(
        "ranks: {all: [{all_reduce: {bytes: 1B, device: cpu}}, {barrier: {}}], 1: [{all_reduce:"
        " {bytes: 1B, device: cpu}}, barrier]}",
        world_size=2,
    )
    assert graph.device.tolist() == [Device.CPU, Device.CUDA] * 2


def test_new_group_makes_a_group_with_a_backend() -> None:
    text = """
ranks:
  0: [{new_group: {name: pair, ranks: [0, 1], backend: gloo}}, {barrier: {group: pair}}]
  1: [{new_group: {name: pair, ranks: [0, 1], backend: gloo}}, {barrier: {group: pair}}]
  2: [{new_group: {name: pair, ranks: [0, 1], backend: gloo}}]
"""
    graph = program(text)
    assert [(g.name, g.ranks, g.library) for g in graph.groups] == [
        ("world", (0, 1, 2), ""),
        ("pair", (0, 1), "gloo"),
    ]
    assert len(graph) == 2


def test_groups_take_the_library_of_the_scenario_or_their_own() -> None:
    graph = program(
        "{groups: {a: [0], b: {ranks: [0], backend: gloo}, c: {ranks: [0], library: ideal}},"
        " ranks: {0: [barrier]}}",
        library="nccl",
    )
    assert [group.library for group in graph.groups] == ["nccl", "nccl", "gloo", "ideal"]


def test_gloo_hands_asynchronous_ops_to_threads() -> None:
    graph = program(
        "ranks: {all: [{all_reduce: {bytes: 1B, async: true}}, {all_reduce: {bytes: 1B, async:"
        " true}}, {all_reduce: {bytes: 1B}}]}",
        world_size=1,
        library="gloo",
    )
    assert streams(graph) == ["group world 0", "group world 1", "main"]


def call(text: str) -> Callable[[], str]:
    return lambda: refused(f"ranks: {{all: [{text}]}}", world_size=3)


WRONG: list[tuple[str, str]] = [
    ("{all_reduce: {bytes: 1B, op: mean}}", "all.0.all_reduce.op: no reduce op 'mean'. Known"),
    ("{all_reduce: {bytes: 1B, op: summ}}", "no reduce op 'summ'. Did you mean 'sum'?"),
    ("{all_gather: {bytes: 1B, op: sum}}", "all_gather.op: all_gather reduces nothing"),
    ("{all_reduce: {bytes: 1B, dtype: bfloat17}}", "dtype: unknown type 'bfloat17'. Did you mean"),
    ("{all_reduce: {bytes: 3B, dtype: float16}}", "3 bytes are no whole number of float16"),
    ("{all_reduce: {bytes: 1B, src: 0}}", "all_reduce.src: all_reduce has no src. Leave it out."),
    ("{broadcast: {bytes: 1B, dst: 0}}", "broadcast has no dst. It has src or group_src or root."),
    ("{reduce: {bytes: 1B, dst: 0, group_dst: 1}}", "dst and group_dst say the same"),
    ("{reduce: {bytes: 1B, dst: 3}}", "reduce.dst: rank 3 is not in the group [0, 1, 2]"),
    ("{reduce: {bytes: 1B, group_dst: 3}}", "group_dst: 3: the group has 3 members, 0 to 2"),
    ("{gather: {bytes: 1B}}", "gather needs a root"),
    ("{gather_object: {bytes: 1B}}", "gather_object needs a dst"),
    ("{all_gather_object: {bytes: 1B, src: 1}}", "all_gather_object has no src"),
    ("{all_to_all_single: {bytes: 9B, splits: [1B, 2B, 3B]}}", "sum to 6 bytes, bytes says 9"),
    ("{all_to_all_single: {splits: [1B, 2B]}}", "splits: 2 sizes for the 3 members"),
    (
        "{all_to_all_single: {splits: [1B, 2B, 3B], output_splits: [1B]}}",
        "output_splits: 1 sizes for the 3 members",
    ),
    ("{all_to_all: {bytes: 3B, output_splits: [1B, 1B, 1B]}}", "output_splits: go with splits"),
    (
        "{all_to_all: {splits: [1B, 1B, 1B], output_splits: [1B, 2B, 1B]}}",
        "rank 0 expects 2 bytes from rank 1, whose splits send it 1",
    ),
    (
        "{all_to_all: {splits: [1B, 1B, 3B], output_splits: [1B, 1B, 0B]}}",
        "rank 0 expects 0 bytes from rank 2, whose splits send it 1",
    ),
    ("{all_reduce: {bytes: 3B, splits: [1B, 1B, 1B]}}", "all_reduce has no splits"),
    ("{barrier: {bytes: 1B}}", "barrier moves no bytes"),
    ("{compute: {duration: 1ms, as: c}}", "compute on the main stream blocks"),
    ("{isend: {to: 1, dst: 1, bytes: 1B}}", "isend.dst: is the same as to"),
    ("{all_reduce: {bytes: 1B, device: gpu}}", "'gpu' is not one of: cuda, cpu"),
    ("{wait: []}", "wait: the list is empty. Name a call to wait for."),
    ("{isend: {to: 1, bytes: 1B, tag: -1}}", "isend.tag: -1: a tag is 0 or more"),
    ("{recv: {from: 1, bytes: 1B, tag: -2}}", "recv.tag: -2: a tag is 0 or more"),
    ("synchronise", "'synchronise' is not a call. Did you mean 'synchronize'?"),
    ("{batch_isend_irecv: []}", "batch_isend_irecv: the list is empty"),
    ("{batch_isend_irecv: [{send: {to: 1, bytes: 1B}}]}", "send: only isend and irecv go in here"),
    (
        "{batch_isend_irecv: [{isend: {to: 1, bytes: 1B, as: s}}]}",
        "ops.0.as: the batch is waited for as a whole",
    ),
    (
        "{coalesced: [{all_reduce: {bytes: 1B}}, {all_gather: {bytes: 1B}}]}",
        "all_reduce, all_gather: give calls of one kind",
    ),
    (
        "{coalesced: [{all_reduce: {bytes: 1B}}, {all_reduce: {bytes: 1B, op: max}}]}",
        "calls.1: differs from the first call in more than its bytes",
    ),
    ("{coalesced: [{all_reduce: {bytes: 1B, as: a}}]}", "as and async belong to the coalesced"),
    ("{coalesced: [{compute: 1ms}]}", "compute: only collectives are coalesced"),
    ("{coalesced: []}", "nothing: give calls of one kind"),
    ("{new_group: {name: g, ranks: [0, 7]}}", "groups.g: no rank 7: there are 3 ranks"),
    ("{new_group: {name: g, ranks: [0], backend: mpi}}", "backend: unknown library 'mpi'"),
    (
        "{new_group: {name: g, ranks: [0]}}, {new_group: {name: g, ranks: [1]}}",
        "group 'g' is made twice",
    ),
    ("{new_group: {name: world, ranks: [0]}}", "there is a group of that name"),
    ("{synchronize: {now: true}}", "synchronize: now: unknown setting 'now'"),
    ("{copy_to_host: 3}", "copy_to_host: bytes: 3 has no unit"),
]


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[words[:48] for _, words in WRONG])
def test_misuse_is_refused_with_its_path(text: str, words: str) -> None:
    assert words in call(text)()


def test_every_rank_makes_the_same_groups() -> None:
    one = "{new_group: {name: g, ranks: [0, 1]}}"
    missing = refused(f"ranks: {{0: [{one}], 1: []}}")
    assert "rank 1 does not make group 'g'. Every rank of the world calls new_group" in missing
    surplus = refused(f"ranks: {{0: [{one}], 1: [{one}, {one}]}}")
    assert "rank 0 does not make group 'g'" in surplus
    other = refused(f"ranks: {{0: [{one}], 1: [{{new_group: {{name: g, ranks: [1]}}}}]}}")
    assert "rank 1 makes 'g' of [1], where rank 0 makes 'g' of [0, 1]" in other
    assert "rank 2 does not make" in refused(f"ranks: {{0: [{one}], 1: [{one}]}}", world_size=3)


def test_a_group_names_a_library_that_there_is_and_names_it_once() -> None:
    text = "{groups: {g: {ranks: [0], library: glo}}, ranks: {0: [barrier]}}"
    assert "groups.g.library: unknown library 'glo'. Did you mean 'gloo'?" in refused(text)
    text = "{groups: {g: {ranks: [0], library: gloo, backend: gloo}}, ranks: {0: [barrier]}}"
    assert "groups.g.backend: is the same as library" in refused(text)


def test_different_reduce_ops_on_two_ranks_are_shown() -> None:
    message = refused(
        "ranks: {0: [{all_reduce: {bytes: 8B, op: sum}}], 1: [{all_reduce: {bytes: 8B, op: max}}]}"
    )
    assert "all_reduce of 8 B, sum" in message
    assert "all_reduce of 8 B, max" in message


def test_a_collective_that_a_rank_forgets_is_a_deadlock_that_names_it() -> None:
    with pytest.raises(DeadlockError, match="all_reduce of 8 B.*waits for rank 1"):
        run("ranks: {0: [{all_reduce: {bytes: 8B}}], 1: [{compute: 1ms}]}")
