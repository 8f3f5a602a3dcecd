"""The example notebooks run from top to bottom, in a process of their own, and hold no output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

RUN = """
import ast, json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] != "code":
        continue
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is not None:  # what a notebook would show
        shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if hasattr(shown, "to_json"):
            print("figure", len(shown.to_json()))
        elif hasattr(shown, "_repr_html_"):
            print("html", len(shown._repr_html_()))
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_figures(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [
        line.split() for line in done.stdout.splitlines() if line.split()[0] in ("figure", "html")
    ]
    assert sum(kind == "figure" for kind, _ in shown) >= 3
    assert sum(kind == "html" for kind, _ in shown) >= 1
    assert all(int(size) < 20_000 for kind, size in shown if kind == "html")
    assert all(int(size) < 2_000_000 for kind, size in shown if kind == "figure")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    data = json.loads(path.read_text())
    assert (data["nbformat"], data["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in data["cells"]]
    assert len(set(ids)) == len(ids)
    code = [cell for cell in data["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) == 2
