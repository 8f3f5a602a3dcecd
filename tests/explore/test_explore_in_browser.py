"""The page in a real browser: choices are answered, errors stand beside them, nothing overlaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

from commsim.explore import ExplorerServer
from commsim.study.run import run

pytestmark = [
    pytest.mark.browser,
    # Playwright leaves its event loop's transports to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Open = Callable[..., Any]

LONG = """() => {
  Choices.set({ nodes: 1000, tp: 8, microbatches: 512, model: "llama3-70b" });
  Choices.all.get("nodes").input.dispatchEvent(new Event("input"));
}"""
OVERLAPS = """() => {
  const seen = [...document.querySelectorAll(
    "aside label, aside select, aside input, aside output, aside legend, #headline, .figures div,"
    + " .result nav > *, .status > *, #plot text, #plot .key span, #held .key span, h2")]
    .filter(e => e.offsetParent !== null || e.ownerSVGElement)
    .map(e => [e, e.getBoundingClientRect()]).filter(([, r]) => r.width && r.height);
  const found = [];
  for (let i = 0; i < seen.length; i++) for (let j = i + 1; j < seen.length; j++) {
    const [a, p] = seen[i], [b, q] = seen[j];
    if (a.contains(b) || b.contains(a)) continue;
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const tall = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (wide > 1 && tall > 1) found.push([a, b].map(e => e.textContent.slice(0, 20)).join(" | "));
  }
  return found;
}"""


@pytest.fixture
def opened(browser: Any, server: ExplorerServer) -> Iterator[Open]:
    """Open the page and wait for its first answer; a complaint fails the test at its end."""
    contexts, complaints = [], []

    def open_page(width: int = 1400, choices: str = "", **settings: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda r: (
                None
                if r.url.startswith((server.url, "data:", "blob:"))
                else complaints.append(r.url)
            ),
        )
        page.goto(server.url + choices)
        settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def settled(page: Any, turn: int = 1) -> None:
    page.wait_for_selector(f"body[data-settled='{turn}']")


def choose(page: Any, key: str, text: str, turn: int) -> None:
    """Choose a value by what it is called, as a hand would."""
    page.evaluate(
        """([key, text]) => {
          const made = Choices.all.get(key);
          made.input.value = made.control.values.findIndex(([, one]) => one === text);
          made.input.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        [key, text],
    )
    settled(page, turn)


def test_nothing_overlaps_and_nothing_is_cut(opened: Open) -> None:
    """At the widths of a phone, a laptop and a projector, light and dark."""
    page = opened(1400, "#pp=2&evil=%22x%22&tp=%22no%22", color_scheme="light")
    assert page.evaluate("Choices.chosen()") == {"pp": 2}  # choices stand in the address
    assert "16 replicas" in page.inner_text("#shape")
    for width, scheme in ((1400, "light"), (2560, "dark"), (2560, "light"), (380, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.locator("#drawer").evaluate("drawer => { drawer.open = true; }")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 24, 39)")
    assert page.locator("#viewer[data-ready] canvas").count() == 3
    assert page.locator("#plot polyline").count() >= 2


def test_a_choice_is_answered(opened: Open, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    page = opened()
    before = page.inner_text("#headline")
    page.click("#pin")
    choose(page, "microbatches", "32", 2)
    after = page.inner_text("#headline")
    assert after != before
    assert "1 change" in page.inner_text("#name")
    assert "batch of 256 sequences" in page.inner_text("#shape")
    assert page.locator(".figures .other").count() == 2  # a step of more tokens is no worse
    assert page.inner_text("#shape").endswith("batch of 64 sequences)")
    assert not page.is_visible("#oom")
    assert page.locator(".figures .better").count() >= 2  # MFU and tokens per second
    expect(page.locator(".viewer")).to_have_count(1)  # the one before goes
    with page.expect_download() as found:
        page.click("#save-scenario")
    path = tmp_path / "scenario.yaml"
    found.value.save_as(path)
    assert yaml.safe_load(path.read_text())["workload"]["training"]["batch"]["global"] == 256
    assert run(path).headline.replace("\xa0", " ") == after.replace("\xa0", " ")
    with page.expect_download() as found:
        page.click("#save-report")
    found.value.save_as(tmp_path / "report.html")
    assert "workload.training.batch.global=256" in (tmp_path / "report.html").read_text()
    choose(page, "micro", "8", 3)
    assert page.inner_text("#oom").startswith("Does not fit in memory: ")
    page.click("#reset")
    settled(page, 4)
    assert page.inner_text("#headline") == before


def test_an_error_stands_beside_its_choice_and_the_answer_before_stays(opened: Open) -> None:
    page = opened()
    before = page.inner_text("#headline")
    choose(page, "pp", "3", 2)
    beside = page.inner_text(".control.wrong .error")
    assert beside == page.inner_text("#problem")
    assert "does not divide the 32 GPUs" in beside
    assert page.locator(".control.wrong").get_attribute("data-key") == "pp"  # touched last
    assert page.inner_text("#headline") == before
    choose(page, "pp", "2", 3)
    assert page.locator(".control.wrong").count() == 0
    assert not page.is_visible("#problem")


def test_curves_of_another_collective_and_a_long_run_that_is_stopped(opened: Open) -> None:
    from playwright.sync_api import expect

    page = opened()
    page.select_option("#op", "all_gather")
    drawn = page.locator("#plot svg[aria-label$='all_gather']")
    expect(drawn).to_be_visible()
    assert "over all 32 GPUs" in page.inner_text("#curves-words")
    page.evaluate(LONG)
    expect(page.locator("#doing")).to_contain_text("building")  # the worker has begun
    page.click("#stop")
    expect(page.locator("#doing")).to_have_text("stopped")


def test_a_stop_that_overtakes_its_question(opened: Open) -> None:
    from playwright.sync_api import expect

    page = opened()
    on_its_way: list[Any] = []
    page.route("**/run", lambda route: on_its_way.append(route))
    with page.expect_request("**/run"):
        page.evaluate(LONG)
    with page.expect_response("**/stop"):
        page.click("#stop")
    (question,) = on_its_way
    question.continue_()
    expect(page.locator("#doing")).to_have_text("stopped")
    page.unroute("**/run")
    choose(page, "nodes", "4", 3)  # the next is answered
    assert page.inner_text("#doing").startswith("answered")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"kind": "stopped"}, "stopped"),
        ({"kind": "error", "message": "Too large.", "controls": []},
         "what is shown is the answer before"),
    ],
)  # fmt: skip
def test_the_clock_does_not_write_over_the_last_word(
    opened: Open,
    server: ExplorerServer,
    monkeypatch: pytest.MonkeyPatch,
    message: dict[str, Any],
    words: str,
) -> None:
    """It ticks once more between the last word and the end of the answer."""
    from playwright.sync_api import expect

    said: SimpleQueue[Any] = SimpleQueue()
    page = opened()
    doing = page.locator("#doing")
    monkeypatch.setattr(server.worker, "ask", lambda *_: iter(said.get, None))
    page.clock.install()
    page.evaluate(LONG)
    page.clock.run_for(1_000)
    said.put({"kind": "progress", "doing": "measuring"})
    expect(doing).to_contain_text("measuring")
    said.put(message)
    expect(doing).to_have_text(words)
    page.clock.run_for(1_000)
    said.put(None)
    settled(page, 2)
    expect(doing).to_have_text(words)
