"""A real run: DLRM on 8 V100s, NCCL, one profiled step per rank."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commsim.engine import simulate
from commsim.errors import TraceError
from commsim.graph import Device, Graph, OpKind
from commsim.graph.edit import add_work, scale_compute
from commsim.libraries import Recorded
from commsim.timeline import Timeline
from commsim.traces import Trace, import_graph, load_trace

US, MS = 1_000_000, 1_000_000_000
RANKS = range(8)


@pytest.fixture(scope="module")
def files(shared_data: Path) -> dict[int, dict[str, Any]]:
    """The Kineto files by rank, read here and by no code of commsim."""
    found = {}
    with tarfile.open(shared_data / "traces/dev_param_dlrm_8xV100/dlrm_kineto.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content:
                file = json.load(content)
                found[file["distributedInfo"]["rank"]] = file
    return found


@pytest.fixture(scope="module")
def trace(shared_data: Path) -> Trace:
    return load_trace(shared_data / "traces" / "dev_param_dlrm_8xV100")


@pytest.fixture(scope="module")
def replayed(trace: Trace) -> Timeline:
    return replay(trace.graph())


def replay(graph: Graph) -> Timeline:
    return simulate(graph, None, library=Recorded())


def ends(timeline: Timeline) -> list[int]:
    """When each rank's last op ends: after the step, the CPU still waits for the GPU."""
    return [int(timeline.end[timeline.graph.lane == lane].max()) for lane in RANKS]


def steps(timeline: Timeline) -> list[int]:
    return [int(timeline.end[b] - timeline.start[a]) for a, b in timeline.graph.window]


def nccl_kernels(file: dict[str, Any]) -> list[dict[str, Any]]:
    found = [e for e in file["traceEvents"] if str(e.get("name")).startswith("ncclKernel")]
    return sorted(found, key=lambda event: event["ts"])


def test_eight_collectives_are_matched_on_all_ranks(trace: Trace) -> None:
    rows = trace.collectives
    assert [row.op for row in rows] == [
        "all_to_all_v", "all_to_all", "all_to_all_v", "all_to_all_v",
        "all_reduce", "all_to_all_v", "all_reduce", "all_reduce",
    ]  # fmt: skip
    assert all(sorted(row.waits) == list(RANKS) for row in rows)


def test_sizes_and_types_come_from_the_execution_trace(trace: Trace) -> None:
    rows = trace.collectives
    assert [row.dtype for row in rows] == [
        "float32", "int64", "int32", "int32", "float32", "float32", "float32", "float32",
    ]  # fmt: skip
    sizes = [row.size for row in rows]
    assert [sizes[k] for k in (0, 1, 2, 5)] == [6144 * 4, 24 * 8, 384 * 4, 6144 * 4]
    assert [sizes[k] for k in (4, 6, 7)] == [394241 * 4, 112 * 4, 226960 * 4]


def test_splits_say_what_each_rank_sends_to_each(trace: Trace) -> None:
    values = trace.collectives[3]
    assert values.splits[7] == tuple(4 * n for n in (96, 224, 288, 1664, 592, 96, 192, 240))
    assert values.size == max(sum(row) for row in values.splits.values())
    assert trace.graph().collectives.splits[3] == tuple(values.splits[r] for r in RANKS)


def test_transfer_is_that_of_the_last_arrivers(trace: Trace, files: dict[int, Any]) -> None:
    total = 0
    kernels = [nccl_kernels(files[rank]) for rank in RANKS]
    for k in range(8):
        last = max(RANKS, key=lambda rank: kernels[rank][k]["ts"])
        total += kernels[last][k]["dur"]
    assert abs(sum(row.transfer for row in trace.collectives) - total * US) <= 2 * US
    assert abs(sum(row.transfer for row in trace.collectives) - 220 * US) <= 30 * US


def test_clocks_agree_within_a_microsecond(trace: Trace) -> None:
    assert max(abs(offset) for offset in trace.offsets.values()) <= 1 * US
    assert 0 <= trace.residual <= 1 * US


