"""Every chart's page in a real browser: drawn, nothing complains, nothing sticks out, hover works.

Set COMMSIM_SCREENSHOTS to a folder to have a picture of each page for people to look at.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers.overlaps import OVERLAPS

from commsim.charts import (
    bandwidth_matrix,
    breakdown,
    busbw,
    gantt,
    link_use,
    memory,
    one_above_other,
    save_figure,
    save_page,
    scaling,
    topology,
    traffic_matrix,
)
from commsim.cluster import Cluster
from commsim.libraries import Ideal
from commsim.study.bench import bench
from commsim.study.run import Result, run

pytestmark = [
    pytest.mark.browser,
    # Playwright leaves its event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@cache
def scenario(name: str) -> Result:
    return run(name)


def of_bench() -> Any:
    cluster = Cluster.preset("dgx-h100", nodes=4)
    sizes = [2**k for k in range(10, 34)]
    return busbw(bench(cluster, "all_reduce", sizes, algo="all", library="nccl").to_dict())


def used() -> Any:
    result = scenario("quickstart")
    assert result.cluster is not None
    return topology(result.cluster, result.timeline)


def traffic() -> Any:
    result = scenario("all-to-all-splits")
    library = Ideal("direct")
    return traffic_matrix(result.timeline, cluster=result.cluster, library=library)


BUTTONS_ON_LEGEND = """[...document.querySelectorAll(".js-plotly-plot")].filter(plot => {
  const [a, b] = [".legend", ".modebar"].map(
    one => plot.querySelector(one)?.getBoundingClientRect());
  return a && b && a.top < b.bottom && b.top < a.bottom && a.left < b.right && b.left < a.right;
}).length"""


def sizes_of_cluster() -> Any:
    rank = {"rank": 0, "stage": None}
    return scaling([
        {"scenario": "step", "step_time_s": 1 + gpus / 500, "tokens_per_s": 900 * gpus,
         "ranks": [{**rank, "multiplicity": gpus}]}
        for gpus in (8, 32, 128)
    ])  # fmt: skip


FIGURES: tuple[Callable[[], list[Any]], ...] = (
    lambda: [of_bench()],
    lambda: [breakdown(scenario("1f1b").metrics)],
    lambda: [link_use(scenario("quickstart").timeline)],
    lambda: [memory(scenario("quickstart").timeline)],
    lambda: [topology(Cluster.preset("dgx-1v", nodes=2))],
    lambda: [used()],
    lambda: [traffic()],
    lambda: [bandwidth_matrix(Cluster.preset("dgx-1v", nodes=2))],
    lambda: [sizes_of_cluster()],
    lambda: one_above_other([(n, gantt(scenario(n).timeline)) for n in ("gpipe", "1f1b")]),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All charts on one page."""
    found = tmp_path_factory.mktemp("pages") / "charts.html"
    save_page([figure for make in FIGURES for figure in make()], found)
    return found


def opened(
    browser: Any, path: Path, width: int, scheme: str, **settings: Any
) -> tuple[Any, list[str]]:
    page = browser.new_page(
        viewport={"width": width, "height": 800}, color_scheme=scheme, **settings
    )
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    page.goto(path.as_uri())
    page.wait_for_selector(".main-svg")
    return page, complaints


