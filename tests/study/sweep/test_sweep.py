"""Sweeps: every combination once, nothing run twice, nothing lost when somebody dies."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import commsim as cs
from commsim.cli.main import call
from commsim.study.sweep.axes import axes_of, combinations
from commsim.study.sweep.executors import run_points
from commsim.study.sweep.points import evaluate, point_of
from commsim.study.sweep.sweep import Sweep

SMALL: dict[str, Any] = {
    "name": "small",
    "cluster": {"preset": "dgx-h100", "nodes": 1},
    "workload": {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]},
    "library": {"name": "ideal"},
}
BYTES = "workload.collectives.0.bytes"


def test_all_combinations_or_side_by_side() -> None:
    axes = axes_of({"a": [1, 2], "b": ["x", "y", "z"]})
    assert len(combinations(axes)) == 6
    assert combinations(axes)[1] == (("a", "1"), ("b", "y"))
    with pytest.raises(cs.ScenarioError, match="a has 2, b has 3"):
        axes_of({"a": [1, 2], "b": ["x", "y", "z"]}, zipped=True)
    pairs = combinations(axes_of({"a": [1, 2], "b": ["x", "y"]}, zipped=True))
    assert pairs == [(("a", "1"), ("b", "x")), (("a", "2"), ("b", "y"))]
    with pytest.raises(cs.ScenarioError, match="varied twice"):
        axes_of(["a=1", "a=2"])
    with pytest.raises(cs.ScenarioError, match="nothing to vary"):
        axes_of([])


def test_some_settings_side_by_side_and_all_combinations_of_the_others() -> None:
    written = axes_of(["nodes=1,2; dp=8,16", "algo=ring,tree"])
    listed = axes_of({"nodes": [1, 2], "dp": "8,16", "algo": "ring,tree"}, [["nodes", "dp"]])
    assert written == listed
    assert [tuple(dict(one).values()) for one in combinations(written)] == [
        ("1", "8", "ring"), ("1", "8", "tree"), ("2", "16", "ring"), ("2", "16", "tree"),
    ]  # fmt: skip
    with pytest.raises(cs.ScenarioError, match="nodes has 1, dp has 2"):
        axes_of(["nodes=1; dp=8,16"])
    with pytest.raises(cs.ScenarioError, match="tp is listed but is not varied"):
        axes_of({"nodes": [1, 2]}, [["nodes", "tp"]])


def test_a_setting_that_moves_no_step_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Both nodes hang on one leaf: its uplinks carry nothing."""
    vary = {"cluster.fabric.oversubscription": [1, 4], BYTES: ["1MiB", "8MiB"]}
    cluster = {"preset": "dgx-h100", "nodes": 2, "fabric": {"kind": "fat_tree"}}
    found = cs.sweep({**SMALL, "cluster": cluster}, vary, executor="serial")
    assert found.unmoved() == ["cluster.fabric.oversubscription"]
    assert cs.sweep(SMALL, ["cluster.nodes=1"], executor="serial").unmoved() == []


