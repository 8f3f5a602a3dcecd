"""Real NCCL runs on sockets: what the importer reads of them, and whether a replay is believed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.captured import DATA

from commsim.graph import Graph, OpKind
from commsim.study.replay import replay
from commsim.traces import import_graph, load_trace

US, MS = 1_000_000, 1_000_000_000
NCCL = DATA / "nccl_runs"
WORLDS = {
    "mps/ddp-2": 2, "mps/fsdp2-4": 4, "mps/pp-2": 2, "mps/tp-pp-4": 4, "turns/ddp-2": 2,
    "turns/fsdp2-4": 4,
}  # fmt: skip
RANKS = [(run, rank) for run, world in WORLDS.items() for rank in range(world)]
BYTES = {"BFloat16": 2, "Float": 4, "Int": 4, "Long": 8, "Byte": 1}
LARGEST = {"all_reduce": "input", "all_gather": "output", "reduce_scatter": "input"}
OPS = {
    "_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}  # fmt: skip


@cache
def unpacked(run: str, rank: int, kind: str = "json") -> Any:
    return json.loads(gzip.decompress((NCCL / run / f"rank{rank}.{kind}.gz").read_bytes()))


def kinetos(run: str) -> list[str]:
    return [str(NCCL / run / f"rank{rank}.json.gz") for rank in range(WORLDS[run])]


def gpu_spans(run: str, rank: int, *, nccl: bool) -> list[tuple[float, float]]:
    """Return begin and end of a rank's kernels within its step, in us on its own clock."""
    events = unpacked(run, rank)["traceEvents"]
    step = next(e for e in events if e["name"].startswith("ProfilerStep") and "dur" in e)
    last = step["ts"] + step["dur"]
    kernels = (e for e in events if e.get("cat") == "kernel")
    spans = (
        (max(e["ts"], step["ts"]), min(e["ts"] + e["dur"], last))
        for e in kernels
        if e["name"].startswith("nccl") == nccl
    )
    return sorted(span for span in spans if span[0] < span[1])


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one of some spans lasts."""
    whole, until = 0.0, -np.inf
    for begin, end in sorted(spans):
        whole += max(0.0, end - max(begin, until))
        until = max(until, end)
    return whole


@pytest.mark.share(0.5)
@pytest.mark.parametrize("run", WORLDS)
def test_the_replay_meets_the_step_and_its_account(run: str) -> None:
    found = replay(NCCL / run)
    account = found.result.extra["self_check"]["account"]
    assert account["misses"] == []
    assert "DO NOT TRUST" not in found.headline
    assert "time a step without one before" in found.headline  # 2.7 to 5.3 times as fast
    for row in account["ranks"]:
        for part, times in row.items():
            if part != "rank":
                assert times["replayed_s"] == pytest.approx(times["recorded_s"], abs=50e-6), part


@pytest.mark.parametrize(("run", "rank"), RANKS)
def test_compute_and_communication_are_the_union_of_the_kernels(run: str, rank: int) -> None:
    """By hand from the files: no stream, group or wait is needed for that."""
    account = load_trace(kinetos(run)[rank]).own_accounts[rank]
    compute, nccl = (gpu_spans(run, rank, nccl=nccl) for nccl in (False, True))
    assert account is not None
    bounds = {part: least / US for part, (least, _) in account.bounds().items()}
    assert bounds["compute"] == pytest.approx(covered(compute), abs=0.5)
    exposed = covered([*compute, *nccl]) - covered(compute)
    assert bounds["exposed communication"] == pytest.approx(exposed, abs=0.5)


@pytest.mark.parametrize("run", [run for run in WORLDS if run.startswith("mps/")])
@pytest.mark.parametrize("beside", [False, True])
def test_all_work_is_explained(run: str, beside: bool) -> None:
    """With the Execution Traces and the flight recorder's dumps beside, and without."""
    notes = import_graph([NCCL / run] if beside else kinetos(run)).notes
    assert not [note for note in notes if "later than anything recorded explains" in note]
    queued = [note for note in notes if "in a queue of the GPU" in note]
    assert [note[:6] for note in queued] == (["6 ops "] if "fsdp2" in run else [])


def test_contexts_that_take_turns_hold_work_that_nothing_recorded_explains() -> None:
    (note,) = (n for n in import_graph(kinetos("turns/ddp-2")).notes if "later than" in n)
    assert note.startswith("238 ops started later")


def told(run: str, rank: int) -> dict[str, list[tuple[object, ...]]]:
    """Return a rank's calls by the flight recorder, by group: op and bytes, peers of messages."""
    calls: dict[str, list[tuple[object, ...]]] = {}
    dump = unpacked(run, rank, "fr.json")
    for entry in dump["entries"]:
        name, *between = entry["profiling_name"].removeprefix("nccl:").split(" ")
        of_group = calls.setdefault(dump["pg_config"][entry["process_group"][0]]["ranks"], [])
        if name in ("coalesced", "ALLREDUCE_barrier"):
            continue
        op = OPS.get(name, name)
        side = LARGEST.get(op, "input" if op == "send" else "output")
        size = sum(
            int(np.prod(shape)) * BYTES[kind]
            for shape, kind in zip(entry[f"{side}_sizes"], entry[f"{side}_dtypes"], strict=True)
        )
        of_group.append((op, size, *between))
    return calls


