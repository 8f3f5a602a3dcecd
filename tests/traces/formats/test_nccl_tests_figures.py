"""Tables of nccl-tests made by hand: ranks from devices and figures, which rows stay together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.traces.formats.nccl_tests import merged
from commsim.traces.formats.nccl_tests.inspector import is_inspector_log, read_inspector_log
from commsim.traces.formats.nccl_tests.json_file import is_nccl_tests_json, read_json
from commsim.traces.formats.nccl_tests.own_json import is_bench_json, read_bench_json
from commsim.traces.formats.nccl_tests.reader import read_nccl_tests
from commsim.traces.formats.nccl_tests.table import (
    BenchedDevice,
    BenchedRow,
    BenchedTiming,
    NcclTests,
    described,
)


def row(
    size: int = 1024, count: int = 256, algbw: float = 100.0, busbw: float = 100.0, **more: Any
) -> BenchedRow:
    timing = BenchedTiming(10.0, algbw, busbw, 0)
    fixed: dict[str, Any] = {"type": "float", "redop": "sum", "root": -1, "in_place": None}
    return BenchedRow(size=size, count=count, out_of_place=timing, **fixed | more)


def table(*rows: BenchedRow, op: str = "all_reduce", **more: Any) -> NcclTests:
    return NcclTests(op, rows or (row(),), more.pop("devices", ()), None, "x", **more)


def device(rank: int, pid: int = 1, host: str = "a", group: int = 0) -> BenchedDevice:
    return BenchedDevice(rank, group, pid, host, rank, "V100")


def test_a_table_says_what_it_is_of() -> None:
    bare = table()
    assert (bare.ranks, bare.nodes, bare.launch, bare.notes) == (0, 0, None, ())
    assert repr(bare) == "NcclTests(all_reduce, 1 sizes)"
    assert repr(table(ranks=8)) == "NcclTests(all_reduce on 8 GPUs, 1 sizes)"


@pytest.mark.parametrize("n", [2, 3, 4, 8, 16, 30])
def test_ranks_by_the_bandwidths_of_an_all_reduce(n: int) -> None:
    """busbw is 2 (n - 1) / n of algbw: 15 digits tell any number, and two decimals small ones."""
    assert described(table(row(busbw=200 * (n - 1) / n))).ranks == n
    assert described(table(row(busbw=200 * (n - 1) / n, algbw=100 / 11))).ranks == 0
    slow = row(algbw=10.0, busbw=round(20 * (n - 1) / n, 2))
    # Off by half of the last decimal in either: told where the next number is further off.
    noise = 0.005 * (1 + 2 * (n - 1) / n) / 10
    assert described(table(slow)).ranks == (n if 2 / n**2 > 2 * noise else 0)


def test_figures_that_fit_no_number_of_ranks_tell_none() -> None:
    assert described(table(row(busbw=100.0))).ranks == 2  # 2 (n - 1) / n is 1
    for busbw in (90.0, 140.0, 200.0, 250.0):
        assert described(table(row(busbw=busbw))).ranks == 0
    assert described(table(row(algbw=9.99, busbw=9.99))).ranks == 0
    assert described(table(row(busbw=100.0), op="broadcast")).ranks == 0
    many = row(algbw=1e6, busbw=2e6 * 63 / 64)
    assert described(table(many)).ranks == 64
    assert described(table(row(algbw=1e6, busbw=2e6 * 64 / 65))).ranks == 0


def test_ops_that_deal_out_blocks_print_the_blocks_elements() -> None:
    def ranks(size: int, count: int) -> int:
        return described(table(row(8, 2), row(size, count), op="all_gather")).ranks

    assert (ranks(1024, 32), ranks(1024, 128), ranks(1024, 256)) == (8, 2, 0)
    assert (ranks(1020, 32), ranks(1024, 0)) == (0, 0)


def test_devices_tell_ranks_nodes_and_processes() -> None:
    def found(*devices: BenchedDevice) -> tuple[int, int, str | None]:
        made = described(table(row(busbw=0.0), devices=devices))
        return made.ranks, made.nodes, made.launch

    assert found(device(0), device(1)) == (2, 1, "process")
    assert found(device(0), device(1, pid=2)) == (2, 1, "gpu")
    assert found(device(0), device(1, host="b")) == (2, 2, None)
    four = [device(rank, host="ab"[rank // 2]) for rank in range(4)]
    assert found(*four) == (4, 2, "process")
    assert found(*(device(rank, rank, "ab"[rank // 2]) for rank in range(4))) == (4, 2, "gpu")


def test_a_split_test_counts_one_groups_ranks() -> None:
    devices = tuple(device(rank, rank, group=rank // 2) for rank in range(4))
    made = described(table(row(busbw=0.0), devices=devices))
    assert made.ranks == 2
    assert made.notes == ("the test was split into groups; one group's ranks are counted.",)


def test_processes_that_each_ran_alone_are_counted_once() -> None:
    """Two processes of two GPUs, each with ranks 0 and 1 of its own."""
    devices = tuple(device(rank, pid) for pid in (1, 2) for rank in (0, 1))
    made = described(table(row(busbw=0.0), devices=devices))
    assert made.ranks == 2
    assert made.notes[0].startswith("rank 0 stands there 4 times: nccl-tests was built without MPI")


def test_repeated_runs_are_one_table_and_others_are_left_out() -> None:
    here: dict[str, Any] = {"ranks": 8, "nodes": 1}
    first = table(row(1), row(2), row(3, type="half"), row(4, redop="max"), **here)
    again = table(row(5), row(6, redop="max"), **here)
    (one,) = merged([first, again])
    assert [each.size for each in one.rows] == [1, 2, 5]
    assert one.notes == ("2 rows of other types or redops are left out.",)
    for other in (
        table(row(5), ranks=16, nodes=1), table(row(5), ranks=8, nodes=2),
        table(row(5, type="half"), **here),
    ):  # fmt: skip
        (one,) = merged([first, other])
        assert [each.size for each in one.rows] == [1, 2]
        assert one.notes[-1] == (
            f"a second all_reduce, {other.ranks} ranks, {other.dtype}, is left out."
        )
    assert [each.op for each in merged([first, table(op="reduce")])] == ["all_reduce", "reduce"]


@pytest.mark.parametrize(
    ("code", "version"),
    [(22808, "2.28.8"), (2809, "2.8.9"), (21903, "2.19.3"), (9999, "9.9.99"), (10000, "1.0.0")],
)
def test_versions_are_codes(code: int, version: str) -> None:
    """NCCL_VERSION_CODE of nccl.h: X * 10000 + Y * 100 + Z since 2.9, X * 1000 before."""
    line = "1024 256 float sum -1 1 1 1 0 1 1 1 0"
    (found,) = read_nccl_tests(f"# nccl-library={code}\n{line}".encode(), "x")
    assert found.nccl == version


@pytest.mark.parametrize(
    "line",
    [
        "1024 256 float sum -1 1 1 1 0 1 1 1",  # a cell is missing
        "1024 256 float sum -1 1 1 1 0 1 1 1 0 5 5",
        "1024 256 float sum x 1 1 1 0 1 1 1 0",
        "1024 256 float sum -1 1 1 nan 0 1 1 1 0",
        "1024 256 float sum -1 1 inf 1 0 1 1 1 0",
        "1024 256 float sum -1 -1 1 1 0 1 1 1 0",
        "1024 256 float sum -1 1 1 1 bad 1 1 1 0",
    ],
)
def test_a_row_of_other_figures_is_broken(line: str) -> None:
    whole = "1024 256 float sum -1 0 0 0 0 1 1 1 N/A"
    (found,) = read_nccl_tests(f"all_reduce_perf\n{whole}\n{line}".encode(), "x")
    assert found.notes == ("1 lines are broken by other output; they are left out.",)
    assert found.rows[0].out_of_place == BenchedTiming(0, 0, 0, 0)
    assert found.rows[0].in_place == BenchedTiming(1, 1, 1, None)


def json_text(**more: Any) -> bytes:
    timing = {"time": 5.0, "alg_bw": 1.0, "bus_bw": 2.0, "nwrong": 0}
    one = {"size": 8, "type": "float", "out_of_place": timing} | more.pop("row", {})
    return json.dumps({"results": [one], "args": ["/bin/all_reduce_perf"]} | more).encode()


def test_the_json_of_a_test() -> None:
    bare = read_json(json_text(), "x")
    assert (bare.op, bare.nccl, bare.notes, bare.devices) == ("all_reduce", None, (), ())
    assert bare.rows == (
        BenchedRow(8, 0, "float", None, None, BenchedTiming(5.0, 1.0, 2.0, 0.0), None),
    )
    full = read_json(
        json_text(nccl_version=22902, out_of_bounds={"count": 3}, row={"root": " -1"},
                  config={"devices": [{"rank": 1}]}), "x",
    )  # fmt: skip
    assert (full.nccl, full.rows[0].root) == ("2.29.2", -1)
    assert full.notes == ("nccl-tests found 3 wrong values.",)
    assert full.devices == (BenchedDevice(1, 0, 0, "", 0, ""),)
    assert read_json(json_text(row={"root": 3}), "x").rows[0].root == 3
    assert read_json(json_text(row={"root": "N/A"}), "x").rows[0].root is None
    free = {"out_of_place": {"time": 0, "alg_bw": -1.0, "bus_bw": "nan"}}
    assert read_json(json_text(row=free), "x").rows[0].out_of_place == BenchedTiming(0, 0, 0, None)
    with pytest.raises(TraceError, match="the row of 8 bytes has no time"):
        read_json(json_text(row={"out_of_place": {"time": "nan"}}), "x")


def test_which_json_is_of_nccl_tests_and_which_of_a_bench() -> None:
    assert is_nccl_tests_json(b' {"results": [{"in_place": 1}]}')
    assert is_nccl_tests_json(b'{"results": [{"out_of_place": 1}]}')
    assert not is_nccl_tests_json(b'[{"results": [{"in_place": 1}]}]')
    assert not is_nccl_tests_json(b'{"results": []}')
    assert not is_nccl_tests_json(b'{"in_place": []}')
    assert is_bench_json(b' {"system": 1, "time_us": 2}')
    assert not is_bench_json(b'{"system": 1}')
    assert not is_bench_json(b'{"time_us": 1}')
    assert not is_bench_json(b'[{"system": 1, "time_us": 2}]')


def bench(*rows: dict[str, Any], **system: Any) -> bytes:
    one = {"op": "all_reduce", "size": 4000, "time_us": 2.0}
    return json.dumps({"system": {"gpus": 8} | system, "results": [one, *rows]}).encode()


def test_times_that_no_benchmark_printed() -> None:
    """4000 bytes in 2 us are 2 GB/s."""
    (found,) = read_bench_json(bench({"op": "all_reduce", "size": 0, "time_us": 1.0}), "x")
    assert (found.ranks, found.nodes, found.nccl) == (8, 1, None)
    assert found.rows == (
        BenchedRow(4000, 0, "float", None, None, BenchedTiming(2.0, 2.0, 2.0, None), None),
    )
    (least,) = read_bench_json(bench({"op": "all_reduce", "size": 1, "time_us": 1.0}, gpus=2), "x")
    assert [row.size for row in least.rows] == [1, 4000]
    for gpus, nodes in ((1, 1), (8, 0), (8, 3)):
        with pytest.raises(TraceError, match=f"system: {gpus} GPUs on {nodes} nodes"):
            read_bench_json(bench(gpus=gpus, nodes=nodes), "x")


def inspected(rank: int, time: float, number: int = 0, **more: Any) -> str:
    head = {"id": "c", "rank": rank, "n_ranks": more.pop("n", 4), "nnodes": more.pop("nodes", 1)}
    perf = {
        "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 8000,
        "coll_exec_time_us": time,
    } | more  # fmt: skip
    return json.dumps({"header": head, "coll_perf": perf})


def test_an_inspectors_log_gives_the_median_of_what_the_last_ranks_took() -> None:
    """Ops of 2, 4 and 9 us on the rank that came last: 4. 8000 bytes in 4 us are 2 GB/s."""
    lines = [inspected(rank, last + rank, n) for n, last in enumerate((4, 9, 2)) for rank in (1, 0)]
    (found,) = read_inspector_log("\n".join([*lines, ""]).encode(), "x")
    assert (found.op, found.ranks, found.nodes) == ("all_reduce", 4, 1)
    timing = BenchedTiming(4.0, 2.0, 2.0, None)
    assert found.rows == (BenchedRow(8000, 2000, "float", None, None, timing, None),)
    assert len(found.notes) == 1
    assert "it says no types, float is taken" in found.notes[0]


def test_what_an_inspector_counts_by_rank_is_made_whole() -> None:
    for op, size in (("AllGather", 32_000), ("ReduceScatter", 32_000), ("Broadcast", 8000)):
        (found,) = read_inspector_log(inspected(0, 4, coll=op).encode(), "x")
        assert found.rows[0].size == size
        assert "the file is of one rank" in found.notes[1]


def test_what_an_inspector_cannot_have_meant_is_counted() -> None:
    odd = [
        inspected(0, 0.0), inspected(0, 4, coll_msg_size_bytes=0), inspected(0, 4, n=1),
        inspected(0, 4, n=2**24 + 1), inspected(0, 4, nodes=0), inspected(0, 4, coll="Odd"),
        json.dumps({"header": {"id": "c", "rank": 0, "n_ranks": 4}}),
    ]  # fmt: skip
    text = "\n".join([*odd, "{", inspected(0, 1, n=2), inspected(1, 1, n=2), inspected(1, 1, n=2,
                     coll_msg_size_bytes=1), inspected(0, 4, n=2**24)])  # fmt: skip
    found = read_inspector_log(text.encode(), "x")
    assert [(one.ranks, [row.size for row in one.rows]) for one in found] == [
        (2, [1, 8000]), (2**24, [8000]),
    ]  # fmt: skip
    assert found[0].notes[1:] == (
        "7 records of messages, or without bytes or time, are left out.",
        "1 lines cannot be read and are left out.",
    )
    with pytest.raises(TraceError, match="no line of the inspector tells of a collective"):
        read_inspector_log(odd[0].encode(), "x")
    assert is_inspector_log(b' {"coll_perf": 1}')
    assert is_inspector_log(b'{"p2p_perf": 1}')
    assert not is_inspector_log(b'[{"p2p_perf": 1}]')
    assert not is_inspector_log(b'{"perf": 1}')