def test_points_run_again_for_their_pages_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(json.dumps(SMALL))
    line = "sweep x.yaml --vary cluster.nodes=1,2 --executor serial --store r.sqlite"
    for more, told in (("", "2 run now,"), ("", "0 run now,"),
                       (" --report x.html", "2 run now (2 of them again, for their pages)"),
                       (" --report x.html", "0 run now,")):  # fmt: skip
        assert call((line + more).split()) == 0
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("store", "told"),
    [("--store r.sqlite", "1 of 2 points are kept in r.sqlite"), ("", "are lost: --store")],
)
def test_a_stopped_sweep_says_what_is_kept(
    store: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(json.dumps(SMALL))

    def stops_at_the_second(some: list[Any], executor: str) -> Iterator[Any]:
        yield evaluate(some[0])
        raise KeyboardInterrupt

    module = importlib.import_module("commsim.study.sweep.sweep")
    monkeypatch.setattr(module, "run_points", stops_at_the_second)
    assert call(f"sweep x.yaml --vary cluster.nodes=1,2 {store}".split()) == 130
    assert told in capsys.readouterr().err


def test_a_key_is_the_content_and_nothing_else(tmp_path: Path) -> None:
    def key(data: Any, *settings: tuple[str, str]) -> str:
        return point_of(data, settings, "x.yaml", str(tmp_path)).key

    one = key(SMALL, ("cluster.nodes", "2"))
    assert one == key({**SMALL, "cluster": {"preset": "dgx-h100", "nodes": 2}})
    assert one == key(
        {**SMALL, "sweep": {"vary": {"cluster.nodes": [1, 2]}}}, ("cluster.nodes", "2")
    )
    assert one != key(SMALL, ("cluster.nodes", "4"))
    named = {**SMALL, "library": {"name": "ideal", "algo": "mine.xml"}}
    before = key(named)
    (tmp_path / "mine.xml").write_text("<algo/>")
    assert key(named) != before


def test_every_point_is_the_run_that_it_stands_for() -> None:
    found = cs.sweep(SMALL, {"cluster.nodes": [1, 2], BYTES: "1MiB..4MiBx4"}, executor="serial")
    assert [dict(one)["cluster.nodes"] for one in found.settings] == ["1", "1", "2", "2"]
    for settings, row in zip(found.settings, found.rows(), strict=True):
        alone = cs.run({**SMALL}, [f"{path}={value}" for path, value in settings])
        assert row["step_time_s"] == alone.metrics.step_time_s
        assert row["error"] is None


def test_a_point_that_cannot_run_stops_no_other() -> None:
    found = cs.sweep(SMALL, ["cluster.nodes=1,none,2"], executor="serial")
    assert [error is None for error in found.errors] == [True, False, True]
    assert "cluster.nodes=none" in str(found.errors[1])
    assert found.rows()[1]["step_time_s"] is None


def test_what_is_in_the_store_is_not_run_again(tmp_path: Path) -> None:
    store = tmp_path / "results.sqlite"
    first = cs.sweep(SMALL, ["cluster.nodes=1,2"], executor="serial", store=store)
    wider = cs.sweep(SMALL, ["cluster.nodes=1,2,4"], executor="serial", store=store)
    assert (first.ran, wider.ran) == (2, 1)
    assert wider.results[:2] == first.results
    again = cs.sweep(SMALL, ["cluster.nodes=4,2,1"], executor="serial", store=store)
    assert again.ran == 0
    assert again.results == tuple(reversed(wider.results))


def test_equal_points_are_run_once() -> None:
    found = cs.sweep(SMALL, [f"{BYTES}=1MiB,1024KiB,2MiB"], executor="serial")
    assert found.ran == 3  # written differently: a key is text, not meaning
    assert cs.sweep(SMALL, [f"{BYTES}=1MiB,1MiB"], executor="serial").ran == 1


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_text("this is a text, and long enough not to be an empty database " * 20)
    with pytest.raises(cs.ScenarioError, match=r"x\.sqlite: cannot be a store"):
        cs.sweep(SMALL, ["cluster.nodes=1,2"], executor="serial", store=path)
    assert path.read_text().startswith("this is a text")


def points(count: int) -> list[Any]:
    return [
        point_of(SMALL, ((BYTES, f"{size}KiB"),), "x.yaml", ".") for size in range(1, count + 1)
    ]


def test_processes_give_the_same_as_one() -> None:
    some = points(4)
    alone = {point.key: evaluate(point) for point in some}
    assert {one.key: one for one in run_points(some, "processes:2")} == alone


def test_a_worker_that_is_killed_loses_nothing() -> None:
    some, found = points(5), []
    for outcome in run_points(some, "processes:2"):
        found.append(outcome)
        if len(found) == 1:
            for child in multiprocessing.active_children():
                os.kill(child.pid or 0, signal.SIGKILL)
    assert sorted(one.key for one in found) == sorted(point.key for point in some)
    assert all(one.error is None for one in found)


@pytest.mark.parametrize("executor", ["threads", "processes:many", "serial:2"])
def test_an_unknown_executor(executor: str) -> None:
    with pytest.raises(cs.ScenarioError, match="give processes, processes:N, serial, dask"):
        list(run_points(points(1), executor))


DAMAGES = {
    "update results set result = x'7b7b00'": True,
    "update results set result = 5": True,
    "update results set result = '[1, 2]'": True,
    "update results set result = null": True,
    "update results set error = 5": True,
    "alter table results rename column result to other": False,
    "drop table results; create table results (a text)": False,
}


@pytest.mark.parametrize(("damage", "mended"), DAMAGES.items(), ids=list(DAMAGES))
def test_a_store_that_was_damaged_is_run_again_or_told(
    damage: str, mended: bool, tmp_path: Path
) -> None:
    store = tmp_path / "x.sqlite"
    vary = {"cluster.nodes": [1, 2]}
    before = cs.sweep(SMALL, vary, executor="serial", store=store)
    with closing(sqlite3.connect(store)) as base:
        base.executescript(damage)
    if mended:
        again = cs.sweep(SMALL, vary, executor="serial", store=store)
        assert (again.ran, again.results) == (2, before.results)
    else:
        with pytest.raises(cs.ScenarioError, match=r"x\.sqlite: cannot be read as a store"):
            cs.sweep(SMALL, vary, executor="serial", store=store)


@pytest.mark.parametrize(
    "section", [5, "x", {"vary": 5}, {"vary": [1]}, {}, {"vary": {"cluster.nodes": [1]}, "zip": 5}]
)
def test_a_section_that_varies_nothing_names_its_setting(section: object) -> None:
    with pytest.raises(cs.ScenarioError, match=r"the scenario: sweep"):
        cs.sweep({**SMALL, "sweep": section}, executor="serial")


def test_what_is_asked_for_goes_before_the_section() -> None:
    given = {**SMALL, "sweep": {"vary": {BYTES: ["1MiB", "2MiB"]}}}
    asked = cs.sweep(given, {BYTES: ["3MiB"]}, executor="serial")
    assert asked.settings == (((BYTES, "3MiB"),),)
    assert len(cs.sweep(given, executor="serial").settings) == 2
    with pytest.raises(cs.ScenarioError, match="vary"):
        cs.sweep(SMALL, executor="serial")


def test_values_of_numpy_are_varied_and_others_refused() -> None:
    found = cs.sweep(SMALL, {"cluster.nodes": list(np.array([1, 2]))}, executor="serial")
    assert [settings[0][1] for settings in found.settings] == ["1", "2"]
    for wrong in (object(), range(3), np.array([1, 2])):
        with pytest.raises(cs.ScenarioError, match=r"sweep\.vary\.cluster\.nodes: a value of type"):
            cs.sweep(SMALL, {"cluster.nodes": [wrong]}, executor="serial")


def test_points_share_the_scenario_and_the_hashes_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large.npz").write_bytes(b"x" * 1000)
    opened: list[Path] = []
    plain = Path.open

    def counted(path: Path, *how: Any) -> Any:
        opened.append(path)
        return plain(path, *how)

    monkeypatch.setattr(Path, "open", counted)
    data = {"workload": {"graph": "large.npz"}}
    made = [
        point_of(data, (("engine.seed", str(seed)),), "x.yaml", str(tmp_path)) for seed in range(9)
    ]
    assert all(point.data is data for point in made)
    assert [point.changed()["engine"]["seed"] for point in made] == list(range(9))
    assert len({point.key for point in made}) == 9
    assert opened == [tmp_path / "large.npz"]


def test_a_folder_of_pages_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / ("9" * 300), "a\0b"):
        with pytest.raises(cs.ScenarioError, match="cannot be written|no file can have this name"):
            cs.sweep(SMALL, {"cluster.nodes": [1]}, executor="serial", reports=folder)


