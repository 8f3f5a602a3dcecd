"""Every example of the docs runs, and prints what stands below it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.paths import ROOT
from helpers.scripts import run_script

from commsim.cli.main import call
from commsim.cluster import cluster_from
from commsim.scenario import scenario_from

PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"[-+]?\d+(?:[,.]\d+)*")
RECIPE = """
model = {name = "llama3", flavor = "70B"}
training = {local_batch_size = 2, seq_len = 8192}
[parallelism]
data_parallel_shard_degree = 16
tensor_parallel_degree = 8
[activation_checkpoint]
mode = "full"
"""


def blocks(kind: str) -> list[tuple[str, str, str]]:
    """Return (page, block, the text block that follows it or "")."""
    found = []
    for page in PAGES:
        every = FENCE.findall(page.read_text())
        for at, (name, body) in enumerate(every):
            if name == kind:
                after = every[at + 1] if at + 1 < len(every) else ("", "")
                found.append((page.stem, body, after[1] if after[0] == "text" else ""))
    return found


def run_lines(body: str) -> None:
    """Run the lines of a block in this folder, commsim's own in this process."""
    for line in body.strip().splitlines():
        words = shlex.split(line)
        if words[0] == "commsim":
            assert call(words[1:]) == 0, line
        elif words[0] == "python":
            script, *more = (str(ROOT / w) if "/" in w else w for w in words[1:])
            assert run_script(Path(script), *more).status == 0, line
        else:
            assert words[:2] == ["pip", "install"], line


def not_printed(shown: str, printed: str) -> list[str]:
    """Return the lines of a page that were not printed, whatever their numbers."""
    found = {NUMBER.sub("#", line.split("  ")[0].strip()) for line in printed.splitlines()}
    lines = [line for line in shown.splitlines() if line.strip(" .…")]
    return [line for line in lines if NUMBER.sub("#", line.split("  ")[0].strip()) not in found]


@pytest.mark.parametrize(("page", "body", "shown"), blocks("bash"))
def test_commands(
    page: str, body: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    run_lines(body)
    if shown:
        assert shown in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize(("page", "body", "shown"), blocks("sh"))
def test_commands_that_need_a_file_or_minutes(
    page: str, body: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What they show changes with the fits: its lines are held, not its numbers."""
    if "capture" in body:
        pytest.importorskip("torch")
    for name in ("today.log", "all_reduce.log"):
        shutil.copy(ROOT / "tests/data/nccl_tests/a100_8_v2.19.4.log", tmp_path / name)
    (tmp_path / "llama3_70b.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    if "mine.yaml" in body:
        run_lines("commsim calibrate all_reduce.log --cluster dgx-a100 -o mine.yaml")
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    run_lines(body)
    told = capsys.readouterr()
    assert not_printed(shown, told.out + told.err) == []


@pytest.mark.parametrize(("page", "body", "expected"), blocks("python"))
def test_python(
    page: str, body: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "example.py"
    script.write_text(body)
    monkeypatch.chdir(tmp_path)
    done = run_script(script)
    assert done.status == 0, done.err
    if expected:
        assert done.out == expected


@pytest.mark.parametrize(("page", "body", "_"), blocks("yaml"))
def test_cluster_sections(page: str, body: str, _: str) -> None:
    data = yaml.safe_load(body)
    assert cluster_from(data["cluster"], page).world_size > 0
    if {"faults", "goodput", "jobs"} & set(data):
        work: dict[str, Any] = {} if "jobs" in data else {"workload": {"collectives": []}}
        assert scenario_from(work | data, page).file is not None


def test_the_readme_names_only_commands_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    commands = set(re.findall(r"commsim (\w+)", text)) & {"run", "bench", "replay"}
    assert commands == {"run", "bench", "replay"}
    for link in re.findall(r"\((docs/[^)]+)\)", text):
        assert (ROOT / link).is_file()
