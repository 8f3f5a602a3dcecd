"""The page of a comparison in a real browser: its sections, both schemes, narrow and wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from helpers.browsing import Pages
from helpers.overlaps import OVERLAPS
from helpers.paths import TESTS

from commsim.study.compare.compare import compare
from commsim.study.compare.sources import Comparable

pytestmark = [
    pytest.mark.browser,
    # Playwright leaves its event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LOG = TESTS / "data/nccl_tests/a100_8_v2.19.4.log"

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of runs, and one of a log, whose path is a long word, beside a cluster."""
    folder = tmp_path_factory.mktemp("pages")
    log = folder / ("deep" * 30) / LOG.name
    log.parent.mkdir()
    copy(LOG, log)
    made: dict[str, tuple[Comparable, Comparable]] = {
        "runs": ("own-dgx-h100", "own-dgx-b200"),
        "sizes": (str(log), "dgx-a100"),
    }
    for name, items in made.items():
        compare(*items).report(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def opened(browser_pages: Pages) -> Iterator[Open]:
    """Open a page; any complaint fails the test at its end."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def open_page(path: Path, width: int = 1400, scheme: str = "light") -> Any:
            view = {"width": width, "height": 900}
            lent = browser_pages.page(complaints.append, viewport=view, color_scheme=scheme)
            page = stack.enter_context(lent)
            page.goto(path.as_uri())
            return page

        yield open_page
    assert complaints == []


@pytest.mark.share(0.4)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 2560])
@pytest.mark.parametrize("name", ["runs", "sizes"])
def test_nothing_is_wider_than_the_page(
    pages: dict[str, Path], opened: Open, name: str, width: int, scheme: str
) -> None:
    page = opened(pages[name], width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("h1").inner_text().strip() != ""
    assert page.evaluate(OVERLAPS) == []


def test_runs_have_their_sections(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["runs"])
    keys = page.eval_on_selector_all("main section", "all => all.map(one => one.id)")
    assert keys == [
        "answer", "time", "figures", "waits", "timeline", "settings", "prices", "notes", "again",
    ]  # fmt: skip
    assert page.locator("h1").inner_text().startswith("Take B (own-dgx-b200)")


def test_bars_are_on_one_scale(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["runs"])
    widths = page.eval_on_selector_all(
        "#time .bar",
        "all => all.map(bar => [...bar.children].reduce((s, c) => s + c.offsetWidth, 0))",
    )
    data = compare("own-dgx-h100", "own-dgx-b200").to_dict()
    first, second = (side["step_time_s"] for side in data["sides"])
    assert widths[1] / widths[0] == pytest.approx(second / first, rel=0.02)


def test_both_timelines_are_on_one_axis(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["runs"])
    page.wait_for_selector("#viewer[data-ready]")
    facts = page.evaluate("JSON.parse(document.getElementById('viewer-facts').textContent)")
    assert facts["runs"] == ["A own-dgx-h100", "B own-dgx-b200"]
    first, second = (end - begin for begin, end in facts["steps"])
    sides = compare("own-dgx-h100", "own-dgx-b200").to_dict()["sides"]
    times = [side["step_time_s"] for side in sides]
    assert second / first == pytest.approx(times[1] / times[0], rel=0.02)


def test_sizes_have_curves_for_both_and_errors_for_one(
    pages: dict[str, Path], opened: Open
) -> None:
    page = opened(pages["sizes"])
    assert page.locator(".plot").count() == 2
    assert page.locator(".plot").nth(0).locator("path.dots").count() == 2
    assert page.locator(".plot").nth(1).locator("path.dots").count() == 1
    assert page.locator(".sizes").nth(1).locator("tbody tr").count() == 25


def test_labels_of_an_axis_do_not_overlap(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["sizes"], 380)
    boxes = (
        page.locator(".plot")
        .nth(0)
        .locator(".x")
        .evaluate_all(
            "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
        )
    )
    assert all(right < left for (_, right), (left, _) in zip(boxes, boxes[1:], strict=False))
    assert boxes[-1][1] <= 380


def test_text_of_names_stays_text(tmp_path: Path, opened: Open) -> None:
    name = tmp_path / "<b>x<script>document.title='hit'<!script>.json"
    from commsim.study.run import run

    run("1f1b").save_json(name)
    compare(name, "gpipe").report(tmp_path / "r.html")
    page = opened(tmp_path / "r.html")
    assert page.title() != "hit"
    assert page.locator("main b script, h1 b").count() == 0