def test_shifted_clocks_are_recovered(trace: Trace, files: dict[int, Any], tmp_path: Path) -> None:
    shifts = {0: 0, 1: 5_000, 2: -12_345, 3: 77, 4: 0, 5: 250_000, 6: -3, 7: 1_000}
    for rank, shift in shifts.items():
        file = json.loads(json.dumps(files[rank]))
        for event in file["traceEvents"]:
            if "ts" in event:
                event["ts"] += shift
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(file))
    offsets = load_trace(tmp_path).offsets
    moved = {rank: offsets[rank] - trace.offsets[rank] - shifts[rank] * US for rank in RANKS}
    assert max(abs(off - np.median(list(moved.values()))) for off in moved.values()) <= 1 * US


def test_replay_reproduces_every_step(replayed: Timeline, files: dict[int, Any]) -> None:
    for rank, simulated in enumerate(steps(replayed)):
        (recorded,) = (
            e["dur"] for e in files[rank]["traceEvents"] if e["name"].startswith("ProfilerStep")
        )
        assert simulated == pytest.approx(recorded * US, rel=0.02), rank
    assert min(steps(replayed)) > 12 * MS
    assert max(steps(replayed)) > 19 * MS


def test_replay_derives_every_wait(trace: Trace, replayed: Timeline, files: dict[int, Any]) -> None:
    """Against the files: duration of the kernel less the transfer."""
    graph = trace.graph()
    off = []
    for op in np.flatnonzero(graph.kind == OpKind.COLLECTIVE):
        rank = int(graph.lane_rank[graph.lane[op]])
        row = int(graph.item[op])
        recorded = nccl_kernels(files[rank])[row]["dur"] * US - trace.collectives[row].transfer
        derived = int(replayed.start[op] - replayed.arrive[op])
        off.append(abs(derived - recorded))
        assert abs(derived - recorded) <= max(50 * US, 0.05 * recorded)
    assert len(off) == 64
    assert np.median(off) <= 3 * US


def test_replay_follows_the_measured_timeline_op_by_op(trace: Trace, replayed: Timeline) -> None:
    measured = trace.timeline()
    assert np.abs(measured.start - replayed.start).max() <= 20 * US
    assert np.abs(measured.end - replayed.end).max() <= 20 * US
    assert (measured.arrive <= measured.start).all()
    assert (measured.start <= measured.end).all()


def test_no_delay_hides_a_wait(trace: Trace) -> None:
    """Latencies only; what two GPUs had left from the step before is noted, and apart."""
    delays = np.sort(trace.graph().dep_delay)
    assert (delays[:-2] <= 30 * US).all()
    assert sum("left from before the recording" in note for note in trace.notes) == 1
    assert not any("later than anything recorded explains" in note for note in trace.notes)


def test_cpu_work_is_alike_on_all_ranks_whatever_their_steps(trace: Trace) -> None:
    """Ranks 1 and 7 differ by 7.4 ms of step, and hardly in work: the rest was waiting."""
    graph = trace.graph()
    cpu = graph.device == Device.CPU
    work = [int(graph.duration[cpu & (graph.lane == lane)].sum()) for lane in RANKS]
    assert abs(work[1] - work[7]) <= 0.05 * work[7]
    assert max(work) <= 1.12 * min(work)


