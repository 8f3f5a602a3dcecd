"""Point-to-point, coalesced and batched calls, cut lists, CUDA graphs: small traces by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.kineto_writer import Recording

from commsim.engine import simulate
from commsim.errors import TraceError
from commsim.graph import OpKind
from commsim.libraries import Recorded
from commsim.traces import Trace, load_trace

US = 1_000_000
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def args(name: str, elements: int, **more: Any) -> dict[str, Any]:
    """Return what torch 2.5 writes on a record_param_comms."""
    return {
        "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements,
        "dtype": "Float", "In split size": "[]", "Process Group Name": "pp", "Group size": 2,
        "Process Group Ranks": "[0, 1]",
    } | more  # fmt: skip


def batch(record: Recording, at: float, ts: float, end: float, calls: list[dict[str, Any]]) -> None:
    """Add a batch: calls that launch nothing, then one kernel under nccl:coalesced."""
    for k, call in enumerate(calls):
        record.op("record_param_comms", at + 3 * k, 2, **call)
    record.note("nccl:coalesced", at + 40, 20)
    record.kernel(SEND_RECV, at + 45, ts, end - ts, stream=20)


def exchange(tmp_path: Path, *, elements: int = 1000) -> Trace:
    """Two ranks send to each other in one batch; rank 1 comes 200 us later; it takes 30 us."""
    for rank in (0, 1):
        record = Recording(rank)
        record.note("ProfilerStep#1", 0, 900)
        other = 1 - rank
        batch(
            record, 50, 100 + 200 * rank, 330,
            [
                args("send", 1000, **{"Src Rank": rank, "Dst Rank": other}),
                args("recv", elements, **{"Src Rank": other, "Dst Rank": rank}),
            ],
        )  # fmt: skip
        record.save(tmp_path)
    return load_trace(tmp_path)


def test_one_kernel_of_a_batch_is_all_its_messages(tmp_path: Path) -> None:
    trace = exchange(tmp_path)
    graph = trace.graph()
    assert graph.messages.size.tolist() == [4000, 4000]
    assert graph.messages.source.tolist() == [0, 1]
    ops = np.flatnonzero((graph.kind == OpKind.SEND) | (graph.kind == OpKind.RECV))
    assert len(ops) == 4
    assert [graph.batch[ops[k]] == graph.batch[ops[k + 1]] for k in (0, 1, 2)] == [
        True, False, True,
    ]  # fmt: skip
    assert graph.messages.recorded.tolist() == [30 * US, 30 * US]


def test_two_batches_are_not_one(tmp_path: Path) -> None:
    for rank in (0, 1):
        record = Recording(rank)
        record.note("ProfilerStep#1", 0, 900)
        ends = {"Src Rank": 0, "Dst Rank": 1}
        for k in (0, 1):
            calls = [args("send" if rank == 0 else "recv", 10, **ends)] * 2
            batch(record, 50 + 100 * k, 150 + 200 * k, 250 + 200 * k, calls)
        record.save(tmp_path)
    graph = load_trace(tmp_path).graph()
    sends = np.flatnonzero(graph.kind == OpKind.SEND)
    assert len(sends) == 4
    assert len(set(graph.batch[sends].tolist())) == 2
    assert simulate(graph, None, library=Recorded()).end[sends].tolist() == [
        250 * US, 250 * US, 450 * US, 450 * US,
    ]  # fmt: skip


def test_waiting_for_a_peer_is_no_transfer(tmp_path: Path) -> None:
    trace = exchange(tmp_path)
    measured = trace.timeline()
    again = simulate(trace.graph(), None, library=Recorded())
    ops = np.flatnonzero(measured.communicates)
    assert (measured.start - measured.arrive)[ops].tolist() == [200 * US, 200 * US, 0, 0]
    assert (again.start == measured.start).all()
    assert (again.end == measured.end).all()


def test_ends_of_a_message_that_differ_are_shown(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"a message from rank \d to rank \d differs: 3\.9"):
        exchange(tmp_path, elements=1500)


def test_a_name_says_the_peer_where_the_arguments_do_not(tmp_path: Path) -> None:
    """torch before 2.5: nccl:send 0->1, and sizes by record_shapes."""
    for rank in (0, 1):
        record = Recording(rank)
        record.note("ProfilerStep#1", 0, 900)
        way = "send 0->1" if rank == 0 else "recv 1<-0"
        record.op(
            "record_param_comms", 50, 40, **{"Input Dims": [[32, 8]], "Input type": ["float"]}
        )
        record.note(f"nccl:{way}", 52, 36)
        record.kernel(SEND_RECV, 60, 100, 50, stream=20)
        record.save(tmp_path)
    messages = load_trace(tmp_path).graph().messages
    assert (messages.source.tolist(), messages.target.tolist()) == ([0], [1])


def test_a_peer_that_is_not_recorded_keeps_its_time(tmp_path: Path) -> None:
    record = Recording(0, world=2)
    record.note("ProfilerStep#1", 0, 900)
    batch(record, 50, 100, 330, [args("send", 10, **{"Src Rank": 0, "Dst Rank": 1})])
    record.save(tmp_path)
    trace = load_trace(tmp_path)
    graph = trace.graph()
    (kept,) = np.flatnonzero(graph.kind == OpKind.COLLECTIVE)
    assert graph.collectives.recorded[graph.item[kept]] == 230 * US
    assert any("no other end" in note for note in trace.notes)
    assert int(simulate(graph, None, library=Recorded()).end.max()) == 900 * US


def test_a_kernel_that_does_not_say_its_peers_keeps_its_time(tmp_path: Path) -> None:
    record = Recording(0, world=2)
    record.note("ProfilerStep#1", 0, 900)
    record.kernel(SEND_RECV, 45, 100, 230, stream=20)
    record.save(tmp_path)
    trace = load_trace(tmp_path)
    assert trace.graph().collectives.recorded.tolist() == [230 * US]
    assert any("do not say what they do" in note for note in trace.notes)


def test_coalesced_calls_are_one_kernel_of_all_their_bytes(tmp_path: Path) -> None:
    for rank in (0, 1):
        record = Recording(rank)
        record.note("ProfilerStep#1", 0, 900)
        for k, elements in enumerate((100, 300)):
            record.op("record_param_comms", 50 + 3 * k, 2, **args("_allgather_base", elements))
        record.note("nccl:coalesced", 90, 20)
        record.kernel("ncclDevKernel_AllGather_RING_LL(x)", 95, 120, 40, stream=20)
        record.save(tmp_path)
    (row,) = load_trace(tmp_path).collectives
    assert (row.op, row.size, row.ranks) == ("all_gather", 1600, (0, 1))


def test_a_list_cut_at_thirty_is_completed(tmp_path: Path) -> None:
    cut = "[" + ", ".join(str(2 * k) for k in range(30)) + ", ...]"
    more = {"Process Group Ranks": cut, "Group size": 40, "Process Group Name": "dp"}
    for rank in (0, 2):
        record = Recording(rank, world=80)
        record.note("ProfilerStep#1", 0, 500)
        call = args("allreduce", 10, **more, **{"Global rank start": 0, "Global rank stride": 2})
        record.op("record_param_comms", 50, 30, **call)
        record.kernel("ncclDevKernel_AllReduce(x)", 60, 100, 40, stream=20, **(call | more))
        record.save(tmp_path)
    (row,) = load_trace(tmp_path).collectives
    assert row.ranks == tuple(range(0, 80, 2))


def test_the_groups_of_the_file_beat_a_cut_list(tmp_path: Path) -> None:
    ranks = [*range(0, 60, 2), 61, 63]
    more = {"Process Group Ranks": "[0, 2, ...]", "Group size": 32, "Process Group Name": "odd"}
    record = Recording(0, world=64)
    record.note("ProfilerStep#1", 0, 500)
    record.kernel("ncclDevKernel_AllReduce(x)", 60, 100, 40, stream=20,
                  **args("allreduce", 10, **more))  # fmt: skip
    content = record.content()
    content["distributedInfo"]["pg_config"] = [{"pg_name": "odd", "ranks": ranks}]
    (tmp_path / "rank0.json").write_text(json.dumps(content))
    trace = load_trace(tmp_path)
    assert trace.collectives[0].ranks == tuple(ranks)
    assert trace.graph().groups[0].ranks == tuple(ranks)
    assert any("taken to be never late" in note for note in trace.notes)


def test_kernels_of_a_cuda_graph_wait_for_each_other(tmp_path: Path) -> None:
    """One launch, two streams: the second stream's kernel begins when the first's has ended."""
    record = Recording(0, world=1)
    record.note("ProfilerStep#1", 0, 900)
    number = record.call("cudaGraphLaunch", 20, 10)
    for name, stream, ts, dur in (("a", 7, 40, 300), ("b", 9, 342, 50), ("c", 7, 395, 20)):
        record.event("kernel", name, ts, dur, pid=0, tid=stream, stream=stream, device=0,
                     correlation=number)  # fmt: skip
    record.save(tmp_path)
    trace = load_trace(tmp_path)
    graph = trace.graph()
    op = {graph.op_name(i): i for i in range(len(graph))}
    causes = graph.dep_op[graph.dep_ptr[op["b"]] : graph.dep_ptr[op["b"] + 1]].tolist()
    assert op["a"] in causes
    assert not any("later than anything recorded explains" in note for note in trace.notes)
    slower = graph.duration.copy()
    slower[op["a"]] += 100 * US
    from msgspec.structs import replace

    again = simulate(replace(graph, duration=slower), None, library=Recorded())
    assert int(again.end[op["c"]]) == (415 + 100) * US


def test_reading_in_processes_gives_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    from commsim.traces import parallel

    one = exchange(tmp_path).graph()
    monkeypatch.setattr(parallel, "_LARGE", 0)
    monkeypatch.setattr(parallel, "_WORTH", 0)
    told: list[tuple[int, int]] = []
    other = load_trace(tmp_path, progress=lambda done, of: told.append((done, of))).graph()
    assert told[-1] == (2, 2)
    assert told == sorted(told)
    for column in ("kind", "duration", "dep_op", "dep_delay", "item", "lane_offset"):
        assert (getattr(one, column) == getattr(other, column)).all(), column
    assert one.names == other.names


def test_a_broken_file_among_many_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    from commsim.traces import parallel

    exchange(tmp_path)
    (tmp_path / "rank1.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    monkeypatch.setattr(parallel, "_LARGE", 0)
    monkeypatch.setattr(parallel, "_WORTH", 0)
    with pytest.raises(TraceError, match=r"rank1\.json: holds no complete event"):
        load_trace(tmp_path)


def test_a_file_cut_before_its_first_event_can_be_left_out(tmp_path: Path) -> None:
    exchange(tmp_path)
    file = tmp_path / "rank1.json"
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.index(b"[", whole.index(b'"traceEvents"')) + 1])
    with pytest.raises(TraceError, match=r"rank1\.json: .*leave it out"):
        load_trace(tmp_path)
    file.unlink()
    assert load_trace(tmp_path).graph().names


def test_a_process_that_dies_is_done_without(tmp_path: Path, monkeypatch: Any) -> None:
    from commsim.traces import parallel

    one = exchange(tmp_path).graph()
    monkeypatch.setattr(parallel, "_LARGE", 0)
    monkeypatch.setattr(parallel, "_WORTH", 0)
    monkeypatch.setattr(parallel, "_PROGRAM", "raise SystemExit(3)")
    assert len(load_trace(tmp_path).graph()) == len(one)
