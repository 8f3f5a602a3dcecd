"""Small traces whose every time is known."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from helpers.kineto_writer import COMMS, COMPUTE, OLD, Recording, late_rank

from commsim.engine import simulate
from commsim.errors import TraceError
from commsim.graph import Device, Graph, OpKind, Phase
from commsim.graph.edit import add_work, scale_compute
from commsim.libraries import Recorded
from commsim.timeline import Cause, Timeline
from commsim.traces import Trace, load_trace

US = 1_000_000


@pytest.fixture
def two_ranks(tmp_path: Path) -> Trace:
    for rank in (0, 1):
        late_rank(rank).save(tmp_path)
    return load_trace(tmp_path)


def replay(graph: Graph) -> Timeline:
    return simulate(graph, None, library=Recorded())


def step(timeline: Timeline, lane: int) -> int:
    first, last = timeline.graph.window[lane]
    return int(timeline.end[last] - timeline.start[first])


def op_named(graph: Graph, lane: int, name: str) -> int:
    names = [i for i in range(len(graph)) if graph.op_name(i) == name and graph.lane[i] == lane]
    gpu = [i for i in names if graph.device[i] == Device.CUDA]
    return gpu[0] if gpu else names[0]


def test_kernel_arguments_give_op_bytes_type_and_group(two_ranks: Trace) -> None:
    (row,) = two_ranks.collectives
    assert (row.op, row.size, row.dtype, row.group, row.ranks) == (
        "all_reduce", 4000, "float32", "0", (0, 1),
    )  # fmt: skip


@pytest.mark.parametrize("elements", [(1000, 1000), (1000, 2000)])
def test_ranks_that_send_different_amounts_are_noted(
    elements: tuple[int, int], tmp_path: Path
) -> None:
    """Two of them suffice: an all_to_all without splits, 4 bytes an element."""
    for rank, count in enumerate(elements):
        record = Recording(rank)
        record.all_reduce(100, 200, 300, elements=count, name="all_to_all")
        record.save(tmp_path)
    trace = load_trace(tmp_path)
    noted = [note for note in trace.notes if "send different amounts" in note]
    assert len(noted) == (elements[0] != elements[1])
    assert trace.collectives[0].size == 4 * max(elements)


def test_wait_is_told_from_transfer(two_ranks: Trace) -> None:
    (row,) = two_ranks.collectives
    assert row.transfer == 40 * US
    assert row.last_arriver == 1
    assert row.waits == {0: 300 * US, 1: 0}


def test_replay_is_the_recording(two_ranks: Trace) -> None:
    measured, again = two_ranks.timeline(), replay(two_ranks.graph())
    assert (measured.start == again.start).all()
    assert (measured.end == again.end).all()
    assert (measured.arrive == again.arrive).all()
    assert [step(again, lane) for lane in (0, 1)] == [1000 * US, 1000 * US]


def test_measured_timeline_says_who_was_waited_for(two_ranks: Trace) -> None:
    timeline = two_ranks.timeline()
    graph = timeline.graph
    first, second = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
    assert timeline.source == "measured"
    assert (timeline.cause[first], timeline.cause_kind[first]) == (second, Cause.RENDEZVOUS)
    assert timeline.cause_kind[second] != Cause.RENDEZVOUS
    assert timeline.cause[second] == op_named(graph, 1, "volta_sgemm")


def test_time_inside_a_blocking_call_is_no_work(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    cpu = (graph.device == Device.CPU) & (graph.lane == 0)
    # the sync begins at 185 and the last kernel ends at 560: 375 us of the step are a wait
    assert int(graph.duration[cpu].sum()) == (1000 - 375) * US


def test_graph_holds_no_recorded_wait(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    assert int(graph.dep_delay.max()) <= 10 * US
    assert graph.collectives.recorded.tolist() == [40 * US]


def test_without_the_late_kernel_nobody_waits_and_the_step_is_shorter(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    duration = graph.duration.copy()
    duration[op_named(graph, 1, "volta_sgemm")] = 100 * US
    faster = Graph(
        **{f: getattr(graph, f) for f in graph.__struct_fields__} | {"duration": duration}
    )
    again = replay(faster)
    assert (again.start - again.arrive).max() == 0
    assert step(again, 0) == step(again, 1) == (1000 - 300) * US


def test_work_on_the_early_rank_moves_the_other_by_what_exceeds_its_slack(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    within = replay(add_work(graph, rank=0, before_collective=0, duration=200 * US))
    beyond = replay(add_work(graph, rank=0, before_collective=0, duration=1000 * US))
    assert step(within, 1) == 1000 * US
    # rank 0 launches at 110 with 57 us to spare before its own kernel ends, and 300 us of slack
    gained = step(beyond, 1) - 1000 * US
    launch_delay = min(7, 52) * US  # typical latency of a launch, at most what was left
    arrive = 110 * US + 1000 * US
    assert arrive - 467 * US <= gained <= arrive + launch_delay + 5 * US - 467 * US


def test_faster_compute_shortens_the_step(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    assert step(replay(scale_compute(graph, 0.5)), 0) < 600 * US


def test_a_shifted_clock_is_recovered(tmp_path: Path, two_ranks: Trace) -> None:
    (tmp_path / "skewed").mkdir()
    late_rank(0).save(tmp_path / "skewed")
    late_rank(1, clock=4321.0).save(tmp_path / "skewed")
    skewed = load_trace(tmp_path / "skewed")
    assert skewed.offsets[1] - skewed.offsets[0] == 4321 * US
    assert skewed.residual == 0
    assert skewed.collectives[0].waits == {0: 300 * US, 1: 0}
    assert (skewed.timeline().start == two_ranks.timeline().start).all()


def test_four_skewed_clocks_are_recovered(tmp_path: Path) -> None:
    shifts = [0.0, 900.0, -2500.0, 40.0]
    for rank, shift in enumerate(shifts):
        record = Recording(rank, world=4)
        record.note("ProfilerStep#1", 1e15 + shift, 900)
        for k in range(3):
            arrive = 1e15 + shift + 100 + 200 * k + 11 * rank
            record.all_reduce(arrive - 40, arrive, 1e15 + shift + 190 + 200 * k)
        record.save(tmp_path)
    offsets = load_trace(tmp_path).offsets
    assert [offsets[r] - offsets[0] for r in range(4)] == [round(s * US) for s in shifts]


def test_a_base_time_counts(tmp_path: Path, two_ranks: Trace) -> None:
    for rank in (0, 1):
        record = late_rank(rank, start=7.0)
        record.base = 1_600_000_000_000_000_000 + 1000 * rank  # rank 1's base is 1 us later
        record.save(tmp_path)
    trace = load_trace(tmp_path)
    assert trace.offsets[1] - trace.offsets[0] == 1 * US
    assert (trace.timeline().end == two_ranks.timeline().end).all()


def test_nanoseconds_count(tmp_path: Path) -> None:
    for rank in (0, 1):
        record = late_rank(rank, start=7.0, clock=0.375 * rank)
        record.base = 1_600_000_000_000_000_000
        record.save(tmp_path)
    trace = load_trace(tmp_path)
    assert trace.offsets[1] - trace.offsets[0] == 375_000
    assert trace.collectives[0].waits == {0: 300 * US, 1: 0}


def test_old_category_names_read_the_same(tmp_path: Path, two_ranks: Trace) -> None:
    (tmp_path / "old").mkdir()
    for rank in (0, 1):
        late_rank(rank, cats=OLD).save(tmp_path / "old")
    old = load_trace(tmp_path / "old").timeline()
    assert (old.start == two_ranks.timeline().start).all()


def test_without_arguments_the_op_is_known_and_the_size_is_not(tmp_path: Path) -> None:
    for rank in (0, 1):
        late_rank(rank, modern=False).save(tmp_path)
    trace = load_trace(tmp_path)
    assert (trace.collectives[0].op, trace.collectives[0].size) == ("all_reduce", -1)
    assert any("no known size" in note for note in trace.notes)
    assert trace.graph().collectives.size.tolist() == [-1]


def test_gzip_and_tar_read_the_same(tmp_path: Path, two_ranks: Trace) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    packed = json.dumps(late_rank(0).content()).encode()
    (folder / "rank0.json.gz").write_bytes(gzip.compress(packed))
    with tarfile.open(folder / "rest.tar.gz", "w:gz") as archive:
        content = json.dumps(late_rank(1).content()).encode()
        for name in ("._rank1.json", "run/rank1.json"):
            member = tarfile.TarInfo(name)
            member.size = len(content) if not name.startswith("._") else 3
            archive.addfile(member, io.BytesIO(content))
    trace = load_trace(folder)
    assert trace.ranks == (0, 1)
    assert (trace.timeline().end == two_ranks.timeline().end).all()


def test_several_paths(tmp_path: Path) -> None:
    paths = [late_rank(rank).save(tmp_path, f"{rank}.json") for rank in (0, 1)]
    assert load_trace(paths).ranks == (0, 1)


def test_rank_from_the_file_name(tmp_path: Path) -> None:
    for rank in (0, 1):
        content = late_rank(rank).content()
        del content["distributedInfo"]["rank"]
        (tmp_path / f"worker{rank}_step_12.1694.pt.trace.json").write_text(json.dumps(content))
    assert load_trace(tmp_path).ranks == (0, 1)


def test_several_files_without_a_rank_are_refused(tmp_path: Path) -> None:
    for rank, name in enumerate(("alpha.json", "beta.json")):
        content = late_rank(rank).content()
        del content["distributedInfo"]["rank"]
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(TraceError, match="does not say its rank"):
        load_trace(tmp_path)


def test_one_rank_twice_is_refused(tmp_path: Path) -> None:
    late_rank(1).save(tmp_path, "a.json")
    late_rank(1).save(tmp_path, "b.json")
    with pytest.raises(TraceError, match=r"a\.json and .*b\.json are both of rank 1"):
        load_trace(tmp_path)


def test_calls_that_differ_are_shown_with_both_ranks(tmp_path: Path) -> None:
    late_rank(0).save(tmp_path)
    other = late_rank(1)
    for event in other.events:
        if "In msg nelems" in event["args"]:
            event["args"] |= {"In msg nelems": 500, "Out msg nelems": 500}
    other.save(tmp_path)
    with pytest.raises(
        TraceError, match=r"(?s)rank 0: all_reduce of 3.9.*rank 1: all_reduce of 1.9"
    ):
        load_trace(tmp_path)


def test_groups_of_one_name_and_other_ranks_are_not_mixed(tmp_path: Path) -> None:
    for rank in range(4):
        record = Recording(rank, world=4)
        record.note("ProfilerStep#1", 1000, 500)
        ranks = "[0, 1]" if rank < 2 else "[2, 3]"
        record.all_reduce(
            1050, 1100 + 10 * rank, 1200, elements=8 + rank // 2, ranks=ranks, group="1"
        )
        record.save(tmp_path)
    rows = load_trace(tmp_path).collectives
    assert [(row.ranks, row.size) for row in rows] == [((0, 1), 32), ((2, 3), 36)]
    assert [row.last_arriver for row in rows] == [1, 3]


def test_a_missing_rank_is_noted_and_the_rest_replays(tmp_path: Path) -> None:
    late_rank(0).save(tmp_path)
    trace = load_trace(tmp_path)
    assert any("[0] are recorded" in note for note in trace.notes)
    assert step(replay(trace.graph()), 0) == 1000 * US


def test_a_sequence_number_beats_the_order(tmp_path: Path) -> None:
    for rank, numbers in ((0, (7, 8)), (1, (8,))):
        record = Recording(rank)
        record.note("ProfilerStep#1", 1000, 900)
        for number in numbers:
            end = 1000 + 200 * (number - 6)
            record.all_reduce(end - 150, end - 90 + 20 * rank, end, elements=number)
            for event in record.events:
                if event["args"].get("In msg nelems") == number:
                    event["args"]["Seq"] = number
        record.save(tmp_path)
    trace = load_trace(tmp_path)
    assert [(row.size, sorted(row.waits)) for row in trace.collectives] == [(28, [0]), (32, [0, 1])]
    assert any("rank 1: 1 collectives of its groups" in note for note in trace.notes)


def test_main_thread_does_not_work_while_autograd_does(tmp_path: Path) -> None:
    record = Recording(0, world=1)
    record.note("ProfilerStep#1", 0, 3000)
    record.op("aten::sum", 100, 50)
    for k in range(20):
        record.op("autograd::engine::evaluate_function: MmBackward0", 200 + 100 * k, 90, tid=101)
        record.kernel("bwd", 220 + 100 * k, 230 + 100 * k, 30, tid=101)
    record.op("aten::add_", 2500, 50)
    record.save(tmp_path)
    graph = load_trace(tmp_path).graph()
    names = [graph.streams[s] for s in graph.stream]
    main = [i for i, name in enumerate(names) if name == "cpu"]
    backward = [i for i, name in enumerate(names) if name == "autograd"]
    assert int(graph.duration[main].sum()) == (150 + 3000 - 2190) * US
    assert int(graph.duration[backward].sum()) == (2190 - 150) * US
    assert {int(graph.phase[i]) for i in backward if graph.duration[i]} == {Phase.BACKWARD}
    doubled = replay(scale_compute(graph, 2.0))
    assert step(doubled, 0) == 6000 * US


def delay_of_a_wait(begins: int, folder: Path) -> int | None:
    """Return how long after the producer (until 220 us) its consumer begins; None if none waits."""
    record = Recording(0, world=1)
    record.note("ProfilerStep#1", 0, 500)
    record.kernel("producer", 10, 20, 200, stream=COMPUTE)
    recorded = record.call("cudaEventRecord", 30, 1)
    waited = record.call("cudaStreamWaitEvent", 40, 1)
    record.event(
        "cuda_sync", "Stream Wait Event", 41, 1, pid=0, tid=9, stream=9, correlation=waited,
        wait_on_stream=COMPUTE, wait_on_cuda_event_record_corr_id=recorded,
    )  # fmt: skip
    record.kernel("consumer", 50, begins, 10, stream=9)
    record.save(folder)
    graph = load_trace(folder).graph()
    consumer, producer = op_named(graph, 0, "consumer"), op_named(graph, 0, "producer")
    entries = slice(graph.dep_ptr[consumer], graph.dep_ptr[consumer + 1])
    causes = graph.dep_op[entries].tolist()
    return dict(zip(causes, graph.dep_delay[entries].tolist(), strict=True)).get(producer)


def test_cuda_sync_events_tie_streams(tmp_path: Path) -> None:
    assert delay_of_a_wait(223, tmp_path) == 3 * US


def test_compute_after_a_wait_depends_on_the_collective(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    add = op_named(graph, 0, "add_kernel")
    causes = graph.dep_op[graph.dep_ptr[add] : graph.dep_ptr[add + 1]]
    assert OpKind.COLLECTIVE in graph.kind[causes].tolist()


def test_a_collective_depends_on_the_compute_before_it(two_ranks: Trace) -> None:
    graph = two_ranks.graph()
    op = int(np.flatnonzero(graph.kind == OpKind.COLLECTIVE)[0])
    causes = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist()
    assert op_named(graph, 0, "volta_sgemm") in causes


def test_execution_trace_says_what_a_wait_waits_for(tmp_path: Path) -> None:
    """Both collectives have ended when the kernel starts; the wait names the first."""
    record = Recording(0, world=1)
    record.note("ProfilerStep#1", 0, 900)
    record.all_reduce(50, 70, 200, modern=False)
    record.all_reduce(100, 201, 300, modern=False)
    record.op("record_param_comms", 150, 5)
    record.call("cudaStreamWaitEvent", 151, 1)
    record.kernel("after", 400, 410, 10)
    record.save(tmp_path)
    tensor = [[1, 2, 0, 256, 4, "cuda:0"]]
    nodes = [
        {"rf_id": 1, "inputs": [tensor, 5, 99, 0, "allreduce", [], []]},
        {"rf_id": 2, "inputs": [tensor, 6, 99, 0, "allreduce", [], []]},
        {"rf_id": 3, "inputs": [5, 99, 0, "wait", [], []]},
    ]
    types = {"name": "record_param_comms", "input_types": ["GenericList[Tensor(float)]"]}
    content = {"schema": "1.0.1", "pid": 4242, "nodes": [types | node for node in nodes]}
    (tmp_path / "et.json").write_text(json.dumps(content))
    trace = load_trace(tmp_path)
    assert [row.size for row in trace.collectives] == [1024, 1024]
    graph = trace.graph()
    op = op_named(graph, 0, "after")
    causes = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]]
    waited = [int(graph.item[c]) for c in causes if graph.kind[c] == OpKind.COLLECTIVE]
    assert waited == [0]


def test_streams_are_named_for_what_they_carry(two_ranks: Trace) -> None:
    assert set(two_ranks.graph().streams) == {"cpu", f"stream {COMPUTE}", f"nccl {COMMS}"}


def test_repr_is_honest(two_ranks: Trace) -> None:
    assert repr(two_ranks) == "Trace(2 ranks, 1 collectives, longest step 1 ms)"
    assert repr(two_ranks.collectives) == "CollectiveTable(1 collectives, transfer 40 us in all)"
    assert "rank 1" in str(two_ranks.collectives)


@pytest.mark.parametrize(("early", "waits"), [(1, True), (2, True), (3, False)])
def test_a_wait_may_end_two_us_before_what_it_waits_for(
    early: int, waits: bool, tmp_path: Path
) -> None:
    """Old traces have whole microseconds: start and end may each seem one early or late."""
    assert (delay_of_a_wait(220 - early, tmp_path) is not None) is waits