def read(graph: Graph, rank: int) -> dict[str, list[tuple[object, ...]]]:
    """Return a rank's calls by the graph of its recording, in the form of `told`."""
    lane = int(np.flatnonzero(graph.lane_rank == rank)[0])
    table, messages = graph.collectives, graph.messages
    calls: dict[str, list[tuple[object, ...]]] = {}
    for op in np.flatnonzero(graph.lane == lane).tolist():
        kind, row = OpKind(int(graph.kind[op])), int(graph.item[op])
        if kind == OpKind.COLLECTIVE:
            ranks = list(graph.groups[table.group[row]].ranks)
            calls.setdefault(str(ranks), []).append((table.kind[row], int(table.size[row])))
        elif kind in (OpKind.SEND, OpKind.RECV):
            peer = messages.target[row] if kind == OpKind.SEND else messages.source[row]
            ranks = sorted((rank, int(peer)))
            own, other = ranks.index(rank), ranks.index(int(peer))
            arrow = f"{own}->{other}" if kind == OpKind.SEND else f"{own}<-{other}"
            size = int(messages.size[row])
            calls.setdefault(str(ranks), []).append((kind.name.lower(), size, arrow))
    return calls


@pytest.mark.parametrize(("run", "rank"), RANKS)
def test_calls_are_the_last_of_the_flight_recorder(run: str, rank: int) -> None:
    """Op, bytes, group, order and peers: the recorded step is the last of the process."""
    graph, whole = import_graph(kinetos(run)).graph, told(run, rank)
    found = read(graph, rank)
    assert found
    for ranks, calls in found.items():
        assert whole[ranks][-len(calls) :] == calls


def rows(graph: Graph) -> tuple[dict[object, list[Any]], dict[object, list[int]]]:
    """Return collectives by group and sizes of messages by pair, in order of issue."""
    table, messages = graph.collectives, graph.messages
    calls: dict[object, list[Any]] = {}
    for kind, size, group in zip(table.kind, table.size.tolist(), table.group, strict=True):
        calls.setdefault(graph.groups[group].ranks, []).append((kind, size))
    sent: dict[object, list[int]] = {}
    for source, target, size in zip(
        messages.source.tolist(), messages.target.tolist(), messages.size.tolist(), strict=True
    ):
        sent.setdefault((source, target), []).append(size)
    return calls, sent


@pytest.mark.parametrize("run", ["mps/pp-2", "mps/tp-pp-4"])
def test_logs_dumps_and_execution_traces_of_all_ranks_agree(run: str) -> None:
    """Whatever tells of the whole process has as many calls; the profiled step is the last."""
    kinds = ("nccl.log", "fr.json", "et.json")
    log, dump, trace = (
        rows(import_graph(sorted((NCCL / run).glob(f"*.{kind}.gz"))).graph) for kind in kinds
    )
    world = tuple(range(WORLDS[run]))
    for found in (log, dump):
        found[0].pop(world, None)  # the log has what made the communicator, and a barrier's sum
    assert log == dump
    recorded = rows(import_graph(kinetos(run)).graph)
    assert trace == recorded
    for of_dump, of_step in zip(dump, recorded, strict=True):
        for key, calls in of_step.items():
            assert of_dump[key][-len(calls) :] == calls


@pytest.mark.parametrize("run", ["mps/ddp-2", "mps/fsdp2-4", "turns/fsdp2-4"])
def test_waits_are_by_hand_those_for_the_last_kernel_to_begin(run: str) -> None:
    """The ranks share a clock, which alignment by ends misses by up to 53 us."""
    trace = load_trace(NCCL / run)
    assert max(map(abs, trace.offsets.values())) < 53 * US
    kernels = [gpu_spans(run, rank, nccl=True) for rank in range(WORLDS[run])]
    together = list(zip(*kernels, strict=True))
    found = list(trace.collectives)
    assert len(found) == len(together)
    for row, spans in zip(found, together, strict=True):
        last = max(begin for begin, _ in spans)
        for rank, (begin, _) in enumerate(spans):
            assert row.waits[rank] / US == pytest.approx(last - begin, abs=110)


def test_a_pipeline_waits_for_its_messages_by_hand() -> None:
    """Each kernel of one stage sends to and receives from the same kernel of the other."""
    first, second = (gpu_spans("mps/pp-2", rank, nccl=True) for rank in range(2))
    rows = load_trace(NCCL / "mps/pp-2").messages
    assert len(rows) == 8
    forth = [row for row in rows if row.source == 0]
    for row, (begin, _), (posted, end) in zip(forth, first[:4], second[:4], strict=True):
        assert row.waits[1] / US == pytest.approx(begin - posted, abs=1)
        assert row.transfer / US == pytest.approx(end - begin, abs=1)
        assert (row.late, row.waits[0]) == (0, 0)