def shoot(page: Any, name: str) -> None:
    folder = os.environ.get("COMMSIM_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1400, "light")])
def test_charts_are_drawn_without_complaints(
    browser: Any, path: Path, width: int, scheme: str
) -> None:
    page, complaints = opened(browser, path, width, scheme)
    shoot(page, f"charts-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".js-plotly-plot").count() == 11
    assert all(text.strip() for text in page.locator("h1").all_inner_texts())
    # No text of a chart leaves its picture: names are not cut.
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(BUTTONS_ON_LEGEND) == 0
    # Nor does a legend, of nine lines on a narrow screen, lie on the plot.
    assert page.evaluate(LEGEND_ON_PLOT) <= 1
    assert complaints == []
    page.close()


def test_sizes_stand_apart_on_a_narrow_screen(browser: Any, tmp_path: Path) -> None:
    """From 8 B to 1 GiB there are 28 powers of two, and room for five labels."""
    made = bench(Cluster.preset("dgx-h100"), "all_reduce", [8, 2**30], algo=("ring", "tree"))
    save_figure(busbw(made.to_dict()), tmp_path / "sizes.html")
    page, complaints = opened(browser, tmp_path / "sizes.html", 380, "light")
    gaps = page.evaluate(GAPS)
    assert 3 <= len(gaps) <= 5
    assert min(gaps) >= 6  # pixels
    assert complaints == []
    page.close()


GAPS = """
(() => {
  const ticks = [...document.querySelectorAll('.xtick text')].map((t) => t.getBoundingClientRect());
  ticks.sort((a, b) => a.left - b.left);
  return ticks.slice(1).map((box, at) => box.left - ticks[at].right);
})()
"""

CUT = """
[...document.querySelectorAll('.js-plotly-plot')].flatMap((plot) => {
  const box = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('.main-svg text')].filter((text) => {
    const own = text.getBoundingClientRect();
    return own.width && (own.left < box.left - 1 || own.right > box.right + 1
                         || own.top < box.top - 1 || own.bottom > box.bottom + 1);
  }).map((text) => text.textContent);
})
"""

LEGEND_ON_PLOT = """
Math.max(...[...document.querySelectorAll('.js-plotly-plot')].map((plot) => {
  const legend = plot.querySelector('.legend'), area = plot.querySelector('.gridlayer path');
  if (!legend || !area) return 0;
  const grid = plot.querySelector('.gridlayer').getBoundingClientRect();
  return legend.getBoundingClientRect().bottom - grid.top;
}))
"""


def test_texts_that_lie_on_each_other_are_found(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 380, "height": 800})
    page.set_content(
        "<p>above</p><p style='margin-top:-12px'>below</p>"
        "<svg width=200 height=40><text x=10 y=20>left</text><text x=20 y=22>right</text>"
        "<text x=120 y=20>alone</text><text x=10 y=20 visibility=hidden>hidden</text></svg>"
    )
    assert page.evaluate(OVERLAPS) == ["left | right"]
    page.set_content("<p style='line-height:1;height:6px;margin:0'>above</p><p>no room</p>"
                     "<b style='position:absolute;left:12px;top:9px'>on it</b>")  # fmt: skip
    assert page.evaluate(OVERLAPS) == ["above | on it"]
    page.close()


def test_a_page_follows_light_dark_and_width(browser: Any, path: Path) -> None:
    page, complaints = opened(
        browser, path, 1400, "dark", bypass_csp=True
    )  # the waiting is a script
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 28)"
    look = "document.getElementById('chart10')._fullLayout.paper_bgcolor.toLowerCase()"
    assert page.evaluate(look) == "#15171c"
    boxes = "document.getElementById('chart10').data.map(t => [t.marker.color, t.textfont?.color])"
    assert ["#4C78A8", "#FFFFFF"] in page.evaluate(boxes)  # ink on a box stays
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"{look} === '#ffffff'")
    page.set_viewport_size({"width": 2560, "height": 800})
    page.wait_for_function("document.getElementById('chart10')._fullLayout.width > 1900")
    assert page.evaluate(OVERLAPS) == []
    page.set_viewport_size({"width": 700, "height": 800})
    page.wait_for_function("document.getElementById('chart')._fullLayout.width <= 700")
    assert page.evaluate(LEGEND_ON_PLOT) <= 1
    assert page.evaluate("document.getElementById('chart')._fullLayout.yaxis.type") == "log"
    page.locator("label input").uncheck()
    page.wait_for_function("document.getElementById('chart')._fullLayout.yaxis.type === 'linear'")
    assert page.locator("#chart .ytick").count() < 40
    bar = page.locator("#chart1 .barlayer .point path").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#chart1 .hoverlayer .hovertext")
    text = page.locator("#chart1 .hoverlayer").text_content()
    assert "rank 0, stage 0: compute" in text
    assert complaints == []
    page.close()
