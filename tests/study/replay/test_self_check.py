"""The self-check holds the account of time against the recording, and sees planted faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from helpers.captured import DATA, RUNS
from msgspec.structs import replace

from commsim.engine import simulate
from commsim.graph import Graph
from commsim.graph.edit import insert_work
from commsim.libraries import Recorded
from commsim.study.replay import replay
from commsim.study.replay.self_check import AccountCheck, check_account
from commsim.traces import Trace, load_trace
from commsim.traces.rebuild.rank import gpu_ops
from commsim.traces.rebuild.rank.gloo_work import gloo_work

MS = 1_000_000_000


@pytest.mark.share(0.5)
@pytest.mark.parametrize("run", [*RUNS, "ddp-4-late", "1f1b-4-late", "ddp-join-2"])
def test_the_account_of_every_recorded_run_is_met(run: str) -> None:
    found = replay(DATA / "gloo_runs" / run)
    assert found.result.extra["self_check"]["account"]["misses"] == []
    assert "DO NOT TRUST" not in found.headline


def check(trace: Trace, graph: Graph) -> AccountCheck:
    again = simulate(graph, None, library=Recorded(), overlap_slowdown=False)
    return check_account(trace, trace.timeline(), again)


def test_longer_transfers_are_seen_though_compute_agrees() -> None:
    trace = load_trace(DATA / "gloo_runs/ddp-4")
    graph = trace.graph()
    assert check(trace, graph).misses == ()
    slower = replace(graph.collectives, recorded=graph.collectives.recorded * 3)
    found = check(trace, replace(graph, collectives=slower))
    assert {miss.part for miss in found.misses} >= {"exposed transfer", "communication"}
    assert found.misses[0].part in found.verdict()


def test_invented_waits_are_seen_on_the_rank_that_has_them() -> None:
    trace = load_trace(DATA / "gloo_runs/fsdp2-tp-4")
    graph = trace.graph()
    lane = int(np.flatnonzero(graph.lane_rank == 2)[0])
    first = int(np.flatnonzero(graph.lane == lane)[1])
    found = check(trace, insert_work(graph, first, 20 * MS))
    assert "waiting in communication" in {miss.part for miss in found.misses if miss.rank != 2}


def test_work_that_the_import_lost_is_seen(tmp_path: Path) -> None:
    """The account of the events knows a kernel that the graph does not have."""
    from helpers.kineto_writer import late_rank

    late_rank(0).save(tmp_path)
    late_rank(1).save(tmp_path)
    trace = load_trace(tmp_path)
    assert check(trace, trace.graph()).misses == ()
    account = trace.own_accounts[0]
    assert account is not None
    assert account.bounds()["compute"] == (150_000_000, 150_000_000)
    graph = trace.graph()
    kernel = [graph.op_name(op) for op in range(len(graph))].index("volta_sgemm")
    duration = graph.duration.copy()
    duration[kernel] = 0
    parts = {miss.part for miss in check(trace, replace(graph, duration=duration)).misses}
    assert "compute" in parts


@pytest.mark.parametrize("run", ["ddp-4", "fsdp2-2", "p2p-4"])
def test_gloos_work_that_the_import_lost_is_seen(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording's own intervals are no part of the import, which loses every other one here."""

    def half(*arguments: Any) -> Iterator[Any]:
        yield from list(gloo_work(*arguments))[::2]

    monkeypatch.setattr(gpu_ops, "gloo_work", half)
    found = replay(DATA / "gloo_runs" / run)
    parts = {miss["part"] for miss in found.result.extra["self_check"]["account"]["misses"]}
    assert "communication" in parts
    assert "DO NOT TRUST" in found.headline


def test_work_of_gloo_at_other_times_than_recorded_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorter(*arguments: Any) -> Iterator[Any]:
        for event, call in gloo_work(*arguments):
            middle = event.start + (event.end - event.start) // 2
            yield msgspec.structs.replace(event, end=middle), call

    monkeypatch.setattr(gpu_ops, "gloo_work", shorter)
    found = replay(DATA / "gloo_runs/ddp-4")
    parts = {miss["part"] for miss in found.result.extra["self_check"]["account"]["misses"]}
    assert "communication" in parts