def test_the_command_writes_every_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(json.dumps({**SMALL, "sweep": {"vary": {"cluster.nodes": [1, 2]}}}))
    line = "sweep x.yaml --executor serial --json x.json --csv x.csv --report x.html -q"
    assert call(line.split()) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["nodes", "step"]
    data = json.loads(Path("x.json").read_text())
    assert [point["settings"] for point in data["points"]] == [
        {"cluster.nodes": "1"}, {"cluster.nodes": "2"},
    ]  # fmt: skip
    rows = Path("x.csv").read_text().splitlines()
    assert len(rows) == 3
    assert float(rows[1].split(",")[1]) == data["points"][0]["result"]["step_time_s"]
    assert len(list(Path("x_points").glob("*.html"))) == 2
    assert "x_points/" in Path("x.html").read_text()


def test_a_program_whose_ranks_are_numbers_is_swept() -> None:
    """YAML reads the ranks of a program as numbers, and a key of results must hold them too."""
    program = {"ranks": {0: [{"compute": "1ms"}], 1: [{"compute": "2ms"}]}}
    scenario = {"cluster": SMALL["cluster"], "workload": {"program": program}}
    keys = [point_of(scenario, (("name", name),), "x", ".").key for name in ("a", "a", "b")]
    assert keys[0] == keys[1] != keys[2]
    by_text = {"program": {"ranks": {"0": program["ranks"][0], "1": program["ranks"][1]}}}
    assert point_of(scenario | {"workload": by_text}, (("name", "a"),), "x", ".").key != keys[0]


