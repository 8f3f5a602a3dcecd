"""The cluster and library that runs one after another share."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.scenario import Scenario, scenario_from
from commsim.study.run import hardware
from commsim.study.run.hardware import KeptHardware


def scenario(nodes: int = 1) -> Scenario:
    cluster = {"preset": "dgx-h100", "nodes": nodes}
    workload = {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]}
    return scenario_from({"cluster": cluster, "workload": workload}, "x")


def of(kept: KeptHardware, *scenarios: Scenario) -> list[Any]:
    return [kept.of(one) for one in scenarios]


def found(*dead: tuple[int, int]) -> Any:
    return hardware.hardware_of(scenario(), dead)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is made is counted, and is no hardware."""
    calls: list[Any] = []

    def count(*_: Any) -> int:
        calls.append(1)
        return len(calls)

    monkeypatch.setattr(hardware, "_made", count)
    return calls


def test_sixty_four_runs_share_a_cluster_and_the_next_has_a_new_one(made: list[Any]) -> None:
    assert of(KeptHardware(), *[scenario()] * (2 * 64 + 1)) == [1] * 64 + [2] * 64 + [3]


def test_another_cluster_is_made_and_counted_anew(made: list[Any]) -> None:
    kept = KeptHardware()
    assert of(kept, *map(scenario, (1, 1, 2, 1))) == [1, 1, 2, 3]
    assert of(kept, *[scenario()] * 64) == [3] * 63 + [4]


def test_what_was_stopped_and_what_has_dead_nics_is_not_shared(made: list[Any]) -> None:
    kept = KeptHardware()
    assert [found(), found()] == [1, 2]  # nobody shares
    with kept:
        assert [found(), found((0, 0)), found()] == [3, 4, 3]
    with kept:
        assert found() == 3
    with pytest.raises(KeyboardInterrupt), kept:
        raise KeyboardInterrupt
    with kept:
        assert found() == 5
