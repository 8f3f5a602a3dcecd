"""Logs of NCCL's inspector: the tables of collectives that they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import commsim as cs
from commsim.errors import TraceError
from commsim.traces.formats import is_nccl_tests, read_nccl_tests

# The two records that NVIDIA/nccl shows in plugins/profiler/inspector/README.md (BSD-3-Clause).
SHOWN = (
    {"header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
     "metadata": {"inspector_output_format_version": "v4.0", "pid": 1639453},
     "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184,
                   "coll_exec_time_us": 61974, "coll_algobw_gbs": 277.210914}},
    {"header": {"id": "0xe62dedaa97644a", "rank": 4, "n_ranks": 8, "nnodes": 1},
     "coll_perf": {"coll": "ReduceScatter", "coll_sn": 1231, "coll_msg_size_bytes": 2147483648,
                   "coll_exec_time_us": 41057, "coll_timing_source": "kernel_gpu",
                   "coll_algobw_gbs": 418.439467}},
)  # fmt: skip


def record(rank: int, number: int, us: float, **more: Any) -> dict[str, Any]:
    perf = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 2**20,
            "coll_exec_time_us": us}  # fmt: skip
    head = {"id": "0x1", "rank": rank, "n_ranks": 16, "nnodes": 2}
    return {"header": head, "coll_perf": perf | more}


def log(*records: object) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in records).encode()


def test_the_records_that_nvidia_shows() -> None:
    tables = read_nccl_tests(log(*SHOWN), "x.log")
    assert [(t.op, t.ranks, t.nodes) for t in tables] == [
        ("all_reduce", 8, 1), ("reduce_scatter", 8, 1),
    ]  # fmt: skip
    for table, shown in zip(tables, SHOWN, strict=True):
        timing = table.rows[0].out_of_place
        assert timing is not None
        assert timing.algbw_gbs == pytest.approx(shown["coll_perf"]["coll_algobw_gbs"], rel=1e-6)
    assert tables[1].rows[0].size == 8 * 2147483648  # a rank's bytes, times the ranks


def test_the_last_rank_to_come_tells_the_time_and_the_median_op_the_size() -> None:
    waits = [(0, 900.0), (1, 40.0), (2, 300.0)]
    every = [record(r, n, us + n) for n in range(3) for r, us in waits]
    (table,) = read_nccl_tests(log(*every), "x.log")
    (row,) = table.rows
    assert (row.size, row.time_us, row.type) == (2**20, 41.0, "float")
    assert not any("of one rank" in note for note in table.notes)


def test_one_rank_alone_is_said() -> None:
    (table,) = read_nccl_tests(log(record(3, 1, 50.0)), "x.log")
    assert any("put the files of all ranks into one" in note for note in table.notes)


def test_what_is_broken_or_no_collective_is_counted() -> None:
    message = {"header": SHOWN[0]["header"], "p2p_perf": {"p2p": "Send", "p2p_sn": 1}}
    odd = [record(0, 1, 0.0), record(0, 2, 5.0, coll="Mystery"), message]
    text = log(record(0, 3, 50.0), *odd) + b'{"header": {"id": "0x1", "ra\n'
    (table,) = read_nccl_tests(text, "x.log")
    assert any(note.startswith("3 records") for note in table.notes)
    assert any(note.startswith("1 lines") for note in table.notes)
    with pytest.raises(TraceError, match=r"x\.log: no line of the inspector tells"):
        read_nccl_tests(log(*odd[:2]), "x.log")


def test_it_is_told_from_other_logs() -> None:
    assert is_nccl_tests(log(*SHOWN))
    assert not is_nccl_tests(b'{"traceEvents": []}')


def test_compare_holds_it_against_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "inspector.log"
    path.write_bytes(log(*SHOWN))
    found = cs.compare(path, "dgx-h100")
    assert "all_reduce" in str(found.to_dict())


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_collective_is_among_two_ranks_at_least(ranks: int) -> None:
    few = record(0, 1, 50.0)
    few["header"] |= {"n_ranks": ranks, "nnodes": 1}
    tables = read_nccl_tests(log(record(0, 1, 50.0), few), "x.log")
    assert [table.ranks for table in tables if table.ranks == ranks] == [ranks] * (ranks > 1)


def test_ops_of_different_ranks_in_one_log_are_not_held_against_each_other(tmp_path: Path) -> None:
    other = record(0, 2, 70.0, coll="AllGather")
    other["header"] |= {"id": "0x2", "n_ranks": 8, "nnodes": 1}
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(log(record(0, 1, 50.0), other))
    found = cs.compare(tmp_path / "a.log", tmp_path / "b.log").to_dict()
    assert {table["op"] for table in found["tables"]} == {"all_reduce", "all_gather"}
    assert not [text for text in found["warnings"] if "ranks" in text]
