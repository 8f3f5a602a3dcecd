"""The page of the catalogue is the one that its script writes."""

from __future__ import annotations

import runpy

from helpers.paths import ROOT


def test_the_page_lists_the_catalogue_as_it_is() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "scenarios_page.py"))
    assert (ROOT / "docs" / "reference" / "scenarios.md").read_text() == made["page"]()
