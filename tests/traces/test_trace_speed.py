"""A small version of benchmarks/import_speed.py: floors that only a mistake goes below."""

from __future__ import annotations

import sys
import time
import tracemalloc
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from import_speed import generate

from commsim.traces import load_trace
from commsim.traces.files import documents
from commsim.traces.kineto import read_kineto


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("made") / "rank0.json", 0, 2, 6.0)


def parse(file: Path) -> int:
    (document,) = documents(file)
    return len(read_kineto(document).events)


def test_a_core_parses_tens_of_megabytes_a_second(file: Path) -> None:
    begin = time.process_time()
    assert parse(file) > 15_000
    took = time.process_time() - begin
    assert file.stat().st_size / 1e6 / took > 25  # 92 to 132 where nothing else runs


def test_parsing_takes_at_most_two_and_a_half_times_the_file(file: Path) -> None:
    tracemalloc.start()
    try:
        parse(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 2.5 * file.stat().st_size


def test_what_is_generated_is_a_run(file: Path) -> None:
    other = generate(file.with_name("rank1.json"), 1, 2, 6.0)
    trace = load_trace([file, other])
    assert trace.ranks == (0, 1)
    assert {row.op for row in trace.collectives} == {"all_reduce"}
    assert all(row.last_arriver == 1 for row in trace.collectives)
