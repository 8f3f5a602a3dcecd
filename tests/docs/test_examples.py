"""Every example of the docs runs, and prints what stands below it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.paths import ROOT

from commsim.cli.main import call
from commsim.cluster import cluster_from
from commsim.scenario import scenario_from

PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


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


@pytest.mark.parametrize(("page", "body", "_"), blocks("bash"))
def test_commands(
    page: str, body: str, _: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in body.strip().splitlines():
        words = shlex.split(line)
        if words[0] == "commsim":
            assert call(words[1:]) == 0
        else:
            script = [sys.executable, *(str(ROOT / w) if "/" in w else w for w in words[1:])]
            assert subprocess.run(script, check=False).returncode == 0


@pytest.mark.parametrize(("page", "body", "expected"), blocks("python"))
def test_python(page: str, body: str, expected: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if expected:
        assert done.stdout == expected


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
