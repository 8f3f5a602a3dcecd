"""The JSON of `commsim bench` as measured times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import commsim as cs
from commsim.errors import TraceError
from commsim.traces.formats import is_bench_json, read_bench_json

SYSTEM = {"gpus": 16, "nodes": 2, "version": "2.27"}
ROW = {"op": "all_reduce", "size": 1024, "type": "half", "time_us": 20.5}


def data(system: Any = SYSTEM, *rows: Any) -> bytes:
    return json.dumps({"system": system, "results": list(rows) or [ROW]}).encode()


def test_what_bench_writes_is_read_back(tmp_path: Path) -> None:
    found = cs.bench(cs.Cluster.preset("dgx-h100", nodes=2), ("all_reduce", "broadcast"), "1MiB")
    found.save_json(tmp_path / "b.json")
    content = (tmp_path / "b.json").read_bytes()
    assert is_bench_json(content)
    tables = read_bench_json(content, "b.json")
    assert [(one.op, one.ranks, one.nodes) for one in tables] == [
        ("all_reduce", 16, 2), ("broadcast", 16, 2),
    ]  # fmt: skip
    rows = {row.op: row for row in found.results}
    for one in tables:
        assert one.rows[0].time_us == rows[one.op].time_us
        assert (one.rows[0].size, one.dtype) == (2**20, "float")


def test_types_are_tables_of_their_own_and_rows_are_sorted() -> None:
    rows = [{**ROW, "size": 2048}, ROW, {**ROW, "type": "float"}]
    half, single = sorted(read_bench_json(data(SYSTEM, *rows), "x"), key=lambda t: -len(t.rows))
    assert [row.size for row in half.rows] == [1024, 2048]
    assert (half.dtype, single.dtype, half.nccl) == ("half", "float", "2.27")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (data({"gpus": 16, "nodes": 3}), "16 GPUs on 3 nodes"),
        (data({"gpus": 1}), "1 GPUs on 1 nodes"),
        (data({"gpus": 8, "library": "gloo"}), "is of gloo"),
        (data(SYSTEM, {**ROW, "op": "hypercube"}), "no bench of hypercube"),
        (data(SYSTEM, {**ROW, "time_us": 0}), "no row has a size and a time"),
        (data(SYSTEM, {**ROW, "time_us": "fast"}), "is not the JSON of commsim bench"),
        (data(SYSTEM, {"op": "all_reduce"}) + b"}", "is not the JSON of commsim bench"),
    ],
)
def test_what_cannot_be_read_is_named(content: bytes, told: str) -> None:
    with pytest.raises(TraceError, match=told):
        read_bench_json(content, "x.json")
