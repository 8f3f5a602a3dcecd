"""The page of the Python API is the one that its script writes."""

from __future__ import annotations

import runpy

from helpers.paths import ROOT


def test_the_page_lists_what_commsim_offers() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "api_page.py"))
    told = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    assert told == made["page"](), "run python benchmarks/api_page.py"


def test_every_public_name_is_explained() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "api_page.py"))
    assert "```text\n\n```" not in made["page"]()
