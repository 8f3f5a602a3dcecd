"""The Gantt page in a real browser: bars are there, nothing complains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.share import later

from commsim.charts import gantt, save_figure
from commsim.study.run import run

pytestmark = [
    pytest.mark.browser,
    # Playwright leaves its event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(("name", "bars", "width"), [
    ("1f1b", 64, 1400), ("ddp", 100, 380), later(("1f1b", 64, 380)), later(("ddp", 100, 1400)),
])  # fmt: skip
def test_the_gantt_page_shows_bars_and_no_errors(
    browser: Any, tmp_path: Path, name: str, bars: int, width: int
) -> None:
    result = run(name)
    path = tmp_path / "gantt.html"
    save_figure(gantt(result.timeline, metrics=result.metrics), path)
    page = browser.new_page(viewport={"width": width, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    page.goto(path.as_uri())
    page.wait_for_selector(".barlayer .point path")
    assert page.locator(".barlayer .point path").count() >= bars
    assert result.metrics.step_time_s > 0
    assert complaints == []
    page.close()
