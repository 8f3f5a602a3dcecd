"""
How fast the report is written, opened and redrawn: CPU seconds, and bytes.

    pytest benchmarks/test_report_speed.py -m benchmark -s

Figures of the issue: 1e6 spans at most 10 MB, first paint under 3 s of CPU, a redraw under 100 ms
of CPU; 5e6 spans under 50 MB. Nothing here fails for being slow.
"""

from __future__ import annotations

import shutil
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.many_spans import many_spans

from commsim.charts.report import ReportFacts, write_report
from commsim.metrics import measure

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu"]
REDRAWS = """() => {
  const v = document.getElementById("viewer").viewer, whole = v.data.facts.reach, found = {};
  for (const part of [1, 0.5, 0.1, 0.01, 0.0001]) {
    v.setView(whole / 2 - whole * part / 2, whole / 2 + whole * part / 2);
    v.redraw();
    found[part] = Math.round(Math.min(...Array.from({ length: 5 }, () => v.redraw())) * 10) / 10;
  }
  return found;
}"""

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize("spans", [1_000_000, 5_000_000])
def test_a_report_of_many_spans(spans: int, tmp_path: Path) -> None:
    timeline = many_spans(spans)
    facts = ReportFacts(f"{spans:,} spans", timeline, measure(timeline))
    path = tmp_path / "many.html"
    begin = time.process_time()
    write_report(facts, path)
    wrote = time.process_time() - begin
    print(f"\n{spans:,} spans: {path.stat().st_size / 1e6:.1f} MB, written in {wrote:.2f} s of CPU")
    opened = _opened(path)
    print(f"opened with {opened['cpu']:.2f} s of CPU; redraw in ms by part of the time shown:")
    print(opened["redraws"])


def test_memory_of_the_writer(tmp_path: Path) -> None:
    timeline = many_spans(1_000_000)
    facts = ReportFacts("memory", timeline, measure(timeline))
    tracemalloc.start()
    write_report(facts, tmp_path / "many.html")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"\n1,000,000 spans: {peak / 1e6:.0f} MB at most beside the timeline")


def _opened(path: Path) -> dict[str, Any]:
    """Return the CPU seconds of the page until its timeline is drawn, and times of redraws."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        page.goto(path.as_uri())
        page.wait_for_selector("#viewer[data-ready]", timeout=120_000)
        metrics = session.send("Performance.getMetrics")["metrics"]
        cpu = next(one["value"] for one in metrics if one["name"] == "TaskDuration")
        redraws = page.evaluate(REDRAWS)
        browser.close()
    return {"cpu": cpu, "redraws": redraws}
