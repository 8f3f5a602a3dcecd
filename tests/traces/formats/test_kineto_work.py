"""A small version of benchmarks/import_speed.py: work and memory, counted."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

import pytest
from helpers.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from helpers.counting import python_calls
from import_speed import generate

from commsim.traces import load_trace
from commsim.traces.formats.files import documents
from commsim.traces.formats.kineto import read_kineto


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
    assert calls < 5 * events  # 3.5 when written


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
