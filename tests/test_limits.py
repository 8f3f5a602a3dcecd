"""What is too large is refused with its size, what makes it large and what to do."""

from __future__ import annotations

from typing import Any

import pytest

import commsim as cs
from commsim.limits import BYTES_PER_OP, check_size, limited_to, memory_limit, most

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
        ({"cluster": H100, "workload": {"training": TRAINING}}, "operations so far.*fold"),
        (
            {"cluster": H100, "engine": {"network": "steps"},
             "workload": {"collectives": [{"op": "all_reduce", "bytes": "64MiB"}]}},
            "network steps: 1,024 messages.*network: fluid",
        ),
    ],
)  # fmt: skip
def test_what_is_too_large_is_refused(data: dict[str, Any], told: str) -> None:
    with pytest.raises(cs.ScenarioError, match=told) as caught:
        cs.run(data, limit="50kB")
    assert "more than the limit of 48.83 KiB" in str(caught.value)
    assert cs.run(data, limit="2GiB").metrics.step_time_s > 0


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
    with pytest.raises(cs.ScenarioError, match=rf"unfolded: {128 * one:,} operations of 128 lanes"):
        cs.run({**data, "engine": {"fold": "off"}}, limit=limit)


def test_the_machine_sets_the_limit_unless_one_is_stated() -> None:
    assert memory_limit() > 2**28
    with limited_to(None):
        assert memory_limit() > 2**28
    with limited_to(1000):
        assert (memory_limit(), most(10)) == (1000, 100)
        check_size(100, 10, "x", "")
        with pytest.raises(cs.ScenarioError):
            check_size(101, 10, "x", "")
    assert memory_limit() > 1000


def test_a_limit_is_a_size() -> None:
    with pytest.raises(cs.UnitError, match="no unit"):
        cs.run("1f1b", limit="8")
