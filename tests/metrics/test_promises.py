"""What a limit promises for links twice as fast is what a run on such links gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from commsim.scenario import scenario_names
from commsim.study.run import run

FASTER = {
    "nvlink": "nvlink", "network": "nic", "fabric": "uplinks", "pcie": "pcie", "c2c": "pcie",
    "memory": "host_memory", "cpu": "host_memory",
}  # fmt: skip
"""The factor of `cluster.scale` for each kind of link."""

LARGE = {"llama3-405b"}  # half a minute a run


def promises(scenario: str, sets: Sequence[str] = ()) -> Iterator[tuple[str, float, float]]:
    """Yield (setting, promised share, share that a run gains) of each limit by bandwidth."""
    result = run(scenario, sets)
    step = result.metrics.step_time_s
    for limit in result.limits:
        promised = (limit.halved_s or 0.0) / step
        if limit.kind == "bandwidth" and limit.resource in FASTER and promised >= 0.01:
            setting = f"cluster.scale.{FASTER[limit.resource]}=2"
            yield setting, promised, 1 - run(scenario, [*sets, setting]).metrics.step_time_s / step


def test_twice_the_nvlink_promises_no_more_than_what_nccl_makes_of_it() -> None:
    """NCCL copies with as many SMs as before: half of the time would be 8.5 % of the step."""
    found = list(promises("tensor-parallel", ["workload.training.model.layers=2"]))
    [(_, promised, gained)] = found
    assert promised == pytest.approx(gained, rel=0.1)
    assert 0.04 < gained < 0.06


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(scenario_names()) - LARGE))
def test_no_scenario_of_the_catalogue_promises_more_than_it_gains(name: str) -> None:
    for setting, promised, gained in promises(name):
        assert promised <= 1.15 * gained + 0.01, setting
