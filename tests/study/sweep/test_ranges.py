"""Ranges and lists of values at their edges; results kept by key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.optional import present

from commsim.errors import ScenarioError
from commsim.study.sweep.axes import axes_of, axis_of, combinations, range_meant
from commsim.study.sweep.points import Outcome
from commsim.study.sweep.store import Store
from commsim.study.sweep.sweep import sweep

RANGES = {
    "cluster.nodes=1..64x2": ("1", "2", "4", "8", "16", "32", "64"),
    "cluster.nodes=2..8+2": ("2", "4", "6", "8"),
    "cluster.nodes=1..3": ("1", "2", "3"),
    "nic.bandwidth=100Gbps..400Gbpsx2": ("100Gbps", "200Gbps", "400Gbps"),
    "nic.bandwidth=100..400Gbpsx2": ("100Gbps", "200Gbps", "400Gbps"),
    "x=0.5..2x2": ("0.5", "1", "2"),
    "model.preset=gpt2-1.5b, llama3-8b": ("gpt2-1.5b", "llama3-8b"),
    "group=[0, 1],[0, 1, 2]": ("[0, 1]", "[0, 1, 2]"),
    'name="a,b",c': ('"a,b"', "c"),
}


@pytest.mark.parametrize(("text", "values"), RANGES.items())
def test_values_and_ranges(text: str, values: tuple[str, ...]) -> None:
    assert axis_of(text).values == values


WRONG = {
    "cluster.nodes": "write a path, '=' and values",
    "=1,2": "write a path, '=' and values",
    "cluster.nodes=8..1x2": "goes nowhere",
    "cluster.nodes=1..8x1": "goes nowhere",
    "nic.bandwidth=1Gbps..8GB/sx2": "write both ends alike",
}


@pytest.mark.parametrize(("text", "told"), WRONG.items())
def test_wrong_ranges_say_why(text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        axis_of(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x=0..3+1", ["0", "1", "2", "3"]), ("x=1..1+1", ["1"]), ("x=1..1x2", ["1"]),
        ("x=1..10x3", ["1", "3", "9"]), ("x=0..1+0.25", ["0", "0.25", "0.5", "0.75", "1"]),
        ("x=0.1..0.3+0.1", ["0.1", "0.2", "0.3"]), ("x=1,4..5,9", ["1", "4", "5", "9"]),
        ("x={a: [1, 2], b: 3},4", ["{a: [1, 2], b: 3}", "4"]),
        ("x='a,b',\"c,'d\",e", ["'a,b'", "\"c,'d\"", "e"]),
    ],
)  # fmt: skip
def test_values_of_a_range_or_a_list(text: str, values: list[str]) -> None:
    assert list(axis_of(text).values) == values


@pytest.mark.parametrize("text", ["x=2..1+1", "x=1..2+0", "x=1..2x1", "x=1..2x0.5", "x=0..2x2"])
def test_ranges_that_go_nowhere(text: str) -> None:
    with pytest.raises(ScenarioError, match="the range goes nowhere"):
        axis_of(text)


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        ("1-4", "1..4"), ("1:64:2", "1..64"), ("1..", "1..LAST"), ("1...4", "1..4"),
        ("100Gbps-800Gbps", "100Gbps..800Gbps"), ("1 to 4", "1..4"),
    ],
)  # fmt: skip
def test_what_looks_like_a_range_and_is_refused_says_how_to_write_one(
    value: str, ends: str
) -> None:
    found = sweep("1f1b", [f"workload.pipeline.microbatches={value}"], executor="serial")
    assert present(found.errors[0]).endswith(
        f" A range is written {ends}, {ends}xFACTOR or {ends}+STEP."
    )


@pytest.mark.parametrize("value", ["4", "ring", "0.5", "-1", "dgx-h100", "[1, 2]"])
def test_what_looks_like_no_range(value: str) -> None:
    assert not range_meant(value)


@pytest.mark.parametrize("text", ["x=1,,2", "x=1,2,", "x=,1"])
def test_an_empty_value_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="--vary x=.*: a value is empty. Write one comma"):
        axis_of(text)


def test_combinations_are_counted_before_they_are_made() -> None:
    many = axes_of({"a": "1..1000", "b": "1..1000"})
    with pytest.raises(ScenarioError, match="1,000,000 points are more than a sweep takes"):
        combinations(many)
    beside = axes_of({"a": "1..1000", "b": "1..1000"}, zipped=True)
    assert combinations(beside)[-1] == (("a", "1000"), ("b", "1000"))


def test_as_many_points_as_a_sweep_takes_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["commsim.study.sweep.axes"], "_MOST_VALUES", 6)
    assert len(combinations(axes_of({"a": [1, 2, 3], "b": [1, 2]}))) == 6
    with pytest.raises(ScenarioError, match="8 points are more than a sweep takes"):
        combinations(axes_of({"a": [1, 2, 3, 4], "b": [1, 2]}))
    assert len(axis_of("x=1..6").values) == 6
    with pytest.raises(ScenarioError, match=r"x=1\.\.7: more than 6 values"):
        axis_of("x=1..7")


@pytest.mark.parametrize("count", [0, 1, 500, 501, 1200])
def test_any_number_of_keys_is_asked_for_at_once(tmp_path: Path, count: int) -> None:
    keys = [f"key {at}" for at in range(count)]
    with Store(tmp_path / "kept.sqlite") as store:
        for key in keys[::7]:
            store.put(Outcome(key, {"key": key}, None))
        store.put(Outcome("wrong", None, "an error"))
        found = store.get([*keys, *keys, "wrong", "never"])
    assert found == {
        **{key: Outcome(key, {"key": key}, None) for key in keys[::7]},
        "wrong": Outcome("wrong", None, "an error"),
    }


@pytest.mark.parametrize("values", [5, None, True, [], (), {}])
def test_what_is_no_list_of_values(values: object) -> None:
    with pytest.raises(ScenarioError, match="a: give a list of values, or a range like"):
        axes_of({"a": values})


def test_values_of_a_mapping_are_written_as_yaml_reads_them() -> None:
    (axis,) = axes_of({"a": [1, 2.5, True, None, "x", [1, "y"], {"b": 1}]})
    assert axis.values == ("1", "2.5", "true", "null", "x", '[1,"y"]', '{"b":1}')


def test_settings_in_groups_go_beside_the_first_of_each() -> None:
    vary = {name: [1, 2] for name in "abcde"}
    found = axes_of(vary, [["b", "a"], ["d", "e"]])
    assert [(axis.path, axis.beside) for axis in found] == [
        ("a", "b"), ("b", ""), ("c", ""), ("d", ""), ("e", "d"),
    ]  # fmt: skip
    assert len(combinations(found)) == 8
    assert [axis.beside for axis in axes_of(vary, True)] == ["", "a", "a", "a", "a"]
    with pytest.raises(ScenarioError, match="a is listed twice"):
        axes_of(vary, [["a", "b"], ["a", "c"]])