def expected_moves(before: Timeline, rank: int, collective: int, added: int) -> list[int]:
    """How far each rank's last end moves when `rank` issues a collective `added` ps later.

    By slack alone, on the timeline before: a delay passes along a dependency less the time
    that the later op had to spare.
    """
    graph = before.graph
    ptr, members = graph.members()
    mine = members[graph.lane_rank[graph.lane[members]] == rank]
    causes = graph.dep_op[graph.dep_ptr[mine[collective]] : graph.dep_ptr[mine[collective] + 1]]
    source = int(causes[graph.device[causes] == Device.CPU][-1])
    ties = [tied(graph, op) for op in range(len(graph))]
    order = np.lexsort((np.arange(len(graph)), before.end, before.start)).tolist()
    arrive, end = np.zeros(len(graph), np.int64), np.zeros(len(graph), np.int64)
    for _ in range(50):
        old = end.copy()
        for op in order:
            late = [end[c] - (before.arrive[op] - before.end[c] - delay) for c, delay in ties[op]]
            arrive[op] = end[op] = max(0, *late, 0) + (added if op == source else 0)
            if graph.kind[op] == OpKind.COLLECTIVE:
                row = graph.item[op]
                all_members = members[ptr[row] : ptr[row + 1]]
                spare = before.start[op] - before.arrive[all_members]
                end[op] = max(0, int((arrive[all_members] - spare).max()))
        if (old == end).all():
            break
    last = before.end + end
    ends_before = ends(before)
    return [int(last[graph.lane == lane].max()) - ends_before[lane] for lane in RANKS]


def tied(graph: Graph, op: int) -> list[tuple[int, int]]:
    """What op waits for, with the delay: its dependencies, and the op before it on its stream."""
    found = [
        (int(graph.dep_op[d]), int(graph.dep_delay[d]))
        for d in range(graph.dep_ptr[op], graph.dep_ptr[op + 1])
    ]
    queue = np.flatnonzero((graph.lane == graph.lane[op]) & (graph.stream == graph.stream[op]))
    earlier = queue[queue < op]
    return [*found, (int(earlier[-1]), 0)] if earlier.size else found


@pytest.mark.parametrize("rank", [0, 4, 7])
def test_added_work_moves_the_others_by_itself_less_their_slack(
    trace: Trace, replayed: Timeline, rank: int
) -> None:
    graph = add_work(trace.graph(), rank=rank, before_collective=3, duration=5 * MS)
    again = replay(graph)
    moves = [after - before for after, before in zip(ends(again), ends(replayed), strict=True)]
    expected = expected_moves(replayed, rank, 3, 5 * MS)
    assert moves == pytest.approx(expected, abs=10)
    assert moves[rank] == 5 * MS
    assert all(2 * MS < move <= 5 * MS for move in moves)


def test_twice_the_added_work_moves_them_by_the_difference(trace: Trace) -> None:
    once = ends(replay(add_work(trace.graph(), rank=7, before_collective=3, duration=5 * MS)))
    twice = ends(replay(add_work(trace.graph(), rank=7, before_collective=3, duration=10 * MS)))
    assert [b - a for a, b in zip(once, twice, strict=True)] == [5 * MS] * 8


def test_half_the_compute_shortens_every_step(trace: Trace, replayed: Timeline) -> None:
    faster = steps(replay(scale_compute(trace.graph(), 0.5)))
    assert all(a < 0.75 * b for a, b in zip(faster, steps(replayed), strict=True))


def test_a_shorter_transfer_ends_earlier_and_keeps_the_waits(
    trace: Trace, replayed: Timeline
) -> None:
    graph = trace.graph()
    graph.collectives.recorded[7] -= 60 * US
    try:
        again = replay(graph)
    finally:
        graph.collectives.recorded[7] += 60 * US
    last = np.flatnonzero((graph.kind == OpKind.COLLECTIVE) & (graph.item == 7))
    assert (replayed.end[last] - again.end[last] == 60 * US).all()
    assert (again.start[last] == replayed.start[last]).all()


def test_without_the_execution_trace_sizes_of_all_reduce_are_unknown(shared_data: Path) -> None:
    trace = load_trace(shared_data / "traces/dev_param_dlrm_8xV100/dlrm_kineto.tar.gz")
    assert [row.size for row in trace.collectives if row.op == "all_reduce"] == [-1, -1, -1]
    assert trace.collectives[0].size == 6144 * 4
    assert len(replay(trace.graph())) == len(trace.graph())


def test_without_two_ranks_the_others_still_replay(files: dict[int, Any], tmp_path: Path) -> None:
    for rank in (0, 1, 3, 4, 6, 7):
        (tmp_path / f"r{rank}.json").write_text(json.dumps(files[rank]))
    trace = load_trace(tmp_path)
    measured, again = trace.timeline(), replay(trace.graph())
    assert steps(again) == pytest.approx(steps(measured), rel=0.02)
    assert any("[0, 1, 3, 4, 6, 7] are recorded" in note for note in trace.notes)
    assert trace.graph().groups[0].ranks == tuple(RANKS)


