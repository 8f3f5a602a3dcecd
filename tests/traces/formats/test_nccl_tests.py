"""What nccl-tests printed, in the layouts of several versions, as people published it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from helpers.paths import TESTS

from commsim.errors import TraceError
from commsim.traces.formats.nccl_tests.reader import is_nccl_tests, load_nccl_tests, read_nccl_tests
from commsim.traces.formats.nccl_tests.table import BenchedTiming

LOGS = TESTS / "data/nccl_tests"
HEAD = "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor)\n"


def one(name: str):
    (table,) = load_nccl_tests(LOGS / name)
    return table


def read(text: str, source: str = "x.log"):
    return read_nccl_tests(text.encode(), source)


@pytest.mark.parametrize(
    ("name", "op", "ranks", "nodes", "launch", "nccl", "sizes"),
    [
        ("a3mega_h100_16.log", "all_reduce", 16, 2, "gpu", None, 11),
        ("a100_8_v2.19.4.log", "all_reduce", 8, 1, "process", "2.19.3", 25),
        ("a100_8_unchecked.log", "all_reduce", 8, 1, "process", None, 8),
        ("v100_2x4_error_column.log", "all_reduce", 8, 2, "gpu", None, 5),
        ("tagged_two_processes.log", "all_reduce", 2, 1, "gpu", "2.29.7", 3),
        ("h100_8.json", "all_reduce", 8, 1, "gpu", "2.29.2", 10),
    ],
)
def test_what_ran_is_told(
    name: str, op: str, ranks: int, nodes: int, launch: str, nccl: str | None, sizes: int
) -> None:
    table = one(name)
    found = (table.op, table.ranks, table.nodes, table.launch, table.nccl, len(table.rows))
    assert found == (op, ranks, nodes, launch, nccl, sizes)
    assert is_nccl_tests((LOGS / name).read_bytes())


def test_both_halves_of_a_row() -> None:
    row = one("a100_8_v2.19.4.log").rows[-1]
    assert (row.size, row.count, row.type, row.redop, row.root) == (
        134217728, 33554432, "float", "sum", -1,
    )  # fmt: skip
    assert row.out_of_place == BenchedTiming(1295.41, 103.61, 181.32, 0)
    assert row.in_place == BenchedTiming(1284.21, 104.51, 182.90, 0)
    assert row.time_us == 1295.41


def test_unchecked_is_none_and_old_errors_are_numbers() -> None:
    assert one("a100_8_unchecked.log").rows[3].out_of_place == BenchedTiming(
        41.19, 3.18, 5.57, None
    )
    assert one("v100_2x4_error_column.log").rows[1].in_place == BenchedTiming(
        29.05, 0.14, 0.25, 2e-7
    )


def test_a_log_of_three_tests_is_three_tables() -> None:
    gather, reduce, broadcast = load_nccl_tests(LOGS / "dgx2_12_three_tests.log")
    assert (gather.op, reduce.op, broadcast.op) == ("all_gather", "all_reduce", "broadcast")
    assert {table.ranks for table in (gather, reduce, broadcast)} == {12}
    assert gather.notes == ("nccl-tests found 4 wrong values.",)
    assert (gather.rows[2].redop, gather.rows[2].root) == (None, None)
    assert broadcast.rows[0].root == 0
    assert broadcast.rows[-1].time_us == 70321


def test_a_test_that_stopped_keeps_its_name() -> None:
    row = "1048576 32768 float none -1 9 1 1 0 9 1 1 0\n"
    tables = read(f"all_gather_perf\n{HEAD}{row}alltoall_perf\n{HEAD}{row}{HEAD}{row}")
    assert [table.op for table in tables] == ["all_gather", "all_to_all", "all_to_all"]


def test_json_says_what_its_text_would() -> None:
    row = one("h100_8.json").rows[0]
    assert (row.root, row.type, row.out_of_place) == (
        -1,
        "double",
        BenchedTiming(182.87, 183.49, 321.1, 0),
    )
    assert one("h100_8.json").gpu == "NVIDIA H100 80GB HBM3"


def test_json_of_cpu_time_nan_and_trace_replay(tmp_path: Path) -> None:
    data = json.loads((LOGS / "h100_8.json").read_text())
    body = {"cpu_time": 5.5, "alg_bw": "nan", "bus_bw": 1.0, "nwrong": None}
    data["results"] = [{**data["results"][0], "out_of_place": None, "in_place": body}]
    (table,) = read_nccl_tests(json.dumps(data).encode(), "x.json")
    assert table.rows[0].out_of_place is None
    assert table.rows[0].in_place == BenchedTiming(5.5, 0.0, 1.0, None)
    assert table.rows[0].time_us == 5.5


def test_a_packed_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress((LOGS / "a100_8_unchecked.log").read_bytes()))
    (table,) = load_nccl_tests(path)
    assert len(table.rows) == 8


ROW = "  1048576  262144  float  sum  -1  67.31  15.58  27.26  0  65.27  16.07  28.11  0"


@pytest.mark.parametrize(
    "line",
    [
        ROW,
        f"[1,0]<stdout>:{ROW}",
        f"0: {ROW}",
        f"worker-0: {ROW}",
        f"2026-01-28T14:50:17Z {ROW}",
        f"{ROW}  2026-01-28 14:50:17",
    ],
)
def test_what_launchers_put_around_a_line(line: str) -> None:
    (table,) = read(f"all_reduce_perf -g 8\n{HEAD}{line}\n")
    (row,) = table.rows
    assert (row.size, row.root, row.time_us, row.in_place.busbw_gbs) == (1048576, -1, 67.31, 28.11)


def test_a_trace_replay_has_in_place_times_alone() -> None:
    (table,) = read(
        f"all_reduce_perf\n{HEAD}  1048576  262144  float  sum  -1  67.31  15.58  27.26  0\n"
    )
    (row,) = table.rows
    assert (row.root, row.out_of_place, row.time_us) == (-1, None, 67.31)


def test_lines_broken_by_other_output_are_counted() -> None:
    broken = "  8192  2048  float  sum  -1[0] host:1:1 [0] NCCL INFO Algo 0\n"
    (table,) = read(f"all_reduce_perf\n{HEAD}{ROW}\n{broken}")
    assert len(table.rows) == 1
    assert table.notes[0].startswith("1 lines are broken")


@pytest.mark.parametrize(
    ("line", "op"),
    [
        ("1024 256 float sum -1 1 1 1 0 1 1 1 0", "all_reduce"),
        ("1024 256 float sum 1 1 1 0 1 1 1 0", "all_reduce"),  # before the root column
        ("1024 32 float sum -1 1 1 1 0 1 1 1 0", "reduce_scatter"),
        ("1024 256 float sum 0 1 1 1 0 1 1 1 0", "reduce"),
        ("1024 256 float none 0 1 1 1 0 1 1 1 0", "broadcast"),
    ],
)
def test_a_log_without_its_command_tells_the_op_by_its_columns(line: str, op: str) -> None:
    (table,) = read(HEAD + line)
    assert table.op == op


def test_an_op_that_columns_do_not_tell_is_asked_for() -> None:
    line = "1024 32 float none -1 1 1 1 0 1 1 1 0"
    with pytest.raises(TraceError, match="does not say which test ran"):
        read(HEAD + line)
    (table,) = read(HEAD + line, "runs/alltoall.log")
    assert (table.op, table.ranks) == ("all_to_all", 8)
    (table,) = read(HEAD + line, "runs/h0_all_to_all.log")
    assert table.op == "all_to_all"


def test_ranks_without_a_device_list_come_from_the_figures() -> None:
    text = (LOGS / "a3mega_h100_16.log").read_text()
    bare = "\n".join(line for line in text.splitlines() if " Rank " not in line)
    (table,) = read(bare)
    assert (table.ranks, table.nodes, table.launch) == (16, 0, None)


def test_a_cut_device_list_is_noticed() -> None:
    text = (LOGS / "a3mega_h100_16.log").read_text()
    (table,) = read("\n".join(line for line in text.splitlines() if "Rank 15" not in line))
    assert "15 ranks are listed, and the figures are those of 16." in table.notes


def test_processes_that_ran_alone_are_noticed() -> None:
    device = "#  Rank  0 Group  0 Pid {} on host device  0 [0x00] V100\n"
    (table,) = read(f"all_reduce_perf\n{HEAD}{device.format(1)}{device.format(2)}{ROW}\n")
    assert table.ranks == 1
    assert "without MPI" in table.notes[0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"nothing here\n", "no line of nccl-tests was found"),
        (b"alltoallv_perf\n" + ROW.encode(), "commsim bench does not have"),
        (b'{"results": [{"in_place": 1}]}', "not the JSON of nccl-tests"),
        (b'{"results": [], "x": "out_of_place", "out_of_place": 1}', "wrote no result"),
        (b'{"args": ["ls"], "results": [{"size": 8, "type": "float", "in_place": {"time": 1}}]}',
         "no program of nccl-tests"),
        (b'{"args": ["all_reduce_perf"], "results": [{"size": 8, "type": "x", "in_place": {}}]}',
         "is not one of nccl-tests'"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_nccl_tests(data, "x")
    with pytest.raises(TraceError, match="there is no such file"):
        load_nccl_tests("missing.log")
