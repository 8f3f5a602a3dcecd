"""Formats that say what was issued and not when: read, written, and read again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.recorded_calls import GLOO, dump, entry, rows

from commsim.engine import simulate
from commsim.errors import ScenarioError, TraceError
from commsim.export import convert
from commsim.graph import GraphBuilder, OpKind
from commsim.libraries import Ideal, Recorded
from commsim.traces import import_graph
from commsim.traces.formats.detect import FORMATS
from commsim.traces.formats.files import Document
from commsim.traces.formats.nccl_log import read_nccl_log
from commsim.traces.formats.param.reader import read_param

US = 1_000_000


LOG = """\
h:{pid}:{pid} [{r}] NCCL INFO ncclCommInitRank comm 0x5{r} rank {r} nranks 2 cudaDev {r} busId 1 \
commId 0xabc - Init COMPLETE
h:{pid}:9 [{r}] NCCL INFO AllReduce: opCount a sendbuff 0x1 recvbuff 0x2 count 18816 datatype 7 \
op 0 root 0 comm 0x5{r} [nranks=2] stream 0x7
h:{pid}:9 [{r}] NCCL INFO AllGather: opCount b sendbuff 0x1 recvbuff 0x2 count 100 datatype 9 \
op 0 root 0 comm 0x5{r} [nranks=2] stream 0x7
h:{pid}:9 [{r}] NCCL INFO ReduceScatter: opCount c sendbuff (nil) recvbuff 0x2 count 100 \
datatype 9 op 0 root 0 comm 0x5{r} [nranks=2] stream 0x7
"""


def test_an_nccl_log_counts_per_rank(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("".join(LOG.format(pid=40 + r, r=r) for r in (1, 0)) + "something else\n")
    found = import_graph(path)
    assert rows(found.graph) == [
        ("all_reduce", 18816 * 4, (0, 1)), ("all_gather", 400, (0, 1)),
        ("reduce_scatter", 400, (0, 1)),
    ]  # fmt: skip
    assert found.graph.lane_rank.tolist() == [0, 1]


def test_a_log_that_names_no_ranks_is_refused(tmp_path: Path) -> None:
    line = LOG.splitlines()[1]
    lines = [line.format(pid=pid, r=0) for pid in (1, 2, 3)]
    (tmp_path / "run.log").write_text("\n".join(lines))
    with pytest.raises(TraceError, match="which rank each process is"):
        import_graph(tmp_path / "run.log")


@pytest.mark.parametrize("camel", [False, True])
def test_param_counts_elements_and_knows_waits(tmp_path: Path, camel: bool) -> None:
    keys = ("inMsgSize", "outMsgSize") if camel else ("in_msg_size", "out_msg_size")
    calls = [
        {"comms": "init", "pg_id": 0, "global_ranks": [0, 1]},
        {"comms": "all_reduce", "req": 1, keys[0]: 100, keys[1]: 100, "dtype": "Int", "pg_id": 0},
        {"comms": "all_gather_base", "req": 2, keys[0]: 8, keys[1]: 16, "dtype": "Half"},
        {"comms": "wait", "req": 1},
        {"comms": "barrier", "req": 3},
    ]
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(calls))
    graph = import_graph(tmp_path).graph
    assert [(op, size) for op, size, _ in rows(graph)] == [
        ("all_reduce", 400), ("all_gather", 32), ("barrier", -1),
    ] or [(op, max(0, size)) for op, size, _ in rows(graph)] == [
        ("all_reduce", 400), ("all_gather", 32), ("barrier", 0),
    ]  # fmt: skip
    first, second, last = np.flatnonzero(graph.lane == 0).tolist()
    causes = [graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist() for op in
              (first, second, last)]  # fmt: skip
    assert causes == [[], [], [second, first]]


GOAL = """num_ranks 2

