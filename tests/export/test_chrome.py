"""Chrome JSON, parsed back: processes, tracks, slices, arrows, counters."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from commsim.export import write_chrome, write_csv
from commsim.study.run import run


def events(tmp_path: Path, name: str, suffix: str = ".json") -> list[dict[str, Any]]:
    path = tmp_path / f"trace{suffix}"
    write_chrome(run(name, ("engine.fold=off",)).timeline, path)
    raw = path.read_bytes()
    found = json.loads(gzip.decompress(raw) if suffix.endswith("gz") else raw)
    made: list[dict[str, Any]] = found["traceEvents"]
    return made


def test_a_process_per_rank_and_a_track_per_stream(tmp_path: Path) -> None:
    named = [e for e in events(tmp_path, "ddp") if e["name"] == "process_name"]
    assert [e["args"]["name"] for e in named] == [*(f"rank {r}" for r in range(4)), "links (GB/s)"]
    sorts = [e for e in events(tmp_path, "ddp") if e["name"] == "process_sort_index"]
    assert [e["args"]["sort_index"] for e in sorts] == [0, 1, 2, 3, 4]


def test_every_span_is_a_slice_with_its_times(tmp_path: Path) -> None:
    timeline = run("p2p-blocking").timeline
    slices = [e for e in events(tmp_path, "p2p-blocking") if e["ph"] == "X"]
    works = [e for e in slices if e["cat"] != "wait"]
    assert len(works) == len(timeline)
    for event in works:
        op = event["args"]["op"]
        assert event["ts"] == pytest.approx(timeline.start[op] * 1e-6)
        assert event["dur"] == pytest.approx((timeline.end[op] - timeline.start[op]) * 1e-6)
    waits = [e for e in slices if e["cat"] == "wait"]
    assert [e["dur"] for e in waits] == [pytest.approx(2000.0)]  # rank 0 waits for 2 ms


def test_an_arrow_runs_from_send_to_recv(tmp_path: Path) -> None:
    arrows = [e for e in events(tmp_path, "p2p-nonblocking") if e["ph"] in "sf"]
    assert [(e["ph"], e["pid"]) for e in arrows] == [("s", 0), ("f", 1)]
    assert arrows[0]["id"] == arrows[1]["id"]


def test_counters_stay_within_the_links(tmp_path: Path) -> None:
    counters = [e for e in events(tmp_path, "ring-all-reduce") if e["ph"] == "C"]
    values = [e["args"]["GB/s"] for e in counters]
    assert max(values) == pytest.approx(300 * 0.9412, rel=0.02)
    assert min(values) == 0


def test_packed_files_have_the_same_bytes_every_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    timeline = run("ddp").timeline
    write_chrome(timeline, first)
    write_chrome(timeline, second)
    assert first.read_bytes() == second.read_bytes()


def test_csv_tables_hold_what_the_json_holds(tmp_path: Path) -> None:
    result = run("ddp", ("engine.fold=off",))
    paths = write_csv(result.timeline, result.to_dict(), tmp_path / "tables")
    assert [p.name for p in paths] == [
        "spans.csv", "ranks.csv", "collectives.csv", "links.csv", "critical_path.csv",
    ]  # fmt: skip
    with paths[0].open() as file:
        assert len(list(csv.DictReader(file))) == len(result.timeline)
    with paths[1].open() as file:
        ranks = list(csv.DictReader(file))
    assert float(ranks[2]["compute_s"]) == pytest.approx(result.metrics.ranks[2].compute_s)
