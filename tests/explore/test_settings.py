"""Choices become scenarios: every value gives one, and its file and its command line agree."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import ScenarioError
from commsim.explore.controls import AS_WRITTEN, Control, check_choices, controls_of
from commsim.explore.settings import command_line, scenario_yaml, with_choices
from commsim.scenario import ScenarioFile, load_scenario, read_scenario, scenario_from
from commsim.study.run import run

TRAININGS = ("llama3-8b", "dp-pp-tp", "zero-3", "dp-pp", "parameter-server")
NAMES = (*TRAININGS, "llama3-405b", "1f1b", "all-gather", "gloo-all-reduce")


def base_of(name: str) -> dict[str, Any]:
    data: dict[str, Any] = read_scenario(name)[0]
    return data


def as_file(data: dict[str, Any]) -> ScenarioFile:
    return scenario_from(data, "the scenario").file


def by_command(command: str) -> ScenarioFile:
    """Return what the command line would run."""
    words = shlex.split(command)
    assert words[:2] == ["commsim", "run"]
    sets = [value for flag, value in pairwise(words) if flag == "--set"]
    return load_scenario(words[2], sets).file


def unnamed(file: ScenarioFile) -> dict[str, Any]:
    return {field: getattr(file, field) for field in file.__struct_fields__ if field != "name"}


def check(name: str, chosen: dict[str, Any]) -> None:
    """The file and the command line of some choices are the same scenario."""
    base = base_of(name)
    try:
        data = with_choices(base, check_choices(controls_of(base), chosen))
        asked = as_file(data)
    except ScenarioError:
        return  # what does not go together is refused, with a sentence
    command = command_line(name, base, data)
    assert unnamed(by_command(command)) == unnamed(asked)
    written = yaml.safe_load(scenario_yaml(data, command))
    assert unnamed(as_file(written)) == unnamed(asked)


@pytest.mark.parametrize("name", NAMES)
def test_what_nobody_changed_is_the_scenario_itself(name: str) -> None:
    base = base_of(name)
    assert with_choices(base, {}) == base
    assert command_line(name, base, with_choices(base, {})) == f"commsim run {name}"


@pytest.mark.share(0.5)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "llama3-405b"])
def test_every_value_of_every_control(name: str) -> None:
    for control in controls_of(base_of(name)):
        for value, _ in (control.values[0], control.values[-1]):
            check(name, {control.key: value})


@examples(12)
@given(st.data())
def test_values_together(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(TRAININGS))
    controls = controls_of(base_of(name))
    some = data.draw(st.lists(st.sampled_from(controls), max_size=5, unique_by=lambda c: c.key))
    check(name, {one.key: data.draw(st.sampled_from(one.values))[0] for one in some})


def test_the_file_runs_to_the_number_on_the_page(tmp_path: Path) -> None:
    base = base_of("llama3-8b")
    data = with_choices(base, {"nodes": 2, "pp": 2, "microbatches": 4, "library": "ideal"})
    command = command_line("llama3-8b", base, data)
    path = tmp_path / "scenario.yaml"
    path.write_text(scenario_yaml(data, command), encoding="utf-8")
    step = run(data).metrics.step_time_s
    words = shlex.split(command)
    assert run(path).metrics.step_time_s == step
    assert run(words[2], words[4::2]).metrics.step_time_s == step
    assert step != run("llama3-8b").metrics.step_time_s


def test_replicas_fill_the_cluster_and_keep_their_microbatches() -> None:
    base = base_of("llama3-8b")
    training = with_choices(base, {"nodes": 16, "tp": 2})["workload"]["training"]
    assert training["parallel"]["dp"] == 16 * 8 // (2 * 4)
    assert training["batch"]["global"] == 16 * 8  # 8 microbatches each, as the file has


def test_a_layout_that_does_not_fill_the_cluster_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"a replica of 6 GPUs \(tp 2 × pp 3\) does not divide"):
        with_choices(base_of("llama3-8b"), {"tp": 2, "pp": 3})


def test_what_means_nothing_without_another_choice_goes_with_it() -> None:
    data = with_choices(base_of("llama3-405b"), {"tp": 1, "pp": 1, "model": "llama3-8b"})
    assert data["workload"]["training"]["parallel"] == {"dp": 16384, "tp": 1, "pp": 1}
    assert as_file(data)


def test_a_cluster_takes_its_own_prices_and_fabric() -> None:
    data = with_choices(base_of("own-fabric-thin"), {"cluster": "aws-p5"})
    assert set(data["cluster"]) <= {"preset", "nodes", "scale"}


def offered() -> tuple[Control, ...]:
    return controls_of(base_of("llama3-8b"))


@pytest.mark.parametrize(
    "chosen",
    [
        {"workload.graph": "/etc/passwd"},
        {"schedule": "/etc/passwd.csv"},
        {"algo": "evil.xml"},
        {"nodes": 7_000_000},
        {"nodes": True},
        {"nodes": float("nan")},
        {"cluster": AS_WRITTEN},
        {"sequence_parallel": 1},
        {"model": "../../models"},
        {"nodes": "4"},
    ],
)
def test_what_the_page_does_not_offer_is_not_taken(chosen: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError):
        check_choices(offered(), chosen)


def test_choices_come_in_the_order_of_the_controls() -> None:
    chosen = check_choices(offered(), {"algo": "tree", "seq_len": 4096, "model": "llama2-7b"})
    assert list(chosen) == ["model", "seq_len", "algo"]
    assert check_choices(offered(), {"nodes": 4, "pp": 4}) == {}  # as they are


def test_a_setting_that_the_page_does_not_offer_is_kept() -> None:
    """A file's own buckets, nodes and shapes stay until another kind is chosen."""
    base = base_of("dp-pp")
    controls = {one.key: one for one in controls_of(base)}
    assert controls["cluster"].value == AS_WRITTEN
    data = with_choices(base, {"microbatches": 4})
    assert data["cluster"] == base["cluster"]
    assert data["workload"]["training"]["batch"]["global"] == 4 * 2 * 2
