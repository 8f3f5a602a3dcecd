"""Captured programs: the same communication as real runs, and graphs that say what torch does."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np
import pytest
from helpers.captured import RANKS, issued, recordings, told
from helpers.captured_programs import PIPES, recording, stages, work

from commsim.cli.main import call as call_command
from commsim.errors import TraceError
from commsim.graph import Graph, OpKind, Phase
from commsim.traces.capture.assemble import assemble, roles_of
from commsim.traces.capture.axes import FoundAxes
from commsim.traces.capture.equivalence import difference
from commsim.traces.capture.records import (
    CapturedCall,
    CapturedWork,
    GroupMade,
    Mark,
    Product,
    Sync,
    Waited,
    WaitsFor,
    load_recording,
)

MS = 1_000_000_000
BEGIN = "step begins"


@pytest.mark.parametrize(("run", "rank"), RANKS)
def test_same_communication_as_a_real_run(run: str, rank: int) -> None:
    assert issued(recordings(run)[rank]) == told(run, rank)


def causes(graph: Graph, name: str) -> list[str]:
    """Return the names of what the first op of a name waits for beside its stream."""
    op = next(i for i in range(len(graph)) if graph.op_name(i) == name)
    part = slice(int(graph.dep_ptr[op]), int(graph.dep_ptr[op + 1]))
    return [graph.op_name(int(on)) for on in graph.dep_op[part] if graph.op_name(on) != BEGIN]


def call(number: int, stream: int = 0, *, internal: bool = True, size: int = 8) -> CapturedCall:
    return CapturedCall("all_reduce", 0, size, stream, number, internal)


def test_internal_call_waits_for_its_caller_who_goes_on() -> None:
    graph = assemble({0: recording(work("a"), call(1), work("b"), Waited(1, 0), work("c"))})
    assert causes(graph, "all_reduce") == ["a"]
    assert causes(graph, "b") == []
    assert causes(graph, "c") == ["all_reduce"]
    streams = [graph.streams[s] for s in graph.stream]
    assert streams == ["host", "compute", "world collectives", "compute", "compute"]


def test_call_on_the_callers_stream_stands_in_its_order() -> None:
    graph = assemble({0: recording(work("a"), call(1, internal=False), work("b"))})
    assert [graph.streams[s] for s in graph.stream] == ["host", *["compute"] * 3]
    assert causes(graph, "all_reduce") == causes(graph, "b") == []


def test_event_holds_what_its_stream_held_then() -> None:
    graph = assemble({
        0: recording(work("a"), Mark(7, 0), work("later"), WaitsFor(7, 1), work("copied", 1))
    })  # fmt: skip
    assert causes(graph, "copied") == ["a"]


def test_event_passes_on_what_its_stream_was_waiting_for() -> None:
    """The compute stream holds nothing of its own yet, but waits for the other."""
    graph = assemble({
        0: recording(
            work("a", 1), Mark(1, 1), WaitsFor(1, 0), Mark(2, 0), WaitsFor(2, 2), work("b", 2),
            streams=("compute", "copies", "more"),
        )
    })  # fmt: skip
    assert causes(graph, "b") == ["a"]


def test_event_of_before_the_step_holds_nothing() -> None:
    assert causes(assemble({0: recording(WaitsFor(3, 0), work("a"))}), "a") == []


def test_program_that_waits_for_a_stream_issues_nothing_before() -> None:
    graph = assemble({0: recording(work("a"), work("x", 1), Sync(0), work("b", 1), work("c", 1))})
    assert causes(graph, "host waits for GPU") == ["a"]
    assert causes(graph, "b") == causes(graph, "c") == ["host waits for GPU"]


def test_program_that_waits_for_all() -> None:
    graph = assemble({0: recording(work("a"), work("x", 1), Sync(-1), call(1))})
    assert sorted(causes(graph, "host waits for GPU")) == ["a", "x"]
    assert causes(graph, "all_reduce")[-1] == "host waits for GPU"


def test_memory_of_a_call_counts_at_the_next_op() -> None:
    gather = msgspec.structs.replace(call(1), alloc=64, free=16)
    graph = assemble({0: recording(work("a", alloc=1), gather, work("b", alloc=2, free=4))})
    at = {graph.op_name(i): i for i in range(len(graph))}
    assert graph.alloc[[at["a"], at["b"]]].tolist() == [1, 66]
    assert graph.free[at["b"]] == 20


def test_fsdp_gathers_ahead_of_compute() -> None:
    """In the backward the next layer's parameters come while the present one computes."""
    graph = assemble({0: recordings("fsdp2-4")[0]})
    gathers = [
        i for i in range(len(graph))
        if graph.kind[i] == OpKind.COLLECTIVE and graph.op_name(i) == "all_gather"
    ]  # fmt: skip
    assert {graph.streams[graph.stream[i]] for i in gathers} == {"all gather"}
    backward = [i for i in gathers if graph.phase[i] == Phase.BACKWARD]
    products = [
        i for i in range(len(graph))
        if graph.op_name(i).startswith("mm") and graph.phase[i] == Phase.BACKWARD
    ]  # fmt: skip
    assert backward[-1] < products[0]
    before = set(ancestors(graph, backward[-1]))
    assert not before & set(products)


