"""A bench in nccl-tests' layout, read back by the reader of nccl-tests' files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.export import write_nccl_tests
from commsim.study.bench import bench
from commsim.traces.formats.nccl_tests.reader import load_nccl_tests


def benched(ops: str, algo: str = "auto") -> dict[str, Any]:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    return bench(cluster, ops, [2**20, 2**24], algo=algo).to_dict()


def test_the_reader_finds_what_was_written(tmp_path: Path) -> None:
    path, data = tmp_path / "b.json", benched("all_to_all")
    write_nccl_tests(data, path)
    (table,) = load_nccl_tests(path)
    assert table.op == "all_to_all"
    assert [row.size for row in table.rows] == [row["size"] for row in data["results"]]
    assert [row.time_us for row in table.rows] == [row["time_us"] for row in data["results"]]
    assert [row.count for row in table.rows] == [row["count"] for row in data["results"]]
    assert len(table.devices) == 16
    assert len({device.host for device in table.devices}) == 2


def test_it_says_who_wrote_it_and_what_ran(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    write_nccl_tests(benched("all_reduce"), path)
    raw = json.loads(path.read_bytes())
    assert raw["commsim"]
    assert all(row["experiment_name"].startswith("commsim: ") for row in raw["results"])
    assert raw["results"][0]["in_place"] == raw["results"][0]["out_of_place"]


@pytest.mark.parametrize(("ops", "algo"), [("all_reduce,broadcast", "auto"), ("all_reduce", "all")])
def test_what_a_file_cannot_hold_is_refused(tmp_path: Path, ops: str, algo: str) -> None:
    with pytest.raises(ScenarioError, match="one"):
        write_nccl_tests(benched(ops, algo), tmp_path / "b.json")
    assert list(tmp_path.iterdir()) == []
