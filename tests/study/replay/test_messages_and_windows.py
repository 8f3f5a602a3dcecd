"""Messages have their table, and every figure is of the profiled step."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.captured import DATA
from helpers.kineto_writer import Recording

from commsim.study.replay import replay
from commsim.traces import load_trace


def test_a_pipeline_has_its_messages_waits_and_bubble() -> None:
    """1F1B of 4 stages and 4 microbatches: 4 activations and 4 gradients per neighbours."""
    found = replay(DATA / "gloo_runs/1f1b-4")
    rows = found.result.extra["messages"]
    assert {(r["source"], r["target"]): (r["count"], r["bytes"]) for r in rows} == {
        way: (4, 4 * 8 * 128 * 4) for a in range(3) for way in ((a, a + 1), (a + 1, a))
    }
    assert all(r["source_late"] + r["target_late"] == r["count"] for r in rows)
    late = found.result.extra["late"]
    assert all(row["made_others_wait_s"] > 0.01 for row in late)
    staged = found.result.extra["pipeline"]
    assert [stage["rank"] for stage in staged["stages"]] == [0, 1, 2, 3]
    # 4 x (4 + 8) ms of held work per stage against the longest step.
    step = max(row["step_time_s"] for row in [found.result.extra["measured"]])
    assert staged["bubble_fraction"] == pytest.approx(1 - 0.048 / step, abs=0.12)


def test_the_late_end_of_a_message_is_named() -> None:
    trace = load_trace(DATA / "gloo_runs/1f1b-4-late")
    row = max(trace.messages, key=lambda one: max(one.waits.values()))
    assert row.late in (row.source, row.target)
    assert row.waits[row.late] == 0


def test_data_parallelism_is_no_pipeline() -> None:
    extra = replay(DATA / "gloo_runs/ddp-2").result.extra
    assert (extra["messages"], extra["pipeline"]) == ([], None)


def two_steps(folder: Path, rank: int) -> None:
    """Three steps of 1 ms, one all-reduce in each; the last has 400 us of it."""
    record = Recording(rank)
    for number in range(3):
        at = 1000.0 * number
        record.note(f"ProfilerStep#{number}", at, 1000 if number < 2 else 2000)
        record.all_reduce(at + 50, at + 100, at + (200 if number < 2 else 500))
    record.save(folder)


def test_figures_are_those_of_the_last_step(tmp_path: Path) -> None:
    for rank in range(2):
        two_steps(tmp_path, rank)
    found = replay(tmp_path)
    data = found.result.to_dict()
    assert [row["count"] for row in data["collectives"]] == [1]
    assert [row["count"] for row in data["measured"]["collectives"]] == [1]
    assert [row["count"] for row in data["busbw"]] == [1]
    assert [data[part]["waits"]["count"] for part in ("error", "self_check")] == [2, 2]
    assert data["collectives"][0]["time_s"] == pytest.approx(400e-6)
    assert len(found.tables["collectives"]) == 2
    assert [(s["step"], s["outlier"]) for s in data["steps"]] == [
        ("ProfilerStep#0", False), ("ProfilerStep#1", False), ("ProfilerStep#2", True)]  # fmt: skip
    assert found.tables["recorded steps"][-1][:2] == ("mean", "1.333 ms")


def test_a_long_table_says_how_much_it_leaves_out(tmp_path: Path) -> None:
    record = Recording(0)
    record.note("ProfilerStep#0", 0, 100_000)
    for number in range(45):
        record.all_reduce(1000.0 * number, 1000.0 * number + 100, 1000.0 * number + 200)
    record.save(tmp_path)
    table = replay(tmp_path).tables["collectives"]
    assert len(table) == 42
    assert table[-1][0] == "and 5 more"


def uneven_steps(folder: Path, first: int) -> None:
    """Five steps from `first` on: rank 1 computes longer in the last, rank 0 in those before.

    Those before end with that, so that a rank that computes longer begins its last step later.
    """
    for rank in range(2):
        record = Recording(rank)
        for number in range(first, 5):
            at, last = 2000.0 * number, number == 4
            longer = 900 if (rank == 1) == last else 300
            begin = at + 65 if last else at + 800
            record.note(f"ProfilerStep#{number}", at, 1900)
            record.op("aten::mm", at + 50, 20)
            if last:
                record.kernel("volta_sgemm", at + 55, begin, longer)
            record.all_reduce(
                at + 100, at + (70 + longer if last else 150), at + (1100 if last else 700)
            )
            if not last:
                record.kernel("volta_sgemm", at + 145, begin, longer)
            record.call(
                "cudaDeviceSynchronize", at + 160, (1100 if last else begin + longer - at) - 160 + 1
            )
        record.save(folder)


def test_what_limits_the_last_step_does_not_hang_on_those_before(tmp_path: Path) -> None:
    found = []
    for first in (4, 0):
        folder = tmp_path / str(first)
        folder.mkdir()
        uneven_steps(folder, first)
        limits = replay(folder).result.to_dict()["limits"]
        found.append({limit["kind"]: limit["removed_s"] for limit in limits})
    alone, of_five = found
    assert alone["imbalance"] == pytest.approx(300e-6, rel=0.05)  # 900 us, 600 on the mean rank
    assert of_five["imbalance"] == pytest.approx(alone["imbalance"], rel=1e-6)