def test_fsdp_update_waits_for_the_last_reduce_scatter() -> None:
    graph = assemble({0: recordings("fsdp2-4")[0]})
    update = next(i for i in range(len(graph)) if graph.phase[i] == Phase.OPTIMIZER)
    scatters = [i for i in range(len(graph)) if graph.op_name(i) == "reduce_scatter"]
    assert set(scatters) <= set(ancestors(graph, update))


def ancestors(graph: Graph, op: int) -> list[int]:
    """Return all that must have ended before `op` starts, by stream order and dependencies."""
    last: dict[tuple[int, int], int] = {}
    before: list[list[int]] = []
    for i in range(len(graph)):
        part = slice(int(graph.dep_ptr[i]), int(graph.dep_ptr[i + 1]))
        key = (int(graph.lane[i]), int(graph.stream[i]))
        before.append([*graph.dep_op[part].tolist(), *([last[key]] if key in last else [])])
        last[key] = i
    found: set[int] = set()
    waiting = [op]
    while waiting:
        for on in before[waiting.pop()]:
            if on not in found:
                found.add(on)
                waiting.append(on)
    return sorted(found)


def test_ddp_reduces_a_bucket_under_the_backward() -> None:
    graph = assemble({0: recordings("ddp-4")[0]})
    first, second = (i for i in range(len(graph)) if graph.op_name(i) == "all_reduce")
    later = [
        i for i in range(len(graph))
        if graph.op_name(i).startswith("mm") and first not in ancestors(graph, i) and i > first
    ]  # fmt: skip
    assert later  # backward of the other layers goes on
    assert not set(later) & set(ancestors(graph, first))
    assert first in ancestors(graph, second)


def test_pipeline_tags_stage_and_microbatch() -> None:
    graph = assemble(recordings("1f1b-4"))
    products = np.array([graph.op_name(i).startswith("mm") for i in range(len(graph))])
    assert (graph.stage[products] == graph.lane_rank[graph.lane[products]]).all()
    assert Counter(graph.microbatch[products].tolist()).keys() == {0, 1, 2, 3}


def axes(*groups: tuple[int, ...], world: int, label: str = "mesh_x") -> FoundAxes:
    return FoundAxes.of([GroupMade(ranks, label) for ranks in groups], world)


def test_groups_side_by_side_are_an_axis() -> None:
    found = axes((0, 1), (2, 3), (0, 2), (1, 3), world=4)
    assert {name: rows.tolist() for name, rows in found.rows.items()} == {
        "x": [[0, 1], [2, 3]],
        "x'": [[0, 2], [1, 3]],
    }
    assert found.name_of[1, 3] == "x'"
    assert (found.position("x", 2), found.position("x'", 2)) == (0, 1)


def test_groups_of_one_rank_and_of_another_size_are_no_part_of_it() -> None:
    found = axes((0,), (0, 1), (2, 3, 4), world=5)
    assert [rows.tolist() for rows in found.rows.values()] == [[[0, 1]], [[2, 3, 4]]]


def test_ranks_do_as_the_captured_one_of_their_stage() -> None:
    found = stages()
    assert roles_of(found, FoundAxes.of(found[0].groups, 4)).tolist() == [0, 0, 2, 2]


