"""What a limit promises for twice the speed is what a run with its setting gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from commsim.cluster import Cluster
from commsim.scenario import scenario_names
from commsim.study.replay import replay
from commsim.study.run import run

LARGE = {"llama3-405b"}  # half a minute a run


def promises(scenario: str, sets: Sequence[str] = ()) -> Iterator[tuple[str, float, float]]:
    """Yield (setting, promised share, share that a run gains) of each limit with a setting."""
    result = run(scenario, sets)
    step = result.metrics.step_time_s
    for limit in result.limits:
        promised = (limit.halved_s or 0.0) / step
        if limit.setting is not None and promised >= 0.01:
            gained = 1 - run(scenario, [*sets, limit.setting]).metrics.step_time_s / step
            yield limit.setting, promised, gained


def test_twice_the_nvlink_promises_no_more_than_what_nccl_makes_of_it() -> None:
    """NCCL copies with as many SMs as before: half of the time would be 8.5 % of the step."""
    compute, (setting, promised, gained) = promises(
        "tensor-parallel", ["workload.training.model.layers=2"]
    )
    assert compute[0] == "workload.training.compute.scale=0.5"
    assert compute[1] == pytest.approx(compute[2], rel=0.05)
    assert setting == "cluster.scale.nvlink=2"
    assert promised == pytest.approx(gained, rel=0.1)
    assert 0.04 < gained < 0.06


def test_copies_and_transfers_over_one_pcie_gain_together() -> None:
    """Faster slots serve both, and each holds the other up: by themselves copies promise half."""
    sets = ["workload.training.model.layers=3"]
    [(setting, promised, gained), *_] = promises("zero-offload", sets)
    assert setting == "cluster.scale.pcie=2"
    assert promised == pytest.approx(gained, rel=0.05)
    assert gained > 0.3


def test_the_headline_says_what_to_type_beside_what_is_typed_already() -> None:
    headline = run("host-offload", ["cluster.scale.pcie=2", "cluster.scale.nic=1.5"]).headline
    assert headline.endswith("(--set cluster.scale.nic=3).")


def test_a_replay_takes_settings_of_its_cluster_and_of_compute() -> None:
    ranks = Cluster.preset("dgx-a100")
    found = replay("example-fsdp", cluster=ranks, comm="modelled").result
    settings = {limit.kind: limit.setting for limit in found.limits}
    assert settings["compute"] == "compute.scale=0.5"
    assert found.twice["network"] == "scale.nic=2"
    assert "network" not in replay("example-fsdp").result.twice


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(scenario_names()) - LARGE))
def test_no_scenario_of_the_catalogue_promises_more_than_it_gains(name: str) -> None:
    for setting, promised, gained in promises(name):
        assert promised <= 1.15 * gained + 0.01, setting
