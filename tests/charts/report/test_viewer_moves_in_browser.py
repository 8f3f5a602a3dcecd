"""The viewer in Chromium: zoom, drag, keys, search, folding and touch."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.frames import wait_until_drawn
from helpers.viewer_pages import Open, point_at, report_of, span_named, viewer

pytestmark = [
    pytest.mark.browser,
    # Playwright leaves its event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_the_wheel_zooms_at_the_pointer(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    span = span_named(page, "B3", 2)
    x, _ = point_at(page, span)
    box = page.locator(".main").bounding_box()
    time_there = (
        "const s = v.size(), w = v.view(); return w.t0 + (a[0] - s.gutter) / s.plot * (w.t1 - w.t0)"
    )
    before, whole = viewer(page, time_there, x - box["x"]), viewer(page, "return v.view()")
    for _ in range(4):
        page.mouse.wheel(0, -300)
    narrow = 0.3 * (whole["t1"] - whole["t0"])
    page.wait_for_function(
        """narrow => { const w = document.getElementById('viewer').viewer.view();
                       return w.t1 - w.t0 < narrow; }""",
        arg=narrow,
    )
    wait_until_drawn(page)
    assert viewer(page, time_there, x - box["x"]) == pytest.approx(before, rel=1e-6)
    page.mouse.move(x + 1, box["y"] + viewer(page, "return v.place(a[0]).y", span) + 5)
    assert page.locator(".tip .what").inner_text() == "B3"
    page.mouse.dblclick(x, box["y"] + 60)
    assert viewer(page, "return v.view()")["t1"] == whole["t1"]


def test_drag_keys_and_minimap_move_the_view(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    viewer(page, "v.setView(0, v.data.facts.reach / 4)")
    box = page.locator(".main").bounding_box()
    start = viewer(page, "return v.view().t0")
    page.mouse.move(box["x"] + 800, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    page.mouse.up()
    dragged = viewer(page, "return v.view().t0")
    assert dragged > start
    page.locator(".main").focus()
    page.keyboard.press("ArrowRight")
    assert viewer(page, "return v.view().t0") > dragged
    wide = viewer(page, "const w = v.view(); return w.t1 - w.t0")
    page.keyboard.press("+")
    assert viewer(page, "const w = v.view(); return w.t1 - w.t0") < wide
    page.keyboard.press("0")
    assert viewer(page, "const w = v.view(); return [w.t0, w.t1]") == viewer(
        page, "return [0, v.data.facts.reach]"
    )
    viewer(page, "v.setView(0, v.data.facts.reach / 10)")
    small = page.locator(".map").bounding_box()
    page.mouse.click(small["x"] + small["width"] - 40, small["y"] + 10)
    assert viewer(page, "return v.view().t1 > 0.9 * v.data.facts.reach")


def test_shift_and_drag_zooms_to_the_stretch(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    box = page.locator(".main").bounding_box()
    size = viewer(page, "return v.size()")
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + size["gutter"] + size["plot"] * 0.25, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + size["gutter"] + size["plot"] * 0.5, box["y"] + 70, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    view = viewer(page, "const w = v.view(), r = v.data.facts.reach; return [w.t0 / r, w.t1 / r]")
    assert view == pytest.approx([0.25, 0.5], abs=0.01)


def test_search_lights_what_it_finds_and_goes_there(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder))
    page.fill(".tools input", "b3")
    assert page.locator(".tools .count").inner_text() == "4 spans"
    page.keyboard.press("Enter")
    chosen = viewer(page, "return v.tell(v.chosen())")
    assert chosen[0] == "B3"
    assert chosen[1].startswith("rank 3")  # the first in time
    page.keyboard.press("Enter")
    assert viewer(page, "return v.tell(v.chosen())")[1].startswith("rank 2")
    assert "B3" in page.locator(".details").inner_text()
    page.fill(".tools input", "no such thing")
    assert page.locator(".tools .count").inner_text() == "nothing found"
    page.fill(".tools input", "rank 2")
    assert page.locator(".tools .count").inner_text() == "rank 2"


def test_groups_fold_and_open(opened: Open, folder: Path) -> None:
    page = opened(report_of("quickstart", folder, "engine.fold=off"))
    page.select_option(".tools select", "node")
    lines = viewer(page, "return v.lines().filter(l => l.kind === 'head').map(l => l.label)")
    assert lines == ["node 0", "node 1"]
    rows = viewer(page, "return v.lines().filter(l => l.kind === 'row').length")
    page.locator(".main").scroll_into_view_if_needed()
    box = page.locator(".main").bounding_box()
    page.mouse.click(box["x"] + 10, box["y"] + 24 + 10)
    assert viewer(page, "return v.lines().filter(l => l.kind === 'row').length") == rows / 2
    page.mouse.click(box["x"] + 10, box["y"] + 24 + 10)
    assert viewer(page, "return v.lines().filter(l => l.kind === 'row').length") == rows


def test_touch_pinches_drags_and_taps(opened: Open, folder: Path) -> None:
    page = opened(report_of("1f1b", folder), 380, 800, has_touch=True, is_mobile=True)
    page.locator(".main").scroll_into_view_if_needed()
    box = page.locator(".main").bounding_box()
    cdp = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        cdp.send("Input.dispatchTouchEvent", {
            "type": kind,
            "touchPoints": [{"x": box["x"] + x, "y": box["y"] + y, "id": k}
                            for k, (x, y) in enumerate(points)],
        })  # fmt: skip

    whole = viewer(page, "const w = v.view(); return w.t1 - w.t0")
    touch("touchStart", (150, 60), (220, 60))
    for step in range(1, 5):
        touch("touchMove", (150 - 15 * step, 60), (220 + 15 * step, 60))
    touch("touchEnd")
    zoomed = viewer(page, "const w = v.view(); return w.t1 - w.t0")
    assert zoomed < 0.6 * whole
    before = viewer(page, "return v.view().t0")
    touch("touchStart", (250, 60))
    for step in range(1, 6):
        touch("touchMove", (250 - 20 * step, 60))
    touch("touchEnd")
    assert viewer(page, "return v.view().t0") > before
    viewer(page, "v.setView(0, v.data.facts.reach)")
    at = viewer(page, "return v.place(a[0])", span_named(page, "B0", 3))
    page.touchscreen.tap(box["x"] + (at["start"] + at["right"]) / 2, box["y"] + at["y"] + 8)
    assert "B0" in page.locator(".details").inner_text()
    assert "rank 3" in page.locator(".details").inner_text()
