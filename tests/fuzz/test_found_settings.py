"""Settings that once ended in a traceback or in minutes of work: each ends in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

import commsim as cs


@pytest.mark.parametrize(
    ("scenario", "setting", "told"),
    [
        ("goodput", "cluster.overrides.c2c.bandwidth=1bps", "takes longer than commsim can hold"),
        ("goodput", "cluster.overrides.c2c.bandwidth=1e-300Gbps", "less than a bit per second"),
        ("torus", "cluster.node.nic.bandwidth=1e-300Gbps", "less than a bit per second"),
        ("quickstart", "cluster.overrides.nic.bandwidth=1e300Gbps", "more than 1,000,000,000 GB"),
        (
            "quickstart",
            "cluster.overrides.nvlink.bandwidth=1e308B/s",
            "more than 1,000,000,000 GB",
        ),
        ("dp-pp-tp", "cluster.overrides.nic.count=1000000000", "more than commsim can hold"),
        ("dp-pp-tp", "cluster.overrides.nic.count=0", "is not a count"),
    ],
)
def test_links_that_are_next_to_none_or_too_many(scenario: str, setting: str, told: str) -> None:
    with pytest.raises(cs.CommsimError, match=told):
        cs.run(scenario, sets=[setting])


@pytest.mark.parametrize(
    ("scenario", "setting", "told"),
    [
        ("1f1b", "workload.pipeline.forward=1000000s", "the run takes longer than commsim can"),
        ("quickstart", "cluster.overrides.nic.bandwidth=100bps", "rank 0: all_reduce of 156.4 MiB"),
        ("quickstart", "cluster.overrides.nic.bandwidth=10bps", "all_reduce of 156.3 MiB over 16"),
        ("quickstart", "cluster.overrides.nvlink.latency=4000000s", "Give a smaller size, more"),
        ("quickstart", "cluster.overrides.host.launch=4000000s", "begun at 4000000 s, has not"),
        ("faults", "faults.slow_links.0.left=1e-300", "a link of which nothing is left for good"),
        ("faults", "cluster.overrides.nic.bandwidth=4bps", "all_reduce of 244.3 MiB over 64 ranks"),
        (
            "dataparallel-on-gpu0",
            "workload.training.compute.efficiency=1e-300",
            "compute of .* s is longer than commsim can hold",
        ),
    ],
)
def test_time_that_no_clock_holds(scenario: str, setting: str, told: str) -> None:
    with pytest.raises(cs.ScenarioError, match=told):
        cs.run(scenario, sets=[setting])


@pytest.mark.parametrize("setting", ["a `code` word", "`", "a`", "a - at `$.workload`"])
@pytest.mark.parametrize("above", [(), ("cluster",), ("cluster", "a`b")])
def test_a_setting_with_a_backtick_is_told_in_full(above: tuple[str, ...], setting: str) -> None:
    """Messages of the reader of data end a name at the first backtick."""
    data: dict[str, Any] = {"cluster": {"preset": "dgx-h100"}}
    place = data
    for name in above:
        place = place.setdefault(name, {})
    place[setting] = 1
    with pytest.raises(cs.ScenarioError, match="unknown setting") as told:
        cs.run(data)
    assert "`" in str(told.value)