def test_run_says_that_it_does_not_sweep() -> None:
    result = cs.run({**SMALL, "sweep": {"vary": {"cluster.nodes": [1, 2]}}})
    assert any("commsim sweep" in note for note in result.notes)


@pytest.mark.long
def test_a_parent_and_workers_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    scenario, store = tmp_path / "x.yaml", tmp_path / "x.sqlite"
    scenario.write_text(json.dumps(SMALL))
    command = [
        sys.executable, "-m", "commsim", "sweep", str(scenario), "--vary", f"{BYTES}=1KiB..60KiB+1",
        "--store", str(store), "--executor", "processes:2", "--json", str(tmp_path / "x.json"),
    ]  # fmt: skip
    chance, kept = random.Random(5), [0]
    for _ in range(10):
        process = subprocess.Popen(command, start_new_session=True)
        time.sleep(chance.uniform(2, 6))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kept.append(_kept(store))
    assert kept == sorted(kept)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert f" {60 - kept[-1]} run now" in done.stderr
    assert "60 points" in done.stderr
    results = [one["result"] for one in json.loads((tmp_path / "x.json").read_text())["points"]]
    fresh = cs.sweep(SMALL, [f"{BYTES}=1KiB..60KiB+1"], executor="serial")
    assert results == json.loads(json.dumps(list(fresh.results)))


def _kept(store: Path) -> int:
    if not store.exists():
        return 0
    import sqlite3

    with sqlite3.connect(store) as base:
        return int(base.execute("select count(*) from results").fetchone()[0])


def test_the_table_marks_points_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.yaml"
    model = "{layers: 2, hidden: 2048, heads: 16, vocab: 32000, seq_len: 1024}"
    file.write_text(
        "cluster: {preset: dgx-a100, nodes: 1, overrides: {gpu: {count: 2}, nic: {count: 2}}}\n"
        f"workload: {{training: {{model: {model}, parallel: {{dp: 2}},"
        " batch: {global: 2, micro: 1}}}"
    )
    vary = "cluster.overrides.gpu.memory=1GB,40GB"
    assert call(["sweep", str(file), "--vary", vary, "--executor", "serial"]) == 0
    _, small, large = capsys.readouterr().out.splitlines()[:3]
    assert small.endswith("does not fit")
    assert "fit" not in large


def test_a_sweep_of_which_nothing_ran_exits_as_wrong_settings_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["sweep", "1f1b", "--vary", "foo=1,2", "--executor", "serial"]) == 2
    told = capsys.readouterr()
    assert "unknown setting 'foo'" in told.out
    assert "no point could run." in told.err


def test_a_script_needs_no_guard_around_its_sweep(tmp_path: Path) -> None:
    """Workers are processes of their own, which would begin the script anew."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import commsim as cs\n"
        "print('begun')\n"
        "work = {'collectives': [{'op': 'all_reduce', 'bytes': '1MiB'}]}\n"
        "scenario = {'cluster': {'preset': 'dgx-h100'}, 'workload': work}\n"
        "vary = {'workload.collectives.0.bytes': ['1MiB', '2MiB']}\n"
        "print(cs.sweep(scenario, vary, executor='processes:2'))\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("begun\nSweep('the scenario', 2 points, 0 failed)\n", "")


def test_replicas_that_should_follow_are_said() -> None:
    """8 GPUs: tp 2 of the file goes with dp 4, tp 4 with 2; what was varied is typed as it is."""
    training: dict[str, Any] = {
        "model": {"preset": "gpt2-124m", "seq_len": 512},
        "parallel": {"dp": 4, "tp": 2},
        "batch": {"global": 8, "micro": 1},
    }
    scenario = {"cluster": {"preset": "dgx-h100"}, "workload": {"training": training}}
    tp, dp = "workload.training.parallel.tp", "workload.training.parallel.dp"
    found = cs.sweep(scenario, {tp: "2,4,3"}, executor="serial")
    assert found.replicas_beside() == f"{tp}=2,4; {dp}=4,2"  # 3 divides no 8 GPUs
    again = cs.sweep(scenario, [f"{tp}=2,4; {dp}=4,2"], executor="serial")
    assert again.errors == (None, None)
    assert again.replicas_beside() == ""


def test_a_table_of_one_point_has_its_head() -> None:
    """What has no figure is an empty cell."""
    one: Any = SimpleNamespace(rows=lambda: [{"tp": 2, "step_s": None, "error": ""}])
    assert Sweep._csv(one) == "tp,step_s,error\n2,,\n"
