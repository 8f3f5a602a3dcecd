"""Settings that once ended in a traceback or in minutes of work: each ends in one sentence."""

from __future__ import annotations

import pytest

import commsim as cs


@pytest.mark.parametrize(
    ("scenario", "setting", "told"),
    [
        ("goodput", "cluster.overrides.c2c.bandwidth=1bps", "takes longer than commsim can hold"),
        ("goodput", "cluster.overrides.c2c.bandwidth=1e-300Gbps", "less than a bit per second"),
        ("torus", "cluster.node.nic.bandwidth=1e-300Gbps", "less than a bit per second"),
        ("dp-pp-tp", "cluster.overrides.nic.count=1000000000", "more than commsim can hold"),
        ("dp-pp-tp", "cluster.overrides.nic.count=0", "is not a count"),
    ],
)
def test_links_that_are_next_to_none_or_too_many(scenario: str, setting: str, told: str) -> None:
    with pytest.raises(cs.CommsimError, match=told):
        cs.run(scenario, sets=[setting])