TORCH = {"all_to_all": "all_to_all", "all_to_all_v": "all_to_allv", "all_reduce": "allreduce"}
TYPES = {"float32": ("Float", 4), "int64": ("Long", 8), "int32": ("Int", 4)}


def test_arguments_on_the_kernels_say_the_same_as_the_execution_trace(
    trace: Trace, replayed: Timeline, files: dict[int, Any], tmp_path: Path
) -> None:
    for rank in RANKS:
        file = json.loads(json.dumps(files[rank]))
        for row, kernel in zip(trace.collectives, nccl_kernels(file), strict=True):
            dtype, itemsize = TYPES[row.dtype]
            splits = [part // itemsize for part in row.splits.get(rank, ())]
            elements = sum(splits) if splits else row.size // itemsize
            kernel["args"] |= {
                "Collective name": TORCH[row.op], "dtype": dtype, "In msg nelems": elements,
                "Out msg nelems": elements, "In split size": str(splits), "Group size": 8,
                "Process Group Name": "0", "Process Group Ranks": str(list(RANKS)),
            }  # fmt: skip
        (tmp_path / f"r{rank}.json").write_text(json.dumps(file))
    modern = load_trace(tmp_path)
    for was, now in zip(trace.collectives, modern.collectives, strict=True):
        assert (now.op, now.size, now.dtype, now.splits) == (
            was.op,
            was.size,
            was.dtype,
            was.splits,
        )
        assert (now.transfer, now.waits) == (was.transfer, was.waits)
    assert steps(replay(modern.graph())) == pytest.approx(steps(replayed), rel=1e-3)


def test_a_run_that_lost_the_end_of_one_file_is_told(files: dict[int, Any], tmp_path: Path) -> None:
    for rank in RANKS:
        text = json.dumps(files[rank])
        (tmp_path / f"r{rank}.json").write_text(text[: len(text) * 3 // 5] if rank == 2 else text)
    try:
        notes = load_trace(tmp_path).notes
    except TraceError as error:
        assert "rank" in str(error)  # noqa: PT017
    else:
        assert any("r2.json: cut off" in note for note in notes)


REAL = [
    "dev_hta_misc/alexnet_trace.json.gz",
    "dev_hta_misc/event_sync_trace.json.gz",
    "dev_hta_misc/event_sync_trace_multi_stream.json.gz",
    "dev_hta_misc/simple_add_trace.json.gz",
    "dev_hta_misc/ns_resolution_rank0.json.gz",
    "dev_hta_nccl_a100_rank0of2",
]


@pytest.mark.parametrize("name", REAL)
def test_other_real_traces_replay_as_measured(shared_data: Path, name: str) -> None:
    trace = load_trace(shared_data / "traces" / name)
    measured, again = trace.timeline(), replay(trace.graph())
    assert np.abs(measured.start - again.start).max() <= 1 * US


def test_a100_has_its_collectives_and_no_more(shared_data: Path) -> None:
    rows = load_trace(shared_data / "traces/dev_hta_nccl_a100_rank0of2").collectives
    assert [row.op for row in rows].count("all_reduce") == 15
    assert [row.op for row in rows].count("broadcast") == 6
    assert len(rows) == 21
    assert all(row.size > 0 and row.group == "0" and row.ranks == (0, 1) for row in rows)


def test_every_file_loads_or_says_why_not_in_one_sentence(shared_data: Path) -> None:
    outcomes = {"read": 0, "refused": 0}
    for path in sorted((shared_data / "traces").rglob("*")):
        try:
            import_graph(path)
        except TraceError as error:
            assert path.name in str(error) or path.is_dir()  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    # Seven texts, an algorithm, a trace without communication, three folders of several runs.
    assert outcomes["refused"] == 12
    assert outcomes["read"] >= 30
