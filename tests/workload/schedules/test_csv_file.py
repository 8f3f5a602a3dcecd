"""Schedules as torch.distributed.pipelining writes them, there and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import TESTS

from commsim.errors import ScenarioError
from commsim.export import convert
from commsim.workload.schedules import (
    SCHEDULES,
    check_virtual,
    load_schedule,
    make_schedule,
    read_schedule,
    write_schedule,
)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "dualpipe"])
def test_there_and_back(name: str) -> None:
    v = 2 if name in ("interleaved_1f1b", "breadth_first") else 1
    schedule = make_schedule(name, 3, 6, where="x", virtual=v)
    again = read_schedule(write_schedule(schedule), name=name, where="x")
    assert again.actions == schedule.actions
    assert again.home == schedule.home
    assert again.pipes == schedule.pipes
    pairs = schedule.paired or (frozenset(),) * 3
    assert again.paired == pairs


def test_the_format() -> None:
    """As torch writes it: empty cells are time steps without work."""
    text = write_schedule(make_schedule("zb_h1", 2, 2, where="x"))
    assert text == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    pairs = write_schedule(make_schedule("dualpipev", 2, 4, where="x"))
    assert "(0F3;3B1)OVERLAP_F_B" in pairs


def test_moves_and_empty_cells_are_left_out() -> None:
    text = (
        "0UNSHARD,0F0,0SEND_F0,,0RECV_B0,0B0,0REDUCE_GRAD\n"
        ",1RECV_F0,1F0,1I0,1SEND_B0, 1W0 ,1RESHARD\n\n"
    )
    schedule = read_schedule(text, name="mine", where="x")
    assert [[str(a) for a in row] for row in schedule.actions] == [
        ["0F0", "0B0"], ["1F0", "1I0", "1W0"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0X0\n", "row 1, column 2: '0X0' is no action"),
        ("0F0,F0\n", "row 1, column 2: 'F0' is no action"),
        ("0F0,0B0\n0F1,0B1\n", "row 2: 0F1: stage 0 is already on row 1"),
        ("0F0,0B0\n2F0,2B0\n", "no action of stage 1, but of stage 2"),
        ("", "no actions"),
        ("0F0,0B0\n,\n1F0,1B0\n", "row 2 has no action"),
        ("0F0\n", "stage 0 (device 0) has no backward of microbatch 0"),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "wait for each other: device 0 at 0B0"),
        ("(0F0;0B0)OVERLAP_F_B\n", "wait for each other"),
        ("0F999999999,0B0\n", "is no action"),
        pytest.param(
            f"0F0,{'0' * 2**17}", f"row 1, column 2: '{'0' * 40}' is no action", id="long"
        ),
        pytest.param(
            f"0F0,{'0' * (2**17 + 1)}", "not a readable table (field larger than", id="too long"
        ),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_schedule(text, name="mine.csv", where="pipeline.schedule: mine.csv")
    assert words in str(caught.value)
    assert str(caught.value).startswith("pipeline.schedule: mine.csv: ")


def test_two_pipes_cannot_be_written() -> None:
    with pytest.raises(ScenarioError, match="enter from both ends"):
        write_schedule(make_schedule("dualpipe", 2, 4, where="x"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"s: .*none.csv: there is no such file"):
        load_schedule(tmp_path / "none.csv", where="s")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe0F0")
    with pytest.raises(ScenarioError, match="not text in UTF-8"):
        load_schedule(tmp_path / "bytes.csv", where="s")


TORCH = TESTS / "data" / "torch_schedules"
"""What torch 2.13 wrote for 4 ranks and 8 microbatches: `_PipelineScheduleRuntime._dump_csv`."""


@pytest.mark.parametrize(
    ("file", "name"),
    [("DualPipeV", "dualpipev"), ("Interleaved1F1B", "interleaved_1f1b"), ("ZBVZeroBubble", "")],
)
def test_files_that_torch_wrote(file: str, name: str) -> None:
    """With its sends, receives and unshards; its orders of two schedules are ours."""
    read = load_schedule(TORCH / f"Schedule{file}.comms.csv", where="x")
    assert (read.devices, read.stages, len(read.pipes)) == (4, 8, 1)
    assert read.home == ((0, 1, 2, 3, 0, 1, 2, 3) if "Inter" in file else (0, 1, 2, 3, 3, 2, 1, 0))
    if name:
        made = make_schedule(name, 4, 8, where="x", virtual=2)
        assert read.actions == made.actions
        assert read.paired == (made.paired or (frozenset(),) * 4)


def test_a_file_says_itself_how_many_virtual_stages_it_has() -> None:
    read = load_schedule(TORCH / "ScheduleInterleavedZeroBubble.comms.csv", where="x")
    check_virtual(read, 1, where="x")
    check_virtual(read, 2, where="x")
    with pytest.raises(ScenarioError, match="8 stages on 4 ranks = 2 per device"):
        check_virtual(read, 3, where="x")


def loaded_by_torch(path: Path, devices: int, stages: int, microbatches: int) -> Any:
    """Return torch's own runtime after it loaded a file and put in its communication."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    runtime = object.__new__(schedules._PipelineScheduleRuntime)
    runtime.pipeline_order, runtime._stages = {}, []
    runtime.pp_group_size, runtime._num_stages = devices, stages
    runtime._n_microbatches = microbatches
    # Settings that torch 2.15 has, at its defaults.
    runtime._defer_pp_recv, runtime._max_active_stages = False, 3
    runtime._unshard_lookahead, runtime._defer_reduce_grad_wait = "full", False
    runtime._max_outstanding_sends = None
    runtime._load_csv(str(path))
    return runtime


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "dualpipe"])
def test_torch_loads_what_is_written_and_its_own_file_is_read(name: str, tmp_path: Path) -> None:
    """`_load_csv` validates it and adds sends and waits; `_dump_csv` of that is the same again."""
    v = 2 if name in ("interleaved_1f1b", "breadth_first") else 1
    schedule = make_schedule(name, 4, 8, where="x", virtual=v)
    ours, theirs = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    ours.write_text(write_schedule(schedule))
    runtime = loaded_by_torch(ours, 4, schedule.stages, 8)
    runtime._dump_csv(str(theirs))
    assert "SEND_F" in theirs.read_text()
    again = load_schedule(theirs, where="x")
    assert again.actions == schedule.actions
    assert again.paired == (schedule.paired or (frozenset(),) * 4)


@pytest.mark.parametrize("file", sorted(TORCH.iterdir()), ids=lambda file: file.name)
def test_convert_keeps_torchs_order_and_pairs(file: Path, tmp_path: Path) -> None:
    """Through the graph and back, DualPipeV's whole and split backwards and its pairs too."""
    graph, out = tmp_path / "x.npz", tmp_path / "x.csv"
    convert(file, graph)
    convert(graph, out)
    before, after = load_schedule(file, where="x"), load_schedule(out, where="x")
    assert after.actions == before.actions
    assert after.paired == before.paired
    loaded_by_torch(out, 4, 8, 8)


@pytest.mark.parametrize(("more", "words"), [(0, "not a readable"), (1, "is larger than 64 MiB")])
def test_a_file_of_64_mib_is_read(more: int, words: str, tmp_path: Path) -> None:
    """And refused for what stands in it: bytes that are zero."""
    path = tmp_path / "large.csv"
    path.write_text("0F0,0B0\n")
    os.truncate(path, 64 * 2**20 + more)
    with pytest.raises(ScenarioError, match=words):
        load_schedule(path, where="x")