rank 0 {
l2: send 1024b to 1 tag 5 cpu 0 nic 0
l1: calc 500
l2 requires l1
}
rank 1 {
l1: recv 1024b from 0 tag 5
l2: calc 70 cpu 1
l2 requires l1
l3: calc 7
l3 irequires l2
}
"""


def test_goal_keeps_what_requires_what(tmp_path: Path) -> None:
    path = tmp_path / "x.goal"
    path.write_text(GOAL)
    graph = import_graph(path).graph
    graph.messages.recorded[0] = 30_000
    timeline = simulate(graph, None, library=Recorded())
    ends = {graph.op_name(op): int(timeline.end[op]) for op in range(len(graph))}
    assert graph.messages.size.tolist() == [1024]
    assert ends["send to 1"] == ends["recv from 0"] == 530_000
    calcs = sorted(int(timeline.end[op]) for op in range(len(graph)) if graph.lane[op] == 1)
    assert calcs == [530_000, 537_000, 600_000]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("l2 requires l1\n}\nrank", "l2 requires l9\n}\nrank"), "is no GOAL"),
        (("calc 500", "calc now"), "is no GOAL"),
        (("l2 requires l1\n}\nrank", "l2 requires l1\nl1 requires l2\n}\nrank"), "cycle"),
        (("l3 irequires l2\n}", "l3 irequires l2"), "cut off"),
        (("num_ranks 2", "num_ranks 99999999999"), "no number of ranks"),
    ],
)
def test_a_broken_goal_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    path = tmp_path / "x.goal"
    path.write_text(GOAL.replace(*change))
    with pytest.raises(TraceError, match=says):
        import_graph(path)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Three ranks: work, an all_reduce, a broadcast from rank 2, a message, an uneven exchange."""
    build = GraphBuilder()
    world = build.group("world", range(3), library="nccl")
    for rank in range(3):
        lane = build.lane(rank)
        work = build.compute(lane, 10 * US + 123 * rank, name="F")
        first = build.collective(lane, world, "all_reduce", 3 * 2**16, stream="nccl",
                                 dtype="bfloat16", after=[work], recorded=7 * US)  # fmt: skip
        build.collective(lane, world, "broadcast", 2**16, stream="nccl", root=2, recorded=US)
        build.collective(lane, world, "all_gather", 3 * 2**14, stream="nccl", recorded=US)
        build.collective(lane, world, "all_to_all_v", 600, stream="nccl", recorded=US,
                         splits=[100, 200, 300])  # fmt: skip
        if rank < 2:
            post = build.send if rank == 0 else build.recv
            post(lane, 1 - rank, 4096, group=world, stream="p2p", after=[first], recorded=2 * US)
    graph = build.build()
    from commsim.graph import save_graph

    save_graph(graph, tmp_path / "program.npz")
    return tmp_path / "program.npz"


@pytest.mark.parametrize("to", ["chakra", "chakra-json"])
def test_chakra_carries_a_program_and_its_times(program: Path, to: str) -> None:
    if to == "chakra":
        pytest.importorskip("google.protobuf")
    folder = program.parent / "out"
    folder.mkdir()
    before = import_graph(program).graph
    done = convert(program, folder / "base", to=to)
    assert sorted(path.name for path in done.written)[-1] == "base.comm_group.json"
    assert any("all_to_all_v is written as an even" in note for note in done.notes)
    after = import_graph(folder).graph
    expected = rows(before)
    expected[3] = ("all_to_all", 600, (0, 1, 2))
    assert sorted(rows(after)) == sorted(expected)
    assert after.collectives.root.tolist().count(2) == 1
    ends = [simulate(g, None, library=Recorded()).end.max() for g in (before, after)]
    assert ends[0] == ends[1] == 20 * US + 2 * 123


def test_goal_writes_collectives_as_sends_that_move_the_same_bytes(program: Path) -> None:
    path = program.parent / "x.goal"
    done = convert(program, path)
    assert any("all_reduce by ring" in note for note in done.notes)
    graph = import_graph(path).graph
    moved = int(graph.messages.size.sum())
    ring = 2 * 2 * 3 * 2**16  # 2 (n - 1) S over all ranks
    assert moved == ring + 2 * 2**16 + 2 * 3 * 2**14 + (500 + 400 + 300) + 4096
    timeline = simulate(graph, None, library=_Free())
    assert int(timeline.end.max()) == 10 * US  # whole nanoseconds: 10,000.246 ns are 10,000


