"""The viewer's tools: host rows with what they launched, ranges, pictures, and its address."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.frames import wait_until_drawn

from commsim.charts.report import ReportFacts, write_report
from commsim.charts.report.pack import ShownRun, pack
from commsim.charts.report.rows import launchers, place_spans
from commsim.engine import simulate
from commsim.graph import Device, GraphBuilder, OpKind
from commsim.libraries import Ideal
from commsim.metrics import arrivals, measure
from commsim.scenario import scenario_names
from commsim.study.replay import replay
from commsim.study.run import run
from commsim.timeline import Timeline

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Open = Callable[..., Any]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def dlrm() -> Any:
    return replay("example-dlrm").result


@pytest.fixture(scope="module")
def pages(dlrm: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tools")
    pages = {name: folder / f"{name}.html" for name in ("dlrm", "pipeline")}
    dlrm.report(pages["dlrm"])
    run("dp-pp").report(pages["pipeline"])
    return pages


def viewer(page: Any, script: str, *arguments: Any) -> Any:
    """Run `script` with `v` as the viewer, `d` as its data and `a` as the arguments."""
    start = "const v = document.getElementById('viewer').viewer, d = v.data;"
    return page.evaluate(f"a => {{ {start} {script} }}", list(arguments))


def test_names_of_rows_are_whole_on_a_screen_that_has_room(opened: Open, tmp_path: Path) -> None:
    """Stages of tp, pp and dp send on the stream of tp: the longest names that there are."""
    run("dp-pp-tp").report(tmp_path / "page.html")
    page = opened(tmp_path / "page.html")
    drawn = viewer(page, """
        const texts = [], draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
          texts.push(text); draw.call(this, text, ...at); };
        v.redraw();
        return texts;""")  # fmt: skip
    assert "tp, pp +1 send, pp -1 send, embedding" in drawn
    assert not [text for text in drawn if text.endswith("…")]
    assert viewer(page, "return v.size().gutter < 0.2 * v.size().plot")


def test_threads_of_the_host_have_rows_above_their_gpu(
    opened: Open, dlrm: Any, pages: dict[str, Path]
) -> None:
    timeline: Timeline = dlrm.timeline
    graph = timeline.graph
    on_cpu = (graph.kind == OpKind.COMPUTE) & (graph.device == Device.CPU)
    long = timeline.end > timeline.start
    wanted = 2 * int((on_cpu[timeline.op] & long).sum())  # measured, and replayed
    page = opened(pages["dlrm"])
    family = [f["label"] for f in viewer(page, "return d.facts.looks")].index("host thread")
    assert viewer(page, "return d.what.filter(w => d.family[w] === a[0]).length", family) == wanted
    names = viewer(
        page, "return v.lines().filter(l => l.kind === 'row').map(l => [l.lane, l.name])"
    )
    first = [name for lane, name in names if lane == 0]
    assert first[0] == "cpu"
    assert "autograd" in first[1]
    assert "host thread" in page.inner_text(".legend")


def test_a_kernel_points_to_what_launched_it(
    opened: Open, dlrm: Any, pages: dict[str, Path]
) -> None:
    timeline: Timeline = dlrm.measured[0]
    placed = place_spans(timeline)
    op = timeline.op[placed.spans]
    place = np.full(len(timeline.graph), -1)
    place[op] = np.arange(len(op))
    by = launchers(timeline)[op]
    wanted = np.where(by >= 0, place[by], -1)
    page = opened(pages["dlrm"])
    count = len(wanted)  # the measured run comes first
    told = viewer(page, "return [...Array(a[0]).keys()].map(i => ViewerData.launcher(d, i))", count)
    assert told == wanted.tolist()
    kernel = int(np.flatnonzero(wanted >= 0)[5])
    words = viewer(page, "v.reveal(a[0]); return v.tell(a[0])", kernel)
    name = timeline.graph.names[timeline.graph.name[op[wanted[kernel]]]]
    assert words[4].startswith(f"launched by {name}, ")
    back = viewer(page, "return v.tell(a[0])[4]", int(wanted[kernel]))
    assert back.startswith("launched ")
    before = viewer(page, "v.choose(-1); v.redraw(); return 0")
    ink = """
        const { width, height } = v.size(), over = document.querySelector('.over').getContext('2d');
        const pixels = over.getImageData(0, 0, width, height).data;
        return pixels.filter((x, i) => i % 4 === 3 && x).length"""
    nothing = viewer(page, ink)
    viewer(page, "v.choose(a[0]); v.redraw()", kernel)
    assert viewer(page, ink) > nothing + 20
    assert before == 0


def test_a_range_adds_up_to_what_is_inside(opened: Open, pages: dict[str, Path]) -> None:
    timeline = run("dp-pp").timeline
    facts, _ = pack([ShownRun("", timeline)])
    placed = place_spans(timeline)
    tick = facts["tick"]
    zero = int(arrivals(timeline)[placed.spans].min())
    whole = facts["reach"]
    t0, t1 = whole * 0.2, whole * 0.6
    rows = [0, 1]
    mine = placed.spans[np.isin(placed.row, rows)]
    start = (timeline.start[mine] - zero) / tick
    end = (timeline.end[mine] - zero) / tick
    busy = np.maximum(0, np.minimum(end, t1) - np.maximum(start, t0)).sum()
    page = opened(pages["pipeline"])
    found = viewer(
        page,
        "const r = { t0: a[0], t1: a[1], rows: a[2] }; v.showRange(r); return v.inside(r)",
        t0,
        t1,
        rows,
    )
    assert sum(part["busy"] for part in found["parts"]) == pytest.approx(busy, rel=1e-4)
    assert found["covered"] <= (t1 - t0) * len(rows)
    text = page.inner_text(".range")
    assert "2 rows" in text
    assert "% taken" in text
    page.get_by_role("button", name="zoom here").click()
    assert viewer(page, "return [v.view().t0, v.view().t1]") == pytest.approx([t0, t1], rel=1e-6)
    page.keyboard.press("Escape")


def test_dragging_measures_the_rows_it_goes_over(opened: Open, pages: dict[str, Path]) -> None:
    page = opened(pages["pipeline"])
    page.get_by_role("button", name="drag over a stretch").click()
    box = page.locator(".main").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    page.mouse.up()
    range_ = viewer(page, "return v.range()")
    assert range_["t1"] > range_["t0"]
    assert range_["rows"]
    order = [page.locator(".range tbody tr").nth(k).inner_text() for k in range(2)]
    page.locator(".range .sorter", has_text="what").click()
    assert [page.locator(".range tbody tr").nth(k).inner_text() for k in range(2)] != order or (
        order == sorted(order)
    )
    page.locator(".main").focus()
    page.keyboard.press("Escape")
    assert viewer(page, "return v.range()") is None


def test_the_address_leads_back_to_the_view(opened: Open, pages: dict[str, Path]) -> None:
    page = opened(pages["pipeline"])
    viewer(page, "v.setView(a[0], a[1])", 1_000_000, 3_000_000)
    page.fill(".tools input", "layer 1")
    viewer(page, "v.showRange({ t0: 1500000, t1: 2000000, rows: [0, 1] })")
    page.wait_for_function("location.hash.includes('range=') && location.hash.includes('find=')")
    url = page.url
    other = opened(pages["pipeline"])
    other.goto("about:blank")
    other.goto(url)
    other.wait_for_selector("#viewer[data-ready]")
    assert viewer(other, "return [v.view().t0, v.view().t1]") == [1_000_000, 3_000_000]
    assert other.input_value(".tools input") == "layer 1"
    assert viewer(other, "return v.range().rows") == [0, 1]


def test_an_address_may_be_anything(opened: Open, pages: dict[str, Path]) -> None:
    page = opened(pages["pipeline"])
    for part in ("view=9-1", "view=x", "range=1-2-999999-3", "by=no&show=open", "top=1e99", "%%%"):
        page.evaluate("h => { location.hash = h }", part)
        wait_until_drawn(page)
        assert viewer(page, "return v.view().t0") == 0
        assert viewer(page, "return Number.isFinite(v.view().top)")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_show_what_is_seen(opened: Open, pages: dict[str, Path], theme: str) -> None:
    page = opened(pages["pipeline"], color_scheme=theme)
    text = viewer(page, "return v.svg()")
    told = " ".join(one.text or "" for one in ElementTree.fromstring(text).iter(f"{SVG}text"))
    assert page.inner_text("h1").replace("\xa0", " ") in told.replace("\xa0", " ")
    assert "forward" in told
    assert "stage 0" in told or "rank 0" in told
    groups = text.count("<g "), text.count("</g>")
    assert groups[0] == groups[1]
    size = page.evaluate("async () => (await document.getElementById('viewer').viewer.png()).size")
    assert size > 5_000


PAINTED = """
    CanvasRenderingContext2D.prototype.fillText = () => {};
    v.redraw();
    const ctx = document.querySelector('.main').getContext('2d'), size = v.size(), found = [];
    const empty = [247, 248, 249], square = x => x.reduce((a, b) => a + b * b, 0);
    const hex = text => [1, 3, 5].map(k => parseInt(text.slice(k, k + 2), 16));
    const fills = d.facts.looks.map(look => hex(look.fill).map((value, k) => value - empty[k]));
    /* How much of a pixel is filled: its edges are blends of a box and of nothing. */
    const share = rgb => {
      const seen = rgb.map((value, k) => value - empty[k]);
      let best = Infinity, part = 0;
      for (const fill of fills) {
        const dot = seen.reduce((a, b, k) => a + b * fill[k], 0) / square(fill);
        const along = Math.min(1, Math.max(0, dot));
        const off = square(seen.map((value, k) => value - along * fill[k]));
        if (off < best) { best = off; part = along; }
      }
      return part < 0.25 ? 0 : part > 0.85 ? 1 : part; // hatching; lines between boxes
    };
    for (const line of v.lines()) {
      const top = 24 + line.y - v.view().top;
      if (line.kind !== 'row' || top + line.height > size.height) continue;
      const pixels = ctx.getImageData(size.gutter, top, size.plot, line.height).data;
      let painted = 0, busy = 0, reach = 0, waits = false;
      for (let i = d.first[line.row]; i < d.first[line.row + 1]; i++)
        waits = waits || d.wait[i] > 0;
      for (let i = 0; i < pixels.length; i += 4) {
        const rgb = [pixels[i], pixels[i + 1], pixels[i + 2]];
        const coloured = Math.max(...rgb) - Math.min(...rgb) >= 14;
        painted += waits ? coloured : share(rgb); // pale is waiting
      }
      for (let i = d.first[line.row]; i < d.first[line.row + 1]; i++) {
        const end = ViewerData.endOf(d, i), from = Math.max(reach, d.begin[i]);
        if (end > from) { busy += end - from; reach = end; }
      }
      found.push([painted / (pixels.length / 4), busy / (v.view().t1 - v.view().t0)]);
    }
    return found;"""


def painted_as_busy(opened: Open, page: Path) -> None:
    """Each row in view has colour on the share of its pixels in which something ran."""
    rows = viewer(opened(page), PAINTED)
    assert rows
    for painted, busy in rows:
        assert painted == pytest.approx(busy, abs=0.05)


@pytest.mark.parametrize("name", ["pipeline", "dlrm"])
def test_a_row_is_painted_for_as_long_as_it_was_busy(
    opened: Open, pages: dict[str, Path], name: str
) -> None:
    painted_as_busy(opened, pages[name])


def test_many_short_spans_are_not_painted_as_more(opened: Open, tmp_path: Path) -> None:
    """A pixel of every column would be 7 % of the row of a host that is 0.5 % busy."""
    build = GraphBuilder()
    lane = build.lane(0)
    before: list[int] = []
    for _ in range(4000):
        work = build.compute(lane, 49_750, name="work", after=before)
        calls = build.compute(
            lane, 250, name="call", stream="host", after=[work], device=Device.CPU
        )
        before = [calls]
    timeline = simulate(build.build(), None, library=Ideal("ring"))
    write_report(ReportFacts("short", timeline, measure(timeline)), tmp_path / "page.html")
    painted_as_busy(opened, tmp_path / "page.html")


@pytest.mark.long
@pytest.mark.parametrize("name", scenario_names())
def test_rows_of_the_catalogue_are_painted_for_as_long_as_they_were_busy(
    opened: Open, tmp_path: Path, name: str
) -> None:
    run(name).viewer(tmp_path / "page.html")
    if 'id="viewer"' in (tmp_path / "page.html").read_text(encoding="utf-8"):
        painted_as_busy(opened, tmp_path / "page.html")