def test_stage_that_nobody_captured() -> None:
    with pytest.raises(TraceError, match="rank 2: its part was not captured.*--ranks"):
        assemble({0: stages()[0]})


def test_named_ranks_stand_for_those_up_to_the_next() -> None:
    found = {r: recording(work(f"as {r}"), rank=r, world=6) for r in (0, 1, 4)}
    assert roles_of(found, FoundAxes.of(found[0].groups, 6)).tolist() == [0, 1, 1, 1, 4, 4]


def test_ranks_that_made_other_groups() -> None:
    found = {0: recording(work("a")), 1: recording(work("a"), rank=1, groups=PIPES)}
    with pytest.raises(TraceError, match="ranks 0 and 1 made different process groups"):
        assemble(found)


def test_stages_fold_to_a_lane_each_and_messages_to_pairs() -> None:
    graph = assemble(stages())
    assert graph.lane_rank.tolist() == [0, 2]
    assert graph.multiplicity.tolist() == [2, 2]
    assert graph.folding is not None
    assert [pairs.tolist() for pairs in graph.folding.pairs] == [[[0, 2], [1, 3]]]


def test_ranks_differ_by_communication_not_by_bytes_of_shards() -> None:
    one = recording(work("update"), call(1))
    smaller = recording(CapturedWork("update", 0, 0.0, 10), call(5), rank=1)
    other = recording(work("update"), call(1, size=9), rank=1)
    longer = recording(call(1), call(2), rank=1)
    found = FoundAxes.of(one.groups, 2)
    assert difference(one, smaller, found) == ""
    assert difference(one, other, found).startswith("record 0 is all_reduce world 8 on rank 0")
    assert difference(one, longer, found) == "rank 0 has 1 records, rank 1 2."


def test_products_are_told_apart() -> None:
    matmul = Product("matmul", 2, 3, 4, 1, "bfloat16")
    one = recording(CapturedWork("mm", 0, 48.0, 10, matmul))
    other = recording(CapturedWork("mm", 0, 48.0, 10, msgspec.structs.replace(matmul, k=5)), rank=1)
    assert difference(one, other, FoundAxes.of(one.groups, 2)) != ""


def test_flops_of_recomputation_are_no_model_flops() -> None:
    graph = assemble({
        0: recording(
            CapturedWork("mm", 0, 30.0, 1), CapturedWork("mm", 0, 12.0, 1, again=True), world=3
        )
    })  # fmt: skip
    capture = graph.meta["capture"]
    assert (capture["model_flops"], capture["hardware_flops"]) == (90.0, 126.0)


def test_root_keeps_its_place() -> None:
    """A broadcast tells its root from the others: nobody folds."""
    send = CapturedCall("broadcast", 0, 8, 0, 1, True, root=1)
    graph = assemble({0: recording(work("a"), send, world=3)})
    assert graph.lane_rank.tolist() == [0, 1, 2]
    assert graph.collectives.root.tolist() == [1]


def test_root_of_a_group_that_was_not_captured() -> None:
    """Rank 1 is the root of the captured group; its twin's is rank 3."""
    pairs = (GroupMade((0, 1), "mesh_dp"), GroupMade((2, 3), "mesh_dp"))
    send = CapturedCall("broadcast", 1, 8, 0, 1, True, root=1)
    graph = assemble({0: recording(work("a"), send, world=4, groups=pairs)})
    assert graph.lane_rank.tolist() == [0, 1, 2, 3]
    assert graph.collectives.root.tolist() == [1, 3]


def test_recording_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"rank": "zero"}')
    with pytest.raises(TraceError, match=r"x\.json: is not a recording"):
        load_recording(tmp_path / "x.json")


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is here")
def test_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.py").write_text("")
    assert call_command(["capture", str(tmp_path / "t.py"), "--world-size", "2"]) == 3
    assert "pip install 'commsim[torch]'" in capsys.readouterr().err


def test_no_folder_to_write_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "no" / "g.npz")
    assert call_command(["capture", "t.py", "--world-size", "2", "-o", output]) == 2
    assert "there is no folder" in capsys.readouterr().err
