"""What a Python user calls: dicts, settings by keyword, scenarios, names, short reprs."""

from __future__ import annotations

import inspect
import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import commsim as cs

WORK = {"stages": 2, "microbatches": 4, "schedule": "gpipe", "forward": "1ms", "backward": "2ms"}
PIPELINE: dict[str, Any] = {"workload": {"pipeline": WORK}}


def test_a_dict_is_a_scenario() -> None:
    assert cs.run(PIPELINE).metrics.step_time_s == pytest.approx((4 + 1) * 3e-3)


def test_settings_are_laid_over_a_scenario_whole_or_by_path() -> None:
    by_section = cs.run("gpipe", workload={"pipeline": {"microbatches": 8}})
    setting: dict[str, Any] = {"workload.pipeline.microbatches": 8}
    by_path = cs.run("gpipe", **setting)
    by_text = cs.run("gpipe", ["workload.pipeline.microbatches=8"])
    assert by_section.to_dict() == by_path.to_dict() == by_text.to_dict()
    assert cs.run("gpipe").metrics.step_time_s < by_path.metrics.step_time_s


def test_a_loaded_scenario_runs_and_cannot_be_changed_any_more() -> None:
    scenario = cs.Scenario.load("gpipe", workload={"pipeline": {"microbatches": 8}})
    assert cs.run(scenario).metrics.bubble_fraction == pytest.approx(3 / 11)
    with pytest.raises(cs.ScenarioError, match="is loaded already"):
        cs.run(scenario, cluster={"nodes": 2})


@pytest.mark.parametrize("wrong", [7, None, ["quickstart"]])
def test_what_is_no_scenario_is_told_so(wrong: Any) -> None:
    with pytest.raises(cs.ScenarioError, match=r"run: scenario: .* Give a Scenario, a mapping, "):
        cs.run(wrong)
    with pytest.raises(cs.ScenarioError, match=r"a scenario is a file, a name .*, not of type"):
        cs.Scenario.load(wrong)


WRONG: list[Any] = [
    b"x", [object()], {}, 1 + 2j, range(3), np.array([[1, 2]]), lambda: 1, float("nan"), True,
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", sorted(name for name in cs.__all__ if name[0].islower()))
def test_a_wrong_first_argument_is_an_error_of_commsim(name: str, wrong: Any) -> None:
    function = getattr(cs, name)
    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    if needed:
        args = [wrong for one in needed if one.kind is not one.KEYWORD_ONLY]
        with pytest.raises(cs.CommsimError):
            function(*args, **{one.name: wrong for one in needed if one.kind is one.KEYWORD_ONLY})


@pytest.mark.parametrize("endless", ["dict", "list", "deep"])
def test_data_that_has_no_end_is_told_so(endless: str) -> None:
    inner: dict[str, Any] = {}
    if endless == "deep":
        for _ in range(5000):
            inner = {"a": inner}
    else:
        inner["a"] = inner if endless == "dict" else [inner]
    with pytest.raises(cs.ScenarioError, match="nested too deeply, or contains itself"):
        cs.run({"workload": inner})


def test_numbers_of_numpy_are_numbers() -> None:
    assert len(cs.explain("ring", cast(int, np.int64(3))).walk.stages) == 4
    cluster = cs.Cluster.preset("dgx-h100")
    found = cs.bench(
        cluster, "all_reduce", np.array([1024, 2048]), gpus_per_node=cast(int, np.int32(4))
    )
    assert [row.size for row in found.results] == [1024, 2048]


def test_public_functions_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(cs.run)) is cs.run


def test_errors_speak_of_the_setting_and_not_of_flags() -> None:
    with pytest.raises(cs.ScenarioError) as error:
        cs.run("gpipe", workload={"pipeline": {"microbatchs": 8}})
    assert "workload.pipeline.microbatchs: unknown setting" in str(error.value)
    assert "--" not in str(error.value)


def test_names_of_what_comes_along() -> None:
    assert "dgx-h100" in cs.presets()
    assert "llama3-70b" in cs.presets("models")
    assert "quickstart" in cs.presets("scenarios")
    with pytest.raises(cs.ScenarioError, match="Did you mean 'models'"):
        cs.presets("model")


def test_progress_is_told_in_order() -> None:
    heard: list[str] = []
    cs.run(PIPELINE, progress=heard.append)
    assert [line.split()[0] for line in heard] == ["building", "simulating", "measuring"]


def test_reprs_fit_on_a_line() -> None:
    for one in (cs.Scenario.load("quickstart"), cs.run(PIPELINE), cs.run(PIPELINE).timeline):
        assert len(repr(one)) < 100


def test_spans_become_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pandas is no dependency: a stand-in receives the columns."""
    stand_in = ModuleType("pandas")
    vars(stand_in)["DataFrame"] = lambda columns: SimpleNamespace(**columns)
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    line = cs.run(PIPELINE).timeline
    table = line.to_pandas()
    assert np.allclose(table.end_s - table.start_s, (line.end - line.start) * 1e-12)
    assert set(table.kind) == {"compute"}
    assert set(table.phase) == {"forward", "backward"}
    assert {len(column) for column in vars(table).values()} == {len(line)}


def test_a_table_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(cs.CommsimError, match="pip install pandas"):
        cs.run(PIPELINE).timeline.to_pandas()


def test_a_nan_is_told_as_no_number() -> None:
    with pytest.raises(cs.ScenarioError, match=r"^compare: tolerance: nan is not a number\. Give"):
        cs.compare("1f1b", "1f1b", tolerance=float("nan"))
