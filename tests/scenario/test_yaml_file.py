"""Scenario files are untrusted: strict, small, and never executed."""

from __future__ import annotations

import pytest
from helpers.counting import python_calls

from commsim import yaml_file
from commsim.errors import ScenarioError
from commsim.scenario.overrides import apply_sets
from commsim.yaml_file import parse_yaml


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", "second time"),
        ("a: !!python/object/apply:os.system ['true']\n", "line 1"),
        ("a: &x [*x]\n", "contains itself"),
        ("a: [1, 2\n", "line"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("[" * 200 + "]" * 200, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse_yaml(text, "f.yaml")


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 9)]
    with pytest.raises(ScenarioError, match="unpacks to more than"):
        parse_yaml("\n".join(lines), "f.yaml")


def test_many_keys_are_refused_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML takes 12 s for 1 MiB of keys: what is beyond the limit is never looked at."""
    monkeypatch.setattr(yaml_file, "MAX_WRITTEN", 200)

    fits, many, more = (
        "".join(f"a{number}: 1\n" for number in range(count)) for count in (99, 200, 2000)
    )

    def refuse(text: str) -> None:
        with pytest.raises(ScenarioError, match=r"line 100, .*more than 200 keys and values"):
            parse_yaml(text, "f.yaml")

    assert len(parse_yaml(fits, "f.yaml")) == 99
    refuse(many)
    assert python_calls(lambda: refuse(more)) == python_calls(lambda: refuse(many))


def test_scalars_are_what_people_mean() -> None:
    data = parse_yaml("{a: 1e9, b: no, c: 1:30, d: 08, e: 2024-01-01, f: ~}", "f")
    assert data == {"a": 1e9, "b": "no", "c": "1:30", "d": 8, "e": "2024-01-01", "f": None}


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1e3", int), ("1.5E+3", int), ("-2e0", int), ("1.5", float), ("3.0", float), ("1e-3", float),
     ("1e16", float), ("1e400", float)],
)  # fmt: skip
def test_a_whole_number_with_an_exponent_is_one(text: str, kind: type) -> None:
    value = parse_yaml(text, "f")
    assert value == float(text)
    assert type(value) is kind


def test_sets_change_a_copy() -> None:
    data = {"a": {"b": [1, {"c": 2}]}}
    assert apply_sets(data, ["a.b.1.c=5GiB", "x.y=[1, 2]"]) == {
        "a": {"b": [1, {"c": "5GiB"}]},
        "x": {"y": [1, 2]},
    }
    assert data == {"a": {"b": [1, {"c": 2}]}}


@pytest.mark.parametrize(
    ("text", "words"),
    [("a.b", "'='"), ("a.b.7=1", "is a list"), ("a.b.0.z=1", "no settings inside"), ("=1", "path")],
)
def test_a_set_that_leads_nowhere(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        apply_sets({"a": {"b": [1]}}, [text])
