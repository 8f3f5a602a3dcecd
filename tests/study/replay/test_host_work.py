"""Gaps that may be waiting or work: a what-if of host work is run both ways."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.paths import TESTS

from commsim.engine import simulate
from commsim.study.replay import replay, split_sets
from commsim.study.replay.host_work import is_unsure
from commsim.timeline import Timeline

STACKS = TESTS / "data" / "gloo_stacks"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording with Python frames, without them: its sort cannot be told from waiting."""
    folder = tmp_path_factory.mktemp("bare")
    for rank in range(2):
        file = json.loads(gzip.decompress((STACKS / f"rank{rank}.json.gz").read_bytes()))
        file["traceEvents"] = [
            event for event in file["traceEvents"] if event.get("cat") != "python_function"
        ]
        (folder / f"rank{rank}.json").write_text(json.dumps(file))
    return folder


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_what_the_frames_tell_lies_between_best_and_worst(bare: Path, scale: float) -> None:
    change = split_sets([f"compute.scale={scale}"])[0]
    known = replay(STACKS, what_if=change).result
    found = replay(bare, what_if=change).result
    bounds = found.extra["host_work"]
    assert "host_work" not in known.extra
    assert bounds["best_step_s"] < bounds["worst_step_s"]
    slack = 0.01 * known.metrics.step_time_s
    assert bounds["best_step_s"] - slack <= known.metrics.step_time_s
    assert known.metrics.step_time_s <= bounds["worst_step_s"] + slack
    assert any("nobody recorded which" in note for note in found.notes)


def test_work_beside_communication_was_measured_so_and_is_not_slowed_again(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def told(*given: Any, **how: Any) -> Timeline:
        seen.append(how["overlap_slowdown"])
        return simulate(*given, **how)

    monkeypatch.setattr(sys.modules["commsim.study.replay.replay"], "simulate", told)
    replay(bare, what_if=split_sets(["compute.scale=2"])[0])
    assert set(seen) == {False}
    assert len(seen) >= 3  # as it was, the what-if, and the gaps as work


def test_a_replay_that_changes_no_work_has_no_bounds(bare: Path) -> None:
    assert "host_work" not in replay(bare).result.extra


@pytest.mark.parametrize(("ps", "unsure"), [(0, False), (10**9, False), (10**9 + 1, True)])
def test_more_than_a_millisecond_can_change_a_conclusion(ps: int, unsure: bool) -> None:
    assert is_unsure(ps) is unsure
