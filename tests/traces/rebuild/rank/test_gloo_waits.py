"""Host work beside async calls of Gloo is work, and what is not known of a gap is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import TESTS

from commsim.metrics import measure
from commsim.traces import Trace, load_trace

STACKS = TESTS / "data" / "gloo_stacks"
OWN_WORK = ("<built-in function sleep>", "<built-in method sort of numpy", "aten::ones")


def own_work(rank: int) -> float:
    """Return the seconds in sleeps, sorts and tensors that the recording's own frames show."""
    file = json.loads(gzip.decompress((STACKS / f"rank{rank}.json.gz").read_bytes()))
    events: list[dict[str, Any]] = file["traceEvents"]
    return float(sum(e["dur"] for e in events if e["name"].startswith(OWN_WORK)) / 1e6)


def compute(trace: Trace) -> list[float]:
    return [times.compute_s for times in measure(trace.timeline()).ranks]


def test_sleeps_and_numpy_beside_async_calls_are_work_with_stacks() -> None:
    for rank, seconds in enumerate(compute(load_trace(STACKS))):
        assert own_work(rank) <= seconds <= own_work(rank) + 0.025  # numpy.arange, Python itself


def test_without_stacks_what_may_be_work_is_said(tmp_path: Path) -> None:
    """The sleep ends long after its all-reduce did: work. The sort ends as the send's wait does."""
    for rank in range(2):
        file = json.loads(gzip.decompress((STACKS / f"rank{rank}.json.gz").read_bytes()))
        file["traceEvents"] = [
            event for event in file["traceEvents"] if event.get("cat") != "python_function"
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(file))
    trace = load_trace(tmp_path)
    without, known = compute(trace)[0], compute(load_trace(STACKS))[0]
    assert without == pytest.approx(known - 0.0538, abs=1e-3)
    (note,) = [n for n in trace.notes if n.startswith("rank 0") and "with_stack=True" in n]
    assert "53.8" in note
