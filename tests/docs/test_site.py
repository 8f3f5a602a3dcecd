"""The site: built without a warning where MkDocs is, with every page of docs/ in its navigation."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))


def module(name: str) -> Any:
    return importlib.import_module(name)


def test_the_settings_page_is_what_its_script_writes() -> None:
    made = module("settings_page")
    assert made.PAGE.read_text(encoding="utf-8") == made.page()


def test_every_setting_is_on_the_settings_page() -> None:
    from commsim.scenario import setting_paths

    text = module("settings_page").PAGE.read_text(encoding="utf-8")
    assert {path.split(".")[-1] for path in setting_paths()} <= {
        line.split("`")[1] for line in text.splitlines() if line.startswith("| `")
    }


class SiteLoader(yaml.SafeLoader):
    """MkDocs' own tag stands for a variable of the environment, or for its last item."""


def variable(loader: SiteLoader, node: yaml.SequenceNode) -> Any:
    return loader.construct_sequence(node)[-1]


SiteLoader.add_constructor("!ENV", variable)


def named(nav: Any) -> list[str]:
    """Return the files of a navigation."""
    if isinstance(nav, str):
        return [nav]
    return [name for one in (nav.values() if isinstance(nav, dict) else nav) for name in named(one)]


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(), SiteLoader)
    pages = named(config["nav"])
    docs = ROOT / "docs"
    made = {"gallery.md", "changelog.md"} | {
        f"notebooks/{path.stem}.md" for path in (docs / "notebooks").glob("*.ipynb")
    }
    assert sorted(pages) == sorted(
        made | {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    )


def test_the_versions_of_the_release_agree() -> None:
    from commsim import __version__

    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heading = f"## [{__version__}] - {cited['date-released']}"
    assert cited["version"] == __version__
    assert heading in (ROOT / "CHANGELOG.md").read_text().splitlines()


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
    reason="needs mkdocs-material: pip install -e '.[docs]'",
)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-q",
        "-d",
        str(tmp_path / "site"),
    ]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    gallery = (tmp_path / "site" / "gallery.html").read_text(encoding="utf-8")
    assert "llama3-405b" in gallery
    for page in (home, gallery):  # a reader's browser asks nobody else
        links = [part.split('"')[0] for part in page.split('="http')[1:]]
        assert not [link for link in links if link.endswith((".js", ".css", ".woff2", ".png"))]


def test_versions_are_listed_where_mike_builds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mkdocs")
    hooks, alone = module("site_hooks"), {"extra": {"generator": False}}
    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    assert "version" not in hooks.on_config(alone)["extra"]
    monkeypatch.setenv("MIKE_DOCS_VERSION", "0.1")
    assert hooks.on_config(alone)["extra"]["version"] == {"provider": "mike"}


def test_a_notebook_gets_the_outputs_that_jupyter_would_show() -> None:
    pages = module("notebook_pages")
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Two"]},
        {"cell_type": "code", "source": ["print('heard')\n", "a = 2"]},
        {"cell_type": "code", "source": ["a + 1"]},
        {"cell_type": "code", "source": ["import commsim as cs\n", "cs.run('1f1b')"]},
    ]
    book = {"cells": cells}
    page = pages.run_notebook(book, "two")
    assert "```text\nheard\n```" in page
    assert "```text\n3\n```" in page
    outputs = [cell["outputs"] for cell in cells[1:]]
    assert [one[0]["output_type"] for one in outputs] == [
        "stream", "execute_result", "execute_result",
    ]  # fmt: skip
    assert "text/html" in outputs[2][0]["data"]
    json.dumps(book)
