"""The first minutes: examples, templates, the schema, completion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete
from helpers.paths import ROOT

from commsim.cli.main import call, commsim
from commsim.scenario import EXAMPLES, TEMPLATES, example_path, scenario_schema, setting_paths
from commsim.study.compare import compare
from commsim.study.replay import replay


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_there_and_its_source_is_told(example: Any) -> None:
    assert example_path(example.name).exists()
    assert example.place.split("/")[0] in (ROOT / "examples/README.md").read_text()


def test_examples_are_replayed_and_compared_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = replay("example-fsdp")
    assert found.trusted
    assert found.result.metrics.breakdown.waiting_s > 0
    assert compare("example-nccl-tests", "dgx-a100").verdict[0].startswith("all-reduce: ")
    assert call(["replay", "example-fsd"]) == 3
    assert "Did you mean 'example-fsdp'" in capsys.readouterr().err


def test_the_recorded_dlrm_waits_for_its_hosts() -> None:
    """99.9 % of its critical path is host threads and launches."""
    result = replay("example-dlrm").result
    assert "the GPUs wait for their host" in result.headline
    parts = result.metrics.breakdown
    assert parts.host_s > 0.5 * parts.whole_s > parts.waiting_s > 0.3 * parts.whole_s


def test_examples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["examples"]) == 0
    out = capsys.readouterr().out
    assert all(example.name in out and example.command in out for example in EXAMPLES)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_runs(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training on one node and one microbatch; the tutorial runs it as it is."""
    path = tmp_path / "mine.yaml"
    assert call(["new", kind, "-o", str(path)]) == 0
    command = ["topo", str(path)] if kind == "cluster" else ["run", str(path)]
    if kind == "training":
        fewer = ("cluster.nodes=1", "workload.training.parallel.dp=4")
        for setting in (*fewer, "workload.training.batch.global=4"):
            command += ["--set", setting]
    assert call(command) == 0
    assert call(["new", kind, "-o", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert call(["new", kind]) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_no_such_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["new", "trainin"]) == 2
    assert "Did you mean 'training'" in capsys.readouterr().err


def fits(data: Any, schema: dict[str, Any], defs: dict[str, Any]) -> bool:
    """Whether plain data is as the part of JSON Schema that is used here says."""
    if "$ref" in schema:
        return fits(data, defs[schema["$ref"].removeprefix("#/$defs/")], defs)
    if "anyOf" in schema:
        return any(fits(data, one, defs) for one in schema["anyOf"])
    if "enum" in schema:
        return data in schema["enum"]
    named = schema.get("type", [])
    types: dict[str, type | tuple[type, ...]] = {
        "object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
        "number": (int, float), "null": type(None),
    }  # fmt: skip
    if named and not any(
        isinstance(data, types[one]) for one in ([named] if isinstance(named, str) else named)
    ):
        return False
    if isinstance(data, dict) and "properties" in schema:
        known = schema["properties"]
        return set(schema["required"]) <= set(data) and all(
            (str(key) in known and fits(value, known[str(key)], defs))
            or (str(key) not in known and schema["additionalProperties"])
            for key, value in data.items()
        )
    return not isinstance(data, list) or all(
        fits(one, schema.get("items", {}), defs) for one in data
    )


@pytest.mark.share(0.4)
@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_schema_takes_the_catalogue(path: Path) -> None:
    schema = scenario_schema()
    data = yaml.safe_load(path.read_text())
    assert fits(data, schema, schema["$defs"])
    assert not fits({**data, "clutser": {}}, schema, schema["$defs"])


def test_the_schema_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "commsim.schema.json"
    assert call(["schema", "-o", str(path)]) == 0
    capsys.readouterr()
    assert call(["schema"]) == 0
    assert json.loads(path.read_text()) == json.loads(capsys.readouterr().out) == scenario_schema()


@pytest.mark.parametrize(
    ("words", "begun", "found"),
    [
        (["run"], "quick", "quickstart"),
        (["bench", "all_reduce", "--cluster"], "dgx-h", "dgx-h100"),
        (["replay"], "example-d", "example-dlrm"),
        (["run", "1f1b", "--set"], "workload.pipeline.fo", "workload.pipeline.forward="),
        ([], "comp", "compare"),
    ],
)
def test_a_shell_completes(words: list[str], begun: str, found: str) -> None:
    shell = ShellComplete(commsim, {}, "commsim", "_COMMSIM_COMPLETE")
    assert found in [item.value for item in shell.get_completions(words, begun)]


def test_settings_are_listed_once_each() -> None:
    paths = setting_paths()
    assert {"name", "cluster.nodes", "workload.training.parallel.tp"} <= set(paths)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["completion", shell]) == 0
    assert "_COMMSIM_COMPLETE" in capsys.readouterr().out


def test_editors_find_the_schema_next_to_the_catalogue() -> None:
    folder = ROOT / "scenarios"
    kept = json.loads((folder / "commsim.schema.json").read_text(encoding="utf-8"))
    assert kept == scenario_schema(), "run commsim schema -o scenarios/commsim.schema.json"
    for path in folder.glob("*.yaml"):
        last = path.read_text(encoding="utf-8").splitlines()[-1]
        assert last == "# yaml-language-server: $schema=commsim.schema.json", path.name
