"""Other settings: what they save is what runs of them say, and layers move where that helps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commsim as cs
from commsim.cli.main import call
from commsim.cluster import Cluster
from commsim.scenario import Scenario, read_scenario, scenario_from
from commsim.study.next_dollar.alternatives import balanced
from commsim.study.next_dollar.resources import resources_of

TRAINING = "workload.training"
SMALL: dict[str, Any] = {
    "cluster": {"preset": "dgx-h100"},
    "workload": {
        "training": {
            "model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 256000, "seq_len": 1024},
            "parallel": {"dp": 2, "tp": 2, "pp": 2, "sequence_parallel": True},
            "batch": {"global": 8, "micro": 1},
        }
    },
}

HEARD: list[int] = []
"""How many runs there were to be, each time that this was said."""


@pytest.fixture(scope="module")
def found() -> Any:
    """The next dollar of `SMALL`."""
    return cs.next_dollar(SMALL, executor="serial", progress=lambda done, of: HEARD.append(of))


def test_other_settings_save_what_runs_of_them_say(found: Any) -> None:
    ran = [one for one in found.alternatives if one.error is None]
    titles = {one.title for one in ran}
    assert {"micro 2", "micro 4", "tp 1, dp 4", "tp 4, dp 1", "tp_overlap ring"} < titles
    assert [one.saved_s for one in ran] == sorted((one.saved_s for one in ran), reverse=True)
    for one in ran[:2]:
        step = cs.run(SMALL, one.sets).metrics.step_time_s
        assert (one.step_time_s, one.saved_s) == (step, found.step_time_s - step)
        assert one.fits is True


def test_hardware_comes_first_then_size_then_settings_each_by_what_it_saves(found: Any) -> None:
    kinds = [one.kind for one in found.upgrades]
    order = ["hardware", "size", "setting"]
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(order)
    for kind in order:
        saved = [one.saved_s or 0.0 for one in found.upgrades if one.kind == kind]
        assert saved == sorted(saved, reverse=True)
    assert found.runs == HEARD[-1] + 1  # and the scenario as it is


def test_a_large_vocabulary_gives_its_stage_fewer_layers(found: Any) -> None:
    (layers,) = (one for one in found.alternatives if one.title.startswith("layers_per_stage"))
    first, last = (int(one) for one in layers.title.removeprefix("layers_per_stage ").split(","))
    assert first + last == 8
    assert first > last  # the head of 256,000 words stands on the last stage
    assert layers.saved_s > 0


def test_the_command_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["next", "dp-pp", "--executor", "serial", "-q"]) == 0
    told = capsys.readouterr().out
    lines = told.partition("other settings, for nothing\n")[2].splitlines()
    assert any("-" in line and f"--set {TRAINING}." in line for line in lines)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 50)), min_size=2, max_size=8))
def test_no_layer_is_lost_and_no_stage_is_left_empty(stages: list[tuple[int, int]]) -> None:
    layers = [count for count, _ in stages]
    moved = balanced(layers, [float(time) for _, time in stages])
    assert sum(moved) == sum(layers)
    assert min(moved) >= 1


def test_layers_move_until_the_longest_stage_is_not_shorter_by_it() -> None:
    assert balanced([8, 8, 8, 8], [8.0, 8.0, 8.0, 12.0]) == [9, 9, 9, 5]  # 9 each
    assert balanced([4, 4], [4.0, 4.5]) == [4, 4]


@pytest.mark.parametrize(("dp", "bucket"), [(1, False), (2, True), (4, True)])
def test_buckets_are_a_setting_wherever_there_are_replicas(dp: int, bucket: bool) -> None:
    work: dict[str, Any] = {
        "cluster": {"preset": "dgx-h100", "nodes": 1, "overrides": {"gpu": {"count": 4}}},
        "workload": {"training": {
            "model": {"layers": 4, "hidden": 1024, "heads": 16, "vocab": 1000, "seq_len": 512},
            "parallel": {"dp": dp, "tp": 4 // dp},
            "batch": {"global": 8, "micro": 1},
        }},
    }  # fmt: skip
    scenario = Scenario.load(work)
    cluster = Cluster.preset("dgx-h100", overrides={"gpu": {"count": 4}})
    keys = [each.key for each in resources_of(scenario.file, cluster, scenario.where)]
    assert ("bucket" in keys) is bucket


def test_the_peak_that_is_varied_is_that_of_the_precision() -> None:
    """An H100 SXM has 989 dense TFLOP/s at 16 bits and 1,979 at 8."""
    data, where, folder, _ = read_scenario(SMALL, [f"{TRAINING}.precision=fp8"])
    file = scenario_from(data, where, folder=folder).file
    (compute,) = (
        one for one in resources_of(file, cs.Cluster.preset("dgx-h100"), where)
        if one.key == "compute"
    )  # fmt: skip
    assert compute.now == "1,979 TFLOP/s (fp8)"
