"""What is too large is refused with its size, what makes it large and what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commsim as cs
from commsim import limits
from commsim.cluster import build, cluster_from
from commsim.collectives import program
from commsim.compiled import can_compile
from commsim.executors import limited_call
from commsim.graph import refold
from commsim.libraries import Ideal, Request
from commsim.libraries.expansion import lay
from commsim.libraries.ideal.rings import ring_messages
from commsim.libraries.routing import Router
from commsim.limits import (
    BYTES_PER_CHUNK,
    BYTES_PER_COPIED_OP,
    BYTES_PER_OP,
    BYTES_PER_ROUTE,
    BYTES_PER_WRITTEN_OP,
    check_size,
    limited_to,
    memory_limit,
    most,
    op_bytes,
    run_by_simpy,
)
from commsim.workload.training.step import StepBuilder

PIPELINE = {"stages": 64, "microbatches": 100, "forward": "1ms", "backward": "2ms"}
TRAINING = {
    "model": {"layers": 4, "hidden": 256, "heads": 4, "vocab": 1024, "seq_len": 128},
    "batch": {"global": 64, "micro": 1},
    "parallel": {"dp": 8},
}
H100 = {"preset": "dgx-h100"}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"workload": {"pipeline": PIPELINE}}, r"64 stages x 100 microbatches.*fewer microbatches"),
        (
            {"cluster": H100, "workload": {"training": TRAINING}},
            "2 steps of 8 microbatches, each of 96 operations on 8 lanes.*fewer microbatches",
        ),
        (
            {"cluster": H100, "engine": {"network": "steps"},
             "library": {"name": "nccl", "env": {"NCCL_ALGO": "Ring"}},
             "workload": {"collectives": [{"op": "all_reduce", "bytes": "64MiB"}]}},
            "network steps: .* services of links.*network: fluid",
        ),
    ],
)  # fmt: skip
def test_what_is_too_large_is_refused(data: dict[str, Any], told: str) -> None:
    with pytest.raises(cs.ScenarioError, match=told) as caught:
        cs.run(data, limit="150kB")
    assert "more than the limit of 146.5 KiB" in str(caught.value)
    assert cs.run(data, limit="2GiB").metrics.step_time_s > 0


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"batch": {"global": 8_000_000, "micro": 1}}, "2 steps of 1,000,000 microbatches"),
        ({"steps": 1_000_000}, "1,000,000 steps of 8 microbatches.*Take fewer steps"),
    ],
)
def test_a_training_is_counted_before_it_is_written(
    changed: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StepBuilder, "step", lambda *_: pytest.fail("a step is written"))
    data = {"cluster": H100, "workload": {"training": {**TRAINING, **changed}}}
    with pytest.raises(cs.ScenarioError, match=told):
        cs.run(data, limit="6GiB")


def test_a_training_message_by_message_is_counted_by_the_engine_that_runs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StepBuilder, "step", lambda *_: pytest.fail("a step is written"))
    data = {
        "cluster": H100, "engine": {"network": "steps"},
        "workload": {"training": {**TRAINING, "batch": {"global": 80_000, "micro": 1}}},
    }  # fmt: skip
    with pytest.raises(cs.ScenarioError, match="2 steps of 10,000 microbatches"):
        cs.run(data, limit=210_000 * BYTES_PER_OP)


def test_the_estimate_of_compiled_code_is_that_of_how_work_is_written() -> None:
    with limited_to(300_000 * BYTES_PER_OP):
        few, many = op_bytes(300_000), op_bytes(300_001)
        copied = op_bytes(300_001, copied=True)
        with run_by_simpy(True):
            assert op_bytes(300_001) == BYTES_PER_OP
    assert few == BYTES_PER_OP
    if can_compile():
        assert (many, copied) == (BYTES_PER_WRITTEN_OP, BYTES_PER_COPIED_OP)


def test_only_what_there_is_more_of_can_be_less() -> None:
    one = {**TRAINING, "batch": {"global": 8, "micro": 1}}
    with pytest.raises(cs.ScenarioError, match="Take fewer ranks, or fewer layers. Or") as caught:
        cs.run({"cluster": H100, "workload": {"training": one}}, limit="50kB")
    assert "fold" not in str(caught.value)  # 8 ranks have lanes of their own
    calls = {"program": {"ranks": {"0": [{"compute": "1ms"}] * 50}}}
    with pytest.raises(cs.ScenarioError, match="so far.*Take fewer operations"):
        cs.run({"workload": calls}, limit=49 * BYTES_PER_OP)


def test_an_all_to_all_message_by_message_is_counted_before_it_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cs.Ideal, "plan", lambda *_: pytest.fail("it is planned"))
    work = {"collectives": [{"op": "all_to_all", "bytes": "64MiB"}]}
    data = {
        "cluster": H100, "workload": work, "library": {"name": "ideal"},
        "engine": {"network": "steps"},
    }  # fmt: skip
    with pytest.raises(cs.ScenarioError, match="all-to-all of 8 ranks, 56 messages"):
        cs.run(data, limit=55 * BYTES_PER_ROUTE)


def test_programs_routes_pairs_and_rings_are_counted() -> None:
    cluster = cluster_from({"preset": "dgx-h100", "nodes": 3}, "here")
    router, ranks = Router(cluster), range(24)
    with limited_to(2 * 100 * BYTES_PER_CHUNK):
        with pytest.raises(cs.ScenarioError, match="all_to_all by direct among 24 ranks: 101 mess"):
            program("all_to_all", "direct", 24)
        with pytest.raises(cs.ScenarioError, match="an all-to-all of 24 ranks: 552 pairs"):
            Ideal().plan(Request("all_to_all", 1 << 20, tuple(ranks)), cluster)
        with pytest.raises(cs.ScenarioError, match="a ring of 24 ranks: 1,104 messages"):
            ring_messages(ranks, ranks, 1e6, 2, router)
    made = program("all_gather", "direct", 8)
    with limited_to(55 * BYTES_PER_ROUTE), pytest.raises(cs.ScenarioError, match="56 routes"):
        lay(made, 1e6, range(8), range(8), router)


def test_the_links_of_nodes_are_counted_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "Template", lambda _: pytest.fail("a node is made"))
    with limited_to(10**9), pytest.raises(cs.ScenarioError, match="4,000,032 links of 1 nodes"):
        cluster_from({"preset": "dgx-h100", "overrides": {"nic": {"count": 1_000_000}}}, "here")


def test_workers_have_the_limit_that_is_stated() -> None:
    with limited_to(12_345):
        call = limited_call(memory_limit)
    assert call() == 12_345
    assert memory_limit() != 12_345


def test_a_graph_of_many_operations_is_refused_before_it_runs() -> None:
    graph = cs.run("1f1b").timeline.graph
    with limited_to(10 * BYTES_PER_OP), pytest.raises(cs.ScenarioError, match="the graph: "):
        cs.simulate(graph, None, library=cs.Ideal())


def test_ranks_that_unfold_are_counted_before_they_are_copied() -> None:
    """One rank's operations fit, those of 128 do not; no rank of them is laid down before."""
    nodes = {"preset": "dgx-h100", "nodes": 16}
    work = {"training": {**TRAINING, "batch": {"global": 128, "micro": 1}, "parallel": {"dp": 128}}}
    data = {"cluster": nodes, "workload": work}
    one = len(cs.run(data).timeline.graph)
    limit = 20 * one * BYTES_PER_OP
    assert cs.run(data, limit=limit).metrics.step_time_s > 0
    with pytest.raises(cs.ScenarioError, match="operations on 128 lanes.*engine.fold: auto"):
        cs.run({**data, "engine": {"fold": "off"}}, limit=limit)
    told = rf"unfolded: {128 * one:,} operations of 128 lanes"
    with limited_to(limit), pytest.raises(cs.ScenarioError, match=told):
        refold(cs.run(data).timeline.graph, np.arange(128))


def test_the_machine_sets_the_limit_unless_one_is_stated() -> None:
    assert memory_limit() > 2**28
    with limited_to(None):
        assert memory_limit() > 2**28
    with limited_to(1000):
        assert (memory_limit(), most(10), most(11)) == (1000, 100, 90)
        check_size(100, 10, "x", "")
        with pytest.raises(cs.ScenarioError):
            check_size(101, 10, "x", "")
    assert memory_limit() > 1000


@pytest.mark.parametrize(
    ("granted", "most_bytes"),
    [("50000\n", 45_000), ("200000\n", 90_000), ("max\n", 90_000), (None, 90_000)],
)
def test_nine_tenths_of_the_machine_or_of_what_its_control_group_grants(
    granted: str | None, most_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if granted is not None:
        (tmp_path / "memory.max").write_text(granted)
    monkeypatch.setattr(limits, "_CGROUP", tmp_path / "memory.max")
    pages = {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 100}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__, raising=False)
    assert memory_limit() == most_bytes


def test_a_limit_is_a_size() -> None:
    with pytest.raises(cs.UnitError, match="no unit"):
        cs.run("1f1b", limit="8")
