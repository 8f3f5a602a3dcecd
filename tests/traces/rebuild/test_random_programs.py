"""Random programs that Gloo really ran: calls, groups, bytes and every part of the account."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from helpers.captured import DATA, KINDS

from commsim.study.replay import replay
from commsim.traces import load_trace

RUNS = sorted(path for path in (DATA / "gloo_random").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_the_account_is_met(folder: Path) -> None:
    found = replay(folder)
    assert found.result.extra["self_check"]["account"]["misses"] == []
    for rank in found.result.extra["error"]["ranks"]:
        assert abs(rank["step_time"]) < 1e-3


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_calls_groups_and_bytes_are_those_of_the_program(folder: Path) -> None:
    trace = load_trace(folder)
    for rank in trace.ranks:
        told: Counter[tuple[object, ...]] = Counter()
        for call in json.loads((folder / f"rank{rank}.calls.json").read_text()):
            if call["op"] in KINDS and KINDS[call["op"]] != "barrier":
                kind = KINDS[call["op"]]
                size = call["out"] if kind == "all_gather" else call["in"]
                told[kind, tuple(call["ranks"]), size] += 1
        found = Counter(
            (row.op, row.ranks, row.size)
            for row in trace.collectives
            if rank in row.waits and row.op != "barrier"
        )
        assert found == told


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_every_message_has_both_ends(folder: Path) -> None:
    """Also those that were received from any source."""
    trace = load_trace(folder)
    sends = sum(
        call["op"] == "send"
        for rank in trace.ranks
        for call in json.loads((folder / f"rank{rank}.calls.json").read_text())
    )
    assert len(trace.messages) == sends > 0
    assert not any("no other end" in note for note in trace.notes)