class _Free(Recorded):
    """Messages that take no time."""

    def plan(self, request, cluster):
        from msgspec.structs import replace

        return super().plan(replace(request, recorded=0), cluster)


@pytest.mark.parametrize(("stated", "world"), [({}, 0), ({"world_size": 4}, 4)])
def test_a_param_trace_without_a_world_says_none(stated: dict[str, int], world: int) -> None:
    row = {"comms": "all_reduce", "req": 1, "in_msg_size": 8, "out_msg_size": 8, "dtype": "Float"}
    document = Document("rank3.json", json.dumps([row | stated]).encode())
    assert read_param(document).world_size == world


def test_param_carries_the_communication(program: Path) -> None:
    folder = program.parent / "out"
    folder.mkdir()
    convert(program, folder / "p", to="param")
    graph = import_graph(folder).graph
    assert sorted(rows(graph)) == sorted(rows(import_graph(program).graph))
    assert (
        graph.collectives.splits[[r[0] for r in rows(graph)].index("all_to_all_v")]
        == ((100, 200, 300),) * 3
    )
    assert not (graph.kind == OpKind.COMPUTE).any()


@pytest.mark.parametrize("to", ["graph", "goal", "chakra", "chakra-json", "param"])
def test_messages_whose_other_end_was_not_recorded_go_to_every_format(
    tmp_path: Path, to: str
) -> None:
    """Rank 0 alone: its sends and receives keep their recorded times as work."""
    source, target = GLOO / "p2p-2" / "rank0.json.gz", tmp_path / "one.npz"
    done = convert(source, target, to=to)
    alone = import_graph(source).graph
    lone = alone.collectives.kind.count("send_recv")
    assert lone > 0
    if to in ("chakra", "chakra-json", "param"):
        assert any(f"{lone} sends and receives without" in note for note in done.notes)
    if to.startswith("chakra"):
        again = import_graph(tmp_path).graph
        work = again.duration[again.kind == OpKind.COMPUTE].tolist()
        rows = [kind == "send_recv" for kind in alone.collectives.kind]
        assert set(alone.collectives.recorded[rows].tolist()) <= set(work)


