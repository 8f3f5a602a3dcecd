"""Logs of nccl-tests beside each other, beside a cluster, and beside a bench."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.paths import TESTS

from commsim.cluster import Cluster
from commsim.libraries import LibrarySection
from commsim.study.bench import bench
from commsim.study.compare.compare import compare

LOGS = TESTS / "data/nccl_tests"
A100 = str(LOGS / "a100_8_v2.19.4.log")


def test_a_log_beside_a_cluster_is_benched_like_it_was_measured() -> None:
    found = compare(A100, "dgx-a100", tolerance=0.5)
    (table,) = found.to_dict()["tables"]
    assert (table["ranks"], table["nodes"]) == ([8, 8], [1, 1])
    assert len(table["rows"]) == 25
    cluster = Cluster.preset("dgx-a100")
    section = LibrarySection("nccl", version="2.19.3", launch="process")
    (row,) = bench(cluster, "all_reduce", [2**20], library=section).results
    mine = next(one for one in table["rows"] if one["size"] == 2**20)
    assert mine["time_us"] == [67.31, row.time_us]
    assert mine["error"] == [None, pytest.approx(row.time_us / 67.31 - 1)]
    assert mine["busbw_gbs"][0] == pytest.approx(2**20 / 67.31e-6 / 1e9 * 2 * 7 / 8)
    assert found.within


@pytest.mark.parametrize(("pids", "launch"), [([1] * 8, "process"), (range(8), "gpu")])
def test_the_launch_of_the_log_is_taken_over(tmp_path: Path, pids: list[int], launch: str) -> None:
    devices = "".join(
        f"# Rank {r} Pid {pid} on host device {r} [0x0] A100\n" for r, pid in enumerate(pids)
    )
    (tmp_path / "x.log").write_text(
        f"all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8\n{devices}"
        "1024 256 float sum -1 9 0 0 0 9 0 0 0\n"
    )
    section = LibrarySection("nccl", launch=launch)
    (row,) = bench(Cluster.preset("dgx-a100"), "all_reduce", [1024], library=section).results
    (table,) = compare(tmp_path / "x.log", "dgx-a100").to_dict()["tables"]
    assert table["rows"][0]["time_us"] == [9.0, row.time_us]


@pytest.mark.parametrize(
    ("code", "words"),
    [("21203", "NCCL 2.12.3 is older than"), ("29901", "NCCL 2.99.1 is newer than 2.30")],
)
def test_the_version_of_the_log_is_taken_over(tmp_path: Path, code: str, words: str) -> None:
    text = Path(A100).read_text().replace("nccl-library=21903", f"nccl-library={code}")
    (tmp_path / "x.log").write_text(text)
    notes = compare(tmp_path / "x.log", "dgx-a100").to_dict()["sides"][1]["notes"]
    assert any(words in note for note in notes)


def test_the_measured_one_is_the_reference_wherever_it_stands() -> None:
    data = compare("dgx-a100", A100).to_dict()
    assert data["reference"] == 1
    assert data["tables"][0]["rows"][0]["error"][1] is None
    assert data["tables"][0]["rows"][0]["error"][0] is not None


def test_a_log_of_several_nodes_lays_the_cluster_out_alike() -> None:
    (table,) = compare(LOGS / "a3mega_h100_16.log", "gcp-a3-mega").to_dict()["tables"]
    assert (table["ranks"], table["nodes"]) == ([16, 16], [2, 2])


def test_old_busbw_is_worked_out_anew() -> None:
    data = compare(LOGS / "dgx2_12_three_tests.log", "dgx-2").to_dict()
    gather = next(table for table in data["tables"] if table["op"] == "all_gather")
    assert [table["op"] for table in data["tables"]] == ["all_gather", "all_reduce", "broadcast"]
    last = gather["rows"][-1]
    assert last["busbw_gbs"][0] == pytest.approx(8589934560 / 106773e-6 / 1e9 * 11 / 12)
    assert last["time_us"][1] is not None  # sizes are rounded differently today


def test_repeated_runs_count_by_their_median(tmp_path: Path) -> None:
    head = "all_gather_perf\n# nThread 1 nGpus 8 minBytes 8\n"
    row = "1048576 32768 float none -1 {} 1 1 0 {} 1 1 0\n"
    text = "".join(head + row.format(time, time) for time in (50, 90, 60))
    other = "1048576 65536 half none -1 10 1 1 0 10 1 1 0\n"
    (tmp_path / "x.log").write_text(text + other)
    data = compare(tmp_path / "x.log", "dgx-a100").to_dict()
    (row_,) = data["tables"][0]["rows"]
    assert row_["time_us"][0] == 60
    assert data["tables"][0]["type"] == "float"


def test_rows_of_other_types_and_redops_are_left_out(tmp_path: Path) -> None:
    text = Path(A100).read_text()
    extra = "1024 512 half sum -1 1 1 1 0 1 1 1 0\n1024 256 float max -1 1 1 1 0 1 1 1 0\n"
    (tmp_path / "x.log").write_text(text.replace("# Out of bounds", extra + "# Out of bounds"))
    data = compare(tmp_path / "x.log", "dgx-a100").to_dict()
    row = next(row for row in data["tables"][0]["rows"] if row["size"] == 1024)
    assert row["time_us"][0] == 36.57
    assert "2 rows of other types or redops are left out." in data["sides"][0]["notes"]


def test_two_logs_of_different_ranks_are_warned_of() -> None:
    data = compare(A100, LOGS / "a3mega_h100_16.log").to_dict()
    assert data["warnings"] == [
        f"all_reduce: {A100} ran on 8 ranks, {LOGS}/a3mega_h100_16.log on 16."
    ]
