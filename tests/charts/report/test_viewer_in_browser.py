"""The report in a real browser: all sections are there, and its viewer tells the truth."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers.frames import wait_until_drawn
from helpers.many_spans import many_spans
from helpers.overlaps import OVERLAPS
from helpers.report_pages import hostile
from helpers.share import share_of_each
from helpers.viewer_pages import Open, point_at, report_of, span_named, viewer

from commsim.charts.report import ReportFacts, write_report
from commsim.cluster import Cluster
from commsim.metrics import measure
from commsim.scenario.catalogue import scenario_names
from commsim.study.replay import replay
from commsim.study.run import run
from commsim.timeline import Timeline

pytestmark = [
    pytest.mark.browser,
    # Playwright leaves its event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HOSTILE = "<script>document.title='hit'</script><b>bold</b>"
MS = 10**9


def written(timeline: Timeline, folder: Path, name: str = "made") -> Path:
    path = folder / f"{name}.html"
    if not path.exists():
        write_report(ReportFacts(name, timeline, measure(timeline)), path)
    return path


SECTIONS = {
    "1f1b": "breakdown bubble timeline limits waits path notes again",
    "quickstart": "breakdown timeline limits bandwidth links topology memory path notes again",
    "p2p-nonblocking": "breakdown timeline limits bandwidth links topology path notes again",
}


@pytest.mark.parametrize(
    ("name", "width", "theme"),
    share_of_each(product(SECTIONS), product([380, 1400, 2560], ["light", "dark"]), 1 / 6),
)
def test_sections_are_there_at_every_size(
    opened: Open, folder: Path, name: str, width: int, theme: str
) -> None:
    keys = SECTIONS[name]
    page = opened(report_of(name, folder), width, color_scheme=theme)
    assert page.locator("main > section").count() == len(keys.split())
    for key in keys.split():
        assert page.locator(f"#{key}").is_visible()
        assert page.locator(f"#{key}").bounding_box()["height"] > 40
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERLAPS) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if theme == "light" else "rgb(17, 24, 39)")


def test_the_button_changes_the_theme_of_page_and_canvas(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    corner = """(() => { const c = document.querySelector(".main");
        return [...c.getContext("2d").getImageData(2, 2, 1, 1).data]; })()"""
    assert page.evaluate(corner)[:3] == [255, 255, 255]
    page.click("#theme")
    wait_until_drawn(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 24, 39)"
    assert page.evaluate(corner)[:3] == [21, 30, 46]


def test_the_boxes_have_the_colours_of_what_they_are(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    for name, colour in (("F0", [76, 120, 168]), ("B0", [242, 166, 90])):
        span = span_named(page, name, 0)
        pixel = viewer(page, """
            const at = v.place(a[0]), r = devicePixelRatio;
            return [...document.querySelector(".main").getContext("2d").getImageData(
              (at.start + 3) * r, (at.y + 3) * r, 1, 1).data];""", span)  # fmt: skip
        assert pixel[:3] == colour


def test_hover_tells_what_is_under_the_pointer(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    point_at(page, span_named(page, "B3", 2))
    tip = page.locator(".tip")
    tip.wait_for(state="visible")
    words = tip.inner_text().splitlines()
    assert words[0] == "B3"
    assert words[1] == "rank 2, stage 2, microbatch 3"
    assert words[2].endswith("takes 2 ms")


def test_hover_has_bytes_and_bus_bandwidth(opened: Open, folder: Path) -> None:
    result = run("ddp", ["engine.fold=off"])
    page = opened(report_of("ddp", folder, "engine.fold=off"))
    timeline, graph = result.timeline, result.timeline.graph
    row = int(np.argmax(graph.collectives.size))
    mine = np.flatnonzero((graph.kind[timeline.op] == 1) & (graph.item[timeline.op] == row))
    took = int(timeline.end[mine].max() - timeline.start[mine].min()) * 1e-12
    wanted = float(graph.collectives.size[row]) * 1.5 / took * 1e-9
    texts = viewer(page, """
        const d = v.data, found = [];
        const size = Math.max(...d.facts.sizes);
        for (let i = 0; i < d.count; i++)
          if (d.instance[i] && d.facts.sizes[d.size[i]] === size) found.push(v.tell(i)[3]);
        return found;""")  # fmt: skip
    assert texts
    said = float(texts[0].split("busbw ")[1].split(" GB/s")[0])
    assert said == pytest.approx(wanted, rel=2e-3)


def test_arrows_and_the_critical_path_draw_over_the_rows(opened: Open, folder: Path) -> None:
    page = opened(report_of("p2p-nonblocking", folder))
    drawn = """(() => { const c = document.querySelector(".over");
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; })()"""
    assert page.evaluate(drawn) == 0
    page.click("button:has-text('arrows')")
    wait_until_drawn(page)
    arrows = page.evaluate(drawn)
    assert arrows > 50
    page.click("button:has-text('critical path')")
    wait_until_drawn(page)
    assert page.evaluate(drawn) > arrows + 500
    page.click("button:has-text('arrows')")
    page.click("button:has-text('critical path')")
    wait_until_drawn(page)
    assert page.evaluate(drawn) == 0


def test_names_from_traces_stay_text(opened: Open, folder: Path) -> None:
    page = opened(written(hostile(HOSTILE), folder, "hostile"))
    assert page.title() != "hit"
    point_at(page, 0)
    tip = page.locator(".tip")
    tip.wait_for(state="visible")
    assert tip.locator(".what").inner_text().startswith("<script>document.title")
    assert page.locator("script:has-text('hit'):not([type])").count() == 0
    assert page.locator("b").count() == 0


def test_what_is_rare_stays_visible_among_many(opened: Open, folder: Path) -> None:
    """A few boxes in a thousand, each far below a pixel, still have pixels of their colour."""
    timeline = many_spans(80_000, lanes=8)
    page = opened(written(timeline, folder, "many"))
    count = viewer(page, """
        const c = document.querySelector(".main"), ctx = c.getContext("2d");
        const d = ctx.getImageData(0, 0, c.width, c.height).data, found = {};
        for (let i = 0; i < d.length; i += 4) {
          const key = d[i] + "," + d[i + 1] + "," + d[i + 2];
          found[key] = (found[key] || 0) + 1;
        }
        return found;""")  # fmt: skip
    assert count["143,169,196"] > 20  # the rare op: compute without a phase
    assert count["76,120,168"] > count["143,169,196"]
    forward = int((timeline.graph.phase == 1).sum()) / int((timeline.graph.phase > 0).sum())
    bright = {key: count[key] for key in ("76,120,168", "242,166,90", "143,191,136")}
    assert bright["76,120,168"] / sum(bright.values()) == pytest.approx(forward, abs=0.06)


def test_a_span_among_many_is_the_one_of_the_timeline(opened: Open, folder: Path) -> None:
    timeline = many_spans(80_000, lanes=8)
    page = opened(written(timeline, folder, "many"))
    for chosen in (17, 40_003, 79_990):
        lane, name = int(timeline.lane[chosen]), timeline.graph.op_name(int(timeline.op[chosen]))
        when = (int(timeline.start[chosen]) + int(timeline.end[chosen])) // 2
        said = viewer(page, """
            const [rank, ps, comm] = a, d = v.data;
            const lane = d.facts.lanes.find(one => one.rank === rank);
            const span = ViewerData.spanAt(d, lane.rows[comm], ps / d.facts.tick, 0);
            v.reveal(span);
            return v.tell(span);""", lane, when, int(timeline.communicates[chosen]))  # fmt: skip
        assert said[0].startswith(name) or "(all-" in said[0]
        assert said[1].startswith(f"rank {lane}")
        took = int(timeline.end[chosen] - timeline.start[chosen])
        assert f"takes {took / 1e6:.4g} us" in said[2] or f"takes {took / 1e3:.4g} ns" in said[2]


def test_the_page_prints_without_its_controls(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    page.emulate_media(media="print")
    assert not page.locator(".tools").is_visible()
    assert not page.locator("nav").is_visible()
    assert page.locator(".main").is_visible()
    assert len(page.pdf()) > 20_000


def test_paper_is_white_on_a_dark_screen_too(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder), color_scheme="dark")
    look = """(() => { const c = document.querySelector(".main");
        return [getComputedStyle(document.body).backgroundColor,
                [...c.getContext("2d").getImageData(2, 2, 1, 1).data].slice(0, 3)]; })()"""
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(look) == ["rgb(255, 255, 255)", [255, 255, 255]]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(look) == ["rgb(17, 24, 39)", [21, 30, 46]]


def test_rows_on_which_nobody_computes_are_left_out(opened: Open, folder: Path) -> None:
    page = opened(report_of("ring-all-reduce", folder))
    lines = viewer(page, "return v.lines().map(l => [l.label, v.data.facts.counts[l.row]])")
    assert lines == [[f"rank {rank}", 1] for rank in range(8)]


def test_very_many_ranks_begin_folded_by_node(opened: Open, folder: Path) -> None:
    timeline, path = many_spans(7_000, lanes=136), folder / "lanes.html"
    cluster = Cluster.preset("dgx-h100", nodes=17)
    write_report(ReportFacts("lanes", timeline, measure(timeline), cluster=cluster), path)
    page = opened(path)
    assert viewer(page, "return v.lines().map(l => l.label)") == [f"node {k}" for k in range(17)]
    page.fill(".tools input", "rank 100")
    assert viewer(page, "return v.lines().some(l => l.label === 'rank 100')")


def test_waiting_and_what_is_not_lit_are_pale(opened: Open, folder: Path) -> None:
    page = opened(report_of("p2p-nonblocking", folder))
    pixel = """
        const at = v.place(a[0]), r = devicePixelRatio, c = document.querySelector(".main");
        const x = a[1] === "wait" ? (at.left + at.start) / 2 : (at.start + at.right) / 2 + 40;
        const d = c.getContext("2d").getImageData(x * r, (at.y + 2) * r, 1, 1).data;
        return (d[0] + d[1] + d[2]) / 3;"""
    waiting = viewer(page, """
        for (let i = 0; i < v.data.count; i++) if (v.data.wait[i]) return i;""")  # fmt: skip
    assert viewer(page, pixel, waiting, "wait") > 180 > viewer(page, pixel, waiting, "moves")
    page.click(".legend button:has-text('compute')")
    wait_until_drawn(page)
    assert viewer(page, pixel, waiting, "moves") > 220
    assert viewer(page, "return v.view().t0") == 0


def test_a_measured_run_stands_above_its_replay(
    opened: Open, folder: Path, shared_data: Path
) -> None:
    path = folder / "dlrm.html"
    replay(shared_data / "traces" / "dev_param_dlrm_8xV100").result.report(path)
    page = opened(path)
    heads = viewer(page, "return v.lines().filter(l => l.kind === 'head').map(l => l.label)")
    assert heads == ["measured", "replayed"]
    rows = viewer(page, "return v.lines().filter(l => l.label.startsWith('rank')).length")
    assert rows == 16
    assert page.locator("#breakdown td:has-text('rank 3, replayed')").count() == 1
    for word in ("measured", "replayed"):
        assert page.locator(f"#bandwidth td:has-text('{word}')").count() == 3


def looked_at(opened: Open, folder: Path, names: Iterable[str]) -> None:
    first, *others = names
    page = opened(report_of(first, folder))
    for name in (first, *others):
        if name != first:
            page.goto(report_of(name, folder).as_uri())
            page.wait_for_selector("#viewer[data-ready]")
        assert page.locator("#timeline").is_visible()
        assert page.locator("h1").inner_text() != ""


def test_scenarios_of_every_kind_have_a_report(opened: Open, folder: Path) -> None:
    kinds = ("two-libraries", "host-offload", "all-to-all-splits")
    looked_at(opened, folder, kinds)


@pytest.mark.long
def test_every_scenario_of_the_catalogue_has_a_report(opened: Open, folder: Path) -> None:
    looked_at(opened, folder, scenario_names())
