"""What an item is, before anything runs; how far apart two may be; how to compare them again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.scenario import load_scenario
from commsim.study.compare import compare
from commsim.study.compare.compare import Comparison, _command, _nothing_shared
from commsim.study.compare.sources import Source, place_of, recognise, tables_of

WORK = "workload: {collectives: [{op: barrier, bytes: 0B}]}\n"


def of(folder: Path, text: str, name: str = "x.yaml") -> Source:
    (folder / name).write_text(text)
    return recognise(folder / name)


def test_names_and_yaml_files(tmp_path: Path) -> None:
    """A file with work is a scenario, one with parts of a cluster and no work is a cluster."""
    assert (recognise("1f1b").kind, recognise("1f1b").name) == ("scenario", "1f1b")
    assert (recognise("dgx-h100").kind, recognise("DGX-H100").kind) == ("cluster", "cluster")
    assert recognise(tmp_path).kind == "trace"
    for key in ("preset: dgx-h100", "preset: dgx-h100\nnodes: 2"):
        found = of(tmp_path, key)
        assert (found.kind, found.name, found.written) == (
            "cluster",
            str(tmp_path / "x.yaml"),
            None,
        )
    both = of(tmp_path, f"cluster: {{preset: dgx-h100}}\n{WORK}", "y.yml")
    assert (both.kind, both.name, both.held.name) == ("scenario", str(tmp_path / "y.yml"), "y")
    with pytest.raises(ScenarioError, match="nodes"):
        of(tmp_path, f"nodes: 2\n{WORK}")
    scenario = load_scenario("1f1b")
    assert (recognise(scenario).kind, recognise(scenario).name) == ("scenario", scenario.name)


def test_a_place_to_bench_on(tmp_path: Path) -> None:
    one = of(tmp_path, "preset: dgx-h100\nnodes: 2")
    place = place_of(one)
    assert place is one.held
    lib = "library: {name: ideal}\n"
    lends = of(tmp_path, f"cluster: {{preset: dgx-a100}}\n{lib}{WORK}")
    place = place_of(lends)
    assert place is not None
    assert (place.cluster, place.library.name) == ({"preset": "dgx-a100"}, "ideal")
    assert place.where == f"{tmp_path / 'x.yaml'}: cluster"
    for none in (recognise("1f1b"), recognise(tmp_path), recognise(load_scenario("quickstart"))):
        assert place_of(none) is None


def test_only_logs_have_tables_and_only_tables_are_tables() -> None:
    tables: Any = ("a", "b")
    for kind, own, is_table in (("log", tables, True), ("bench", (), True), ("result", (), False)):
        source = Source("x", kind, tables)
        assert (tables_of(source), source.is_table) == (own, is_table)


@pytest.mark.parametrize(
    ("tolerance", "sound"), [(0.0, True), (1.0, True), (-0.01, False), (1.01, False)]
)
def test_a_tolerance_is_a_fraction(tolerance: float, sound: bool) -> None:
    if sound:
        assert compare("1f1b", "1f1b", tolerance=tolerance).within
        return
    with pytest.raises(ScenarioError, match="give a fraction from 0 to 1"):
        compare("1f1b", "1f1b", tolerance=tolerance)


def test_the_command_that_compares_the_same_again() -> None:
    assert _command(["a b", Path("c")], 0.05) == "commsim compare 'a b' c --tolerance 5%"
    assert _command(["a", "b"], 0.0125) == "commsim compare a b --tolerance 1.25%"
    assert _command(["a", SimpleNamespace()], 0.05) is None  # type: ignore[list-item]


def test_a_comparison_in_a_line() -> None:
    sides = [{"name": "a"}, {"name": "b"}]
    for within, told in ((True, "within"), (False, "outside")):
        found = Comparison({"sides": sides, "within": within, "tolerance": 0.05})
        assert repr(found) == f"Comparison(a, b: {told} 0.05)"
        assert found._repr_html_() == f"<code>Comparison(a, b: {told} 0.05)</code>"


def test_what_each_has_where_nothing_is_shared() -> None:
    sources: Any = [SimpleNamespace(name=name) for name in "ab"]
    sheets: Any = [[SimpleNamespace(op="x"), SimpleNamespace(op="y")], [SimpleNamespace(op="z")]]
    assert _nothing_shared(sources, sheets).endswith("(a has x, y; b has z).")
