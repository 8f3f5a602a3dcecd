"""A small version of benchmarks/import_speed.py: work and memory, counted."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from helpers.kineto_writer import Recording
from helpers.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from helpers.counting import python_calls
from import_speed import generate
from msgspec import structs

from commsim.traces import load_trace
from commsim.traces.formats.files import Document, documents
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.formats.kineto_rows import KinetoFrame, OddPieceError, rows_in_pieces
from commsim.traces.rebuild.rank import rank_part


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("made") / "rank0.json", 0, 2, 6.0)


def parse(file: Path) -> int:
    (document,) = documents(file)
    return len(read_kineto(document).events)


def test_parsing_calls_few_functions_for_each_event(file: Path) -> None:
    events = 0

    def read() -> None:
        nonlocal events
        events = parse(file)

    calls = python_calls(read)
    assert events > 15_000
    assert calls < events / 3  # 0.2 when written: what is done, is done for many at once


def test_parsing_takes_at_most_twice_the_file(file: Path) -> None:
    tracemalloc.start()
    try:
        parse(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2 * file.stat().st_size


def test_what_is_generated_is_a_run(file: Path) -> None:
    other = generate(file.with_name("rank1.json"), 1, 2, 6.0)
    trace = load_trace([file, other])
    assert trace.ranks == (0, 1)
    assert {row.op for row in trace.collectives} == {"all_reduce"}
    assert all(row.last_arriver == 1 for row in trace.collectives)


def test_what_a_rank_did_is_found_by_columns(file: Path) -> None:
    """From events to a rank's part of the graph; 41 calls per event when each was an object."""
    (document,) = documents(file)
    recording = read_kineto(document)
    calls = python_calls(lambda: rank_part(recording, rank=0))
    assert calls < len(recording.events)  # 0.3 when written


def test_a_file_reads_alike_in_pieces_and_as_a_whole(file: Path) -> None:
    """A second key "traceEvents", nested in the last, is what no piece may hold."""
    text = file.read_text().rstrip().removesuffix("}")
    odd = Document("rank0.json", (text + ', "more": {"traceEvents": []}}').encode())
    (plain,) = documents(file)
    with pytest.raises(OddPieceError):
        list(rows_in_pieces(odd.data, KinetoFrame()))
    assert len(list(rows_in_pieces(plain.data, KinetoFrame()))) > 5
    for one, other in zip(read_kineto(odd).events, read_kineto(plain).events, strict=True):
        assert structs.astuple(one) == structs.astuple(other)


def test_a_list_of_many_ranks_is_read_once_for_all_files(tmp_path: Path) -> None:
    """Each of eight files lists all 4,000 ranks of its group, and so does each call."""
    ranks = list(range(4000))
    for rank in range(8):
        record = Recording(rank, world=len(ranks))
        record.note("ProfilerStep#1", 0, 500)
        record.all_reduce(50, 100, 140, group="all")
        content = record.content()
        content["distributedInfo"]["pg_config"] = [{"pg_name": "all", "ranks": ranks}]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(content), encoding="utf-8")
    assert python_calls(lambda: load_trace(tmp_path)) < 16 * len(ranks)


def test_a_list_of_ranks_may_hold_anything(tmp_path: Path) -> None:
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 500)
    content = record.content()
    content["distributedInfo"]["pg_config"] = [{"pg_name": "odd", "ranks": [[0], "1", None]}]
    (tmp_path / "rank0.json").write_text(json.dumps(content), encoding="utf-8")
    (document,) = documents(tmp_path / "rank0.json")
    assert read_kineto(document).groups == {"odd": (-1, 1, -1)}
