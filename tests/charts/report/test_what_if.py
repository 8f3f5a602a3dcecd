"""Sliders: small timelines that stay true, and a page that shows what its runs were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.share import later
from hypothesis import given
from hypothesis import strategies as st

from commsim.charts.report import point_spans
from commsim.charts.report.joined import join_short
from commsim.study.next_dollar.what_if import WhatIfGrid, what_if
from commsim.study.run import run

ROW = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 40), st.integers(0, 2)),
    max_size=60,
)


def columns_of(rows: list[list[tuple[int, int, int, int]]]) -> tuple[dict[str, Any], np.ndarray]:
    """Lay out spans that do not overlap: gap before, wait, length, meaning."""
    found: list[tuple[int, ...]] = []
    for row, spans in enumerate(rows):
        now = 0
        for gap, wait, length, what in spans:
            now += gap
            found.append((now, wait, length, what, row))
            now += wait + length
    table = np.array(found, np.int64).reshape(-1, 5).T
    columns = dict(zip(("begin", "wait", "length", "what"), table, strict=False))
    columns["microbatch"] = columns["instance"] = np.arange(1, len(found) + 1)
    return columns, table[4]


@given(st.lists(ROW, min_size=1, max_size=3), st.integers(1, 50))
def test_joined_rows_are_busy_for_as_long_as_they_were(
    rows: list[list[tuple[int, int, int, int]]], stretch: int
) -> None:
    columns, row = columns_of(rows)
    joined, where = join_short(columns, row, stretch)
    for name in ("wait", "length"):
        for meaning in range(3):
            before = np.bincount(row, columns[name] * (columns["what"] == meaning), len(rows))
            after = np.bincount(where, joined[name] * (joined["what"] == meaning), len(rows))
            assert before.tolist() == after.tolist()
    for at in range(len(rows)):
        begin = joined["begin"][where == at]
        end = begin + joined["wait"][where == at] + joined["length"][where == at]
        assert np.all(np.diff(begin) >= 0)
        assert np.all(begin >= 0)
        if len(end):  # nothing moves by more than a stretch
            last = max((columns["begin"] + columns["wait"] + columns["length"])[row == at])
            assert end.max() <= last + stretch


def test_what_is_long_keeps_its_place_and_number() -> None:
    columns, row = columns_of([[(0, 0, 100, 0), (0, 0, 2, 1), (1, 0, 2, 1), (0, 0, 100, 2)]])
    joined, _ = join_short(columns, row, 10)
    assert joined["begin"].tolist() == [0, 100, 105]
    assert joined["length"].tolist() == [100, 4, 100]
    assert joined["instance"].tolist() == [1, 0, 4]


@pytest.fixture(scope="module")
def found() -> WhatIfGrid:
    return what_if("1f1b", ["workload.pipeline.schedule=gpipe,nonsense", "microbatches=4,8,16"])


@pytest.fixture(scope="module")
def page(found: WhatIfGrid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("what-if") / "page.html"
    found.report(path)
    return path


def test_a_page_holds_every_run_once(found: WhatIfGrid, page: Path) -> None:
    text = page.read_text()
    assert text.count('text/plain" data-what-if=') == 1 + sum(
        bool(point.spans) for point in found.points
    )
    again = page.with_name("again.html")
    found.report(again)
    assert again.read_text() == text


def test_timelines_keep_to_their_share_of_a_page() -> None:
    facts = run("zero-bubble", ["workload.pipeline.microbatches=64"]).facts()
    whole = len(point_spans(facts, 10**9))
    assert 0.5 * whole < len(point_spans(facts, 4 * whole // 5)) <= 4 * whole // 5
    assert len(point_spans(facts, 1)) < 4 * whole // 5  # the least that there is


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("quickstart", ["nic=0.25,0.5,1,2,4", "nodes=1,2,4,8,16", "nvlink=0.5,1"]),
        ("llama3-8b", ["nic=0.25,0.5,1,2,4", "nvlink=0.5,1,2,4,8", "hbm=1,2"]),
    ],
)
def test_two_hundred_runs_stay_below_three_megabytes(
    tmp_path: Path, name: str, asked: list[str]
) -> None:
    found = what_if(name, [*asked, "compute=0.5,1,2,4"])
    assert len(found) == 200
    found.report(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 3_000_000


def opened(browser: Any, page: Path, width: int, theme: str, complaints: list[str]) -> Any:
    shown = browser.new_page(
        bypass_csp=True, viewport={"width": width, "height": 900}, color_scheme=theme
    )
    shown.on(
        "console",
        lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None,
    )
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.goto(page.as_uri())
    shown.wait_for_selector("#what-if[data-ready]")
    return shown


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("width", "theme"), [(380, "light"), (1400, "dark"), later((2560, "light"))]
)
def test_sliders_show_the_run_that_was_chosen(
    browser: Any, found: WhatIfGrid, page: Path, width: int, theme: str
) -> None:
    complaints: list[str] = []
    shown = opened(browser, page, width, theme, complaints)
    before = shown.inner_html("main"), shown.inner_text("h1")
    for at, point in enumerate(found.points):
        shown.evaluate("p => document.getElementById('what-if').sliders.go(p)", list(point.places))
        if point.page is None:
            assert "nonsense" in shown.inner_text(".outcome")
            continue
        assert shown.evaluate("document.getElementById('what-if').sliders.point()") == at
        assert shown.inner_text("h1").replace("\xa0", " ") == point.page["headline"].replace(
            "\xa0", " "
        )
        assert (
            shown.locator(".figures dd").first.inner_text().startswith(point.page["figures"][0][1])
        )
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        given = not point.settings
        shown.wait_for_selector("#viewer" if given else "#viewer-what-if canvas")
    shown.click("#as-given")
    assert shown.inner_text("h1") == before[1]
    assert "at=" not in shown.url
    shown.evaluate("document.querySelector('#what-if-1').value = 2")
    shown.evaluate("document.querySelector('#what-if-1').dispatchEvent(new Event('input'))")
    shown.wait_for_function("document.getElementById('what-if').sliders.point() === 2")
    assert "at=0.2" in shown.url
    url = shown.url
    shown.close()
    other = browser.new_page(bypass_csp=True)
    other.goto(url)
    other.wait_for_selector("#what-if[data-ready]")
    assert other.evaluate("document.getElementById('what-if').sliders.point()") == 2
    other.close()
    assert complaints == []