def test_a_schedule_goes_there_and_back(tmp_path: Path) -> None:
    text = "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n"
    (tmp_path / "s.csv").write_text(text)
    convert(tmp_path / "s.csv", tmp_path / "s.npz")
    convert(tmp_path / "s.npz", tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.mark.parametrize(
    ("target", "to", "says"),
    [
        ("x.unknown", "", "does not say which format"),
        ("x", "gaol", "did you mean 'goal'"),
        ("nowhere/x.goal", "", "no folder"),
    ],
)
def test_a_target_that_says_nothing_is_refused(
    program: Path, target: str, to: str, says: str
) -> None:
    with pytest.raises(ScenarioError, match=f"(?i){says}"):
        convert(program, program.parent / target, to=to)


def test_only_a_pipeline_becomes_a_schedule(program: Path) -> None:
    with pytest.raises(TraceError, match="only a pipeline"):
        convert(program, program.parent / "x.csv")


def test_astra_sims_examples_run_as_they_are(shared_data: Path) -> None:
    pytest.importorskip("google.protobuf")
    folder = shared_data / "traces/dev_chakra"
    whole = import_graph(folder / "all_reduce_8npus_1MB").graph
    assert rows(whole) == [("all_reduce", 2**20, tuple(range(8)))]
    ring = import_graph(folder / "custom_ring_allreduce_8npus_1MB").graph
    assert len(ring.messages) == 8 * 14
    assert set(ring.messages.size.tolist()) == {2**17}
    assert (ring.messages.send_op >= 0).all()
    assert (ring.messages.recv_op >= 0).all()


def test_cpu_launchers_of_a_real_chakra_trace_are_no_collectives(shared_data: Path) -> None:
    pytest.importorskip("google.protobuf")
    found = import_graph(shared_data / "traces/dev_chakra/feeder_tests_trace.tar.gz")
    assert [kind for kind, _, _ in rows(found.graph)].count("all_reduce") == 5
    assert len(found.graph.collectives) == 7
    assert any("14 CPU launchers" in note for note in found.notes)


@pytest.mark.parametrize(
    ("path", "ops"),
    [
        ("dev_param_dlrm_8xV100/dlrm_pytorch_et.tar.gz", 64),  # 1.0.1
        ("dev_chakra/1.0.2-chakra.0.0.4.tgz", 10),
        ("dev_param_resnet_et/resnet_1gpu_et.json.gz", 21),  # 1.0.3
        ("dev_param_resnet_et/resnet_2gpu_et.json.gz", 21),  # 1.1.0
    ],
)
def test_execution_traces_of_every_schema_give_their_calls(
    shared_data: Path, path: str, ops: int
) -> None:
    found = import_graph(shared_data / "traces" / path)
    assert len(found.graph) == ops
    if "1gpu" not in path:
        assert {len(group.ranks) for group in found.graph.groups} == {8 if "dlrm" in path else 2}
    assert all(size > 0 for kind, size, _ in rows(found.graph) if kind != "barrier")


def test_the_execution_trace_of_today_gives_messages_and_bytes() -> None:
    """Schema 1.1.1, of Gloo: no record_param_comms, the c10d ops say it."""
    graph = import_graph(sorted((GLOO / "p2p-2").glob("*.et.json.gz"))).graph
    calls = json.loads((GLOO / "p2p-2" / "rank0.calls.json").read_text())
    sent = [call["in"] for call in calls if call["op"] == "send"]
    assert sorted(graph.messages.size[graph.messages.source == 0].tolist()) == sorted(sent)
    assert [kind for kind, _, _ in rows(graph)] == [
        "barrier", "broadcast", "all_to_all", "all_reduce",
    ]  # fmt: skip


def test_an_untimed_trace_runs_on_a_cluster() -> None:
    graph = import_graph(sorted((GLOO / "ddp-2").glob("*.et.json.gz"))).graph
    from commsim.cluster import Cluster

    timeline = simulate(graph, Cluster.preset("dgx-h100"), library=Ideal())
    assert int(timeline.end.max()) > 0


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "x.goal").write_text(GOAL)
    (tmp_path / "rank0.json").write_text(json.dumps(dump([entry("nccl:all_reduce", 1)])))
    with pytest.raises(TraceError, match="several formats"):
        import_graph(tmp_path)


def test_an_nccl_log_of_a_part_knows_the_ranks_up_to_the_last(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("".join(LOG.format(pid=40 + r, r=r) for r in (1, 0)))
    records = read_nccl_log(Document("run.log", path.read_bytes()))
    assert [(record.rank, record.world_size) for record in records] == [(0, 2), (1, 2)]
    assert [len(record.calls) for record in records] == [3, 3]


@pytest.mark.parametrize(("exact", "ps"), [(-1, 5 * US), (0, 0), (7, 7)])
def test_chakras_exact_duration_counts_before_its_microseconds(
    exact: int, ps: int, tmp_path: Path
) -> None:
    """An attribute of commsim's own: `duration_ps`; 0 says that it takes no time."""
    attribute = {"name": "duration_ps", "int64Val": exact}
    node = {"id": 1, "name": "work", "type": "COMP_NODE", "durationMicros": 5, "attr": []}
    last = node | {"id": 2, "durationMicros": 1, "ctrlDeps": [1]}
    rows = [{"version": "0.0.4"}, node | {"attr": [attribute] if exact >= 0 else []}, last]
    (tmp_path / "x.0.json").write_text("".join(json.dumps(row) for row in rows))
    graph = import_graph(tmp_path / "x.0.json").graph
    assert sorted(graph.duration.tolist()) == sorted([ps, 1 * US])


@pytest.mark.parametrize(("size", "known"), [(2**26, True), (2**26 + 1, False)])
def test_a_file_of_groups_has_at_most_64_mib(size: int, known: bool) -> None:
    """What is larger is a trace, and is not read to find out that it is none."""
    groups = b'{"0": [0, 1]' + b" " * (size - 13) + b"}"
    assert len(groups) == size
    groups_format = FORMATS.get("groups", "here")
    assert groups_format.knows(Document("groups.json", groups)) is known
