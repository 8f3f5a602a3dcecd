"""Explanations: the words, the strip and the page say what the program does."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.frames import wait_until_drawn
from helpers.overlaps import OVERLAPS
from helpers.paths import TESTS

from commsim.charts.explain.layout import frame, positions
from commsim.charts.explain.together import step_shares
from commsim.charts.explain.views import views
from commsim.collectives import default_per_node, program
from commsim.collectives.catalogue import ALGORITHMS
from commsim.collectives.checker import final_state
from commsim.collectives.walk import walk
from commsim.errors import ScenarioError
from commsim.study.explain import explain, save_together

FILES = TESTS / "data" / "msccl"
SVG = "{http://www.w3.org/2000/svg}"

RING_OF_THREE = """\
reduce-scatter by ring, 3 ranks
2 steps, 6 messages, chunks of S/3, each rank sends 0.6667 S

start                             chunk      0  1  2
                                  rank 0     1  1  1
                                  rank 1     1  1  1
                                  rank 2     1  1  1

step 1                            chunk      0  1  2
  0 → 1  adds 2                   rank 0     1  2  1
  1 → 2  adds 0                   rank 1     1  1  2
  2 → 0  adds 1                   rank 2     2  1  1

step 2                            chunk      0  1  2
  0 → 1  adds 1                   rank 0     ✓  2  1
  1 → 2  adds 2                   rank 1     1  ✓  2
  2 → 0  adds 0                   rank 2     2  1  ✓

✓ the sum that the op promises there; a number: how many ranks' parts are in it."""


def test_a_ring_in_words() -> None:
    assert explain("ring", 3, op="reduce_scatter").text() == RING_OF_THREE


def test_a_switch_and_a_file_in_words() -> None:
    assert "  switch → 2  copies 2 " in explain("nvls", 4).text()
    text = explain(str(FILES / "all_pairs_all_reduce.xml")).text()
    assert "all-reduce by all_pairs, 4 ranks" in text
    assert "  1 → 0  copies 0 to s0 " in text
    assert "chunk      0  1  2  3 s0 s1 s2" in text


def test_long_programs_are_summed_up() -> None:
    text = explain("ring", 40).text()
    assert "rank 0    0 of 40 chunks done" in text
    assert "and 14 more steps; -o FILE.html shows them all." in text


@pytest.mark.parametrize(("op", "algorithm"), sorted(ALGORITHMS))
def test_a_walk_ends_with_every_promise_kept(op: str, algorithm: str) -> None:
    steps = explain(algorithm, 6, op=op).walk
    ends = steps.stages[-1].after
    assert (ends.done[: steps.program.n] == steps.promised).all()
    state = final_state(steps.program)
    assert np.array_equal(ends.parts, (state > 0).sum(axis=2))
    assert sum(len(stage.moves) for stage in steps.stages) == len(steps.program)


def test_the_usual_op_is_all_reduce_where_there_is_one() -> None:
    assert explain("ring").walk.program.op == "all_reduce"
    assert explain("bruck").walk.program.op == "all_gather"
    assert explain("dissemination").walk.program.op == "barrier"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "rnig"}, "Did you mean 'ring'"),
        ({"algorithm": "tree", "op": "all_to_all"}, "Possible: ring, bruck, direct, pairwise"),
        ({"algorithm": "hierarchical", "n": 8, "per_node": 3}, "do not divide"),
        (
            {"algorithm": "ring", "n": 4000},
            "-n 4000: too many ranks to be looked at. Give at most 128",
        ),
        ({"algorithm": "tree", "pieces": 10**9}, "Give 4 ranks at most 16384 pieces"),
        ({"algorithm": "ring", "op": "all_to_all", "n": 128}, "too large to be explained"),
        ({"algorithm": "ring", "per_node": 2}, "ring knows no nodes"),
        ({"algorithm": "ring", "pieces": 2}, "all_reduce by ring is not cut into pieces"),
        ({"algorithm": "ring", "n": 0}, "among 0 members"),
        ({"algorithm": "absent.xml"}, "no such file"),
        ({"algorithm": str(FILES / "ring_all_reduce.xml"), "root": 1}, "stand in the file"),
        ({"algorithm": str(FILES / "ring_all_reduce.xml"), "n": 8}, "is for 4 ranks, not 8"),
        ({"algorithm": str(FILES / "ring_all_reduce.xml"), "op": "reduce"}, "not reduce"),
    ],
)
def test_what_cannot_be_explained_is_said(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        explain(**arguments)


def test_a_circle_for_a_ring_levels_for_a_tree_rows_for_nodes() -> None:
    ring = positions(program("all_reduce", "ring", 8))
    assert all(((x - 0.5) ** 2 + (y - 0.5) ** 2) ** 0.5 == pytest.approx(0.5) for x, y in ring)
    tree = positions(program("broadcast", "binomial", 8))
    assert [round(y * 3) for _, y in tree] == [0, 1, 1, 2, 1, 2, 2, 3]
    rows = positions(program("all_reduce", "hierarchical", 8, per_node=4), per_node=4)
    assert [y for _, y in rows] == [0] * 4 + [1] * 4
    switch = positions(program("all_reduce", "nvls", 6))[-1]
    assert switch == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("n", [4, 7, 8, 13])
@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "reduce"])
def test_a_double_tree_is_drawn_as_two_trees(op: str, n: int) -> None:
    made = explain("double_tree", n, op=op)
    shown = views(made.walk)
    room = frame(made.walk.program, shown)
    assert [text for _, _, text in room.titles] == ["tree 1", "tree 2"]
    assert len(room.spots) == shown.spots == 2 * n
    assert sorted(shown.places[0] + shown.places[1]) == np.flatnonzero(made.walk.bare).tolist()
    moved: set[tuple[int, int]] = set()
    for stage in made.walk.stages:
        parts = shown.moves(stage.moves)
        moved |= {(min(a, b), max(a, b)) for a, b, _ in parts}
        # Nothing is lost or drawn twice: what the trees carry is what the step moves.
        assert sum(len(move.places) for *_, move in parts) == sum(
            len(move.places) for move in stage.moves
        )
    assert len(moved) == 2 * (n - 1)  # the edges of two trees
    assert all((a < n) == (b < n) for a, b in moved)
    assert made.html().count('"tree 2"') == 2  # on wide and on narrow pages
    assert made.svg().count(">tree 2<") == len(made.walk.stages) + 1


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving_doubling", "nvls"])
def test_other_algorithms_have_one_view(algorithm: str) -> None:
    assert len(views(explain(algorithm, 8).walk).places) == 1


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "double_tree", "hierarchical", "nvls", "nvls_tree"]
)
def test_cards_never_overlap(algorithm: str, n: int, narrow: bool) -> None:
    made = explain(algorithm, n)
    shown = views(made.walk, per_node=made.per_node)
    room = frame(made.walk.program, shown, per_node=made.per_node, narrow=narrow)
    for i, (xa, ya) in enumerate(room.spots):
        assert room.card.width / 2 <= xa <= room.width - room.card.width / 2
        assert room.card.height / 2 <= ya <= room.height - room.card.height / 2
        for xb, yb in room.spots[:i]:
            apart = abs(xa - xb) >= room.card.width or abs(ya - yb) >= room.card.height
            assert apart, (i, algorithm)


@pytest.mark.parametrize("algorithm", ["ring", "double_tree", "nvls", "torus", "nvls_tree"])
def test_a_strip_has_a_panel_per_step_and_an_arrow_per_message(algorithm: str) -> None:
    made = explain(algorithm, 8)
    root = ET.fromstring(made.svg())
    words = [text.text for text in root.iter(f"{SVG}text")]
    panels = [w for w in words if w == "start" or re.fullmatch(r"step \d+", w or "")]
    assert len(panels) == len(made.walk.stages) + 1
    arrows = [p for p in root.iter(f"{SVG}path") if "Q" in p.get("d", "")]
    assert len(arrows) == len(made.walk.program)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_holds_the_same_pictures() -> None:
    made = explain("bruck", 5, op="all_gather")
    data = data_of(made.html())
    assert len(data["steps"]) == len(made.walk.stages)
    cells = [[list(cell) for cell in actor] for actor in data["start"]]
    for step, stage in zip(data["steps"], made.walk.stages, strict=True):
        for actor, cell, *held in step["changes"]:
            cells[actor][cell] = held
        now = stage.after
        for actor in range(5):
            for place in range(5):
                assert cells[actor][place] == [
                    now.chunk[actor, place], now.parts[actor, place], now.done[actor, place]
                ]  # fmt: skip


def test_a_page_needs_nothing_else_and_is_the_same_every_time() -> None:
    page = explain("ring", 4).html()
    assert page == explain("ring", 4).html()
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "@" not in re.sub(r"@media[^{]*", "", page)


def test_names_from_files_stay_text(tmp_path: Path) -> None:
    hostile = "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;b&gt;"
    path = tmp_path / "hostile.xml"
    text = (FILES / "ring_all_reduce.xml").read_text()
    path.write_text(text.replace("ring_two_channels", hostile))
    made = explain(str(path))
    for drawn in (made.html(), made.svg()):
        assert "<script>alert" not in drawn
        assert "<b>" not in drawn
    ET.fromstring(made.svg())


def test_files_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = explain("ring", 4)
    for suffix in (".html", ".svg", ".txt"):
        made.save(tmp_path / f"ring{suffix}")
    assert (tmp_path / "ring.txt").read_text() == made.text()
    with pytest.raises(ScenarioError, match="write .html, .svg or .txt"):
        made.save(tmp_path / "ring.pdf")
    with pytest.raises(ScenarioError, match="too many for a strip"):
        explain("ring", 64).save(tmp_path / "long.svg")
    monkeypatch.setattr(sys.modules["commsim.charts.explain.page"], "_MOST_CHANGES", 100)
    with pytest.raises(ScenarioError, match="too many for a page"):
        explain("ring", 8).save(tmp_path / "large.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ring.html", "ring.svg", "ring.txt"]


def test_places_of_a_program_are_all_shown() -> None:
    steps = walk(program("all_reduce", "ring", 4))
    assert steps.bare.tolist() == [True] * 4


@pytest.mark.share(0.5)
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("width", [380, 1400])
def test_the_page_plays_steps_and_fits(browser: Any, tmp_path: Path, width: int) -> None:
    path = tmp_path / "ring.html"
    explain("ring", 4).save(path)
    page = browser.new_page(bypass_csp=True, viewport={"width": width, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
    page.goto(path.as_uri())
    assert page.inner_text("#count") == "start"
    page.select_option("#speed", "4")
    page.click("#play")
    page.wait_for_function("document.querySelector('#count').textContent == 'step 6 of 6'")
    page.wait_for_function("document.querySelector('#play').textContent == 'Play'")
    page.keyboard.press("Home")
    assert page.inner_text("#count") == "start"
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#count") == "step 5 of 6"
    assert page.locator("#moves li").all_inner_texts() == [
        "0 → 1 copies 0", "1 → 2 copies 1", "2 → 3 copies 2", "3 → 0 copies 3",
    ]  # fmt: skip
    assert page.locator("#stage path[marker-end]").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
    page.close()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_frame_that_is_not_laid_out_yet_complains_of_nothing(
    browser: Any, tmp_path: Path
) -> None:
    explain("tree", 4).save(tmp_path / "page.html")
    frame = "<iframe id=f src=page.html style='display:none;width:600px;height:400px'></iframe>"
    (tmp_path / "outer.html").write_text(frame)
    page = browser.new_page(bypass_csp=True)
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "outer.html").as_uri())
    inner = page.frames[1]
    inner.wait_for_function("document.getElementById('stage')")
    page.evaluate("document.getElementById('f').style.display = 'block'")
    inner.wait_for_function("document.getElementById('stage').getAttribute('viewBox')")
    assert "NaN" not in inner.evaluate("document.getElementById('stage').getAttribute('viewBox')")
    assert complaints == []
    page.close()


def test_the_shares_of_steps_are_the_textbooks() -> None:
    for n in (3, 4, 8):
        ring = step_shares(walk(program("all_reduce", "ring", n)))
        assert ring == pytest.approx([1 / n] * (2 * (n - 1)))
    halving = step_shares(walk(program("all_reduce", "halving_doubling", 8)))
    assert halving == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 8, 1 / 4, 1 / 2])
    assert sum(step_shares(walk(program("broadcast", "binomial", 8)))) == pytest.approx(3)


@pytest.mark.parametrize(("names", "suffix"), [(("ring", "tree"), ".svg"), (("ring",), ".csv")])
def test_several_stand_on_a_page_or_in_text(
    tmp_path: Path, names: tuple[str, ...], suffix: str
) -> None:
    with pytest.raises(ScenarioError, match="html"):
        save_together([explain(name, 4) for name in names], tmp_path / f"a{suffix}")
    save_together([explain(name, 4) for name in names], tmp_path / "a.txt")
    assert all(f"by {name}" in (tmp_path / "a.txt").read_text() for name in names)


@pytest.mark.share(0.4)
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("width", "theme"), [(380, "light"), (1400, "dark"), (2560, "light")])
def test_algorithms_play_side_by_side_on_one_clock(
    browser: Any, tmp_path: Path, width: int, theme: str
) -> None:
    save_together([explain("ring", 4), explain("tree", 4)], tmp_path / "page.html")
    complaints: list[str] = []
    page = browser.new_page(
        bypass_csp=True, viewport={"width": width, "height": 900}, color_scheme=theme
    )
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelectorAll('.panel[data-ready]').length === 2")
    assert page.inner_text("#verdict").startswith("all-reduce, 4 MiB: ring is ")
    page.evaluate("document.getElementById('size').value = 4")
    page.evaluate("document.getElementById('size').dispatchEvent(new Event('input'))")
    assert page.inner_text("#verdict").startswith("all-reduce, 64 B: tree is ")
    ring, tree = page.frames[1], page.frames[2]
    page.locator(".panel").nth(0).locator(".steps span").nth(2).click()
    ring.wait_for_function("document.getElementById('count').textContent === 'step 3 of 6'")
    assert tree.inner_text("#moves li") != "" or tree.evaluate("at") in (2, 3)
    times = page.locator(".panel .steps span").evaluate_all("all => all.map(one => one.title)")
    assert times[0].startswith("step 1: 1 ")
    clipped = """all => all.filter(one =>
        one.contentDocument.documentElement.scrollHeight > one.clientHeight + 1).length"""
    wait_until_drawn(page)
    assert page.locator("iframe").evaluate_all(clipped) == 0
    assert [pair for frame in page.frames for pair in frame.evaluate(OVERLAPS)] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
    page.close()


@pytest.mark.parametrize(
    ("algorithm", "more", "refused"),
    [
        ("ring", {"n": 128}, ""), ("ring", {"n": 129}, "too many ranks"),
        ("tree", {"pieces": 2**14}, "too large to be explained"),
        ("tree", {"pieces": 2**14 + 1}, "too many to be looked at"),
        # The n ** 2 pieces of an all-to-all on n ranks, n counters each: 2 ** 24 on 64 ranks.
        ("pairwise", {"n": 64, "op": "all_to_all"}, ""),
        ("pairwise", {"n": 65, "op": "all_to_all"}, "too large to be explained"),
    ],
)  # fmt: skip
def test_how_much_can_be_looked_at(
    algorithm: str, more: dict[str, Any], refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["commsim.study.explain.explain"]
    monkeypatch.setattr(module, "walk", lambda made, *_: made)
    monkeypatch.setattr(module, "_refuse_unused", lambda *_: None)
    if not refused:
        explain(algorithm, **more)
        return
    with pytest.raises(ScenarioError, match=refused):
        explain(algorithm, **more)


def test_files_and_settings_that_an_algorithm_has_no_use_for() -> None:
    file = str(FILES / "ring_all_reduce.xml")
    for more in ({"root": 1}, {"pieces": 2}, {"per_node": 2}):
        with pytest.raises(ScenarioError, match="stand in the file"):
            explain(file, **more)  # type: ignore[arg-type]
    assert explain(file, 4, op="all_reduce").walk.program.n == 4
    assert explain("hierarchical", 8, per_node=2).per_node == 2
    assert explain("hierarchical", 8).per_node == default_per_node(8)
    assert explain("ring", 8).per_node == 0
    assert explain("tree", pieces=2).walk.program.n == 4
    direct = explain("direct", 4, op="all_to_all_v", pieces=2).walk.program
    assert len(direct.share) == 16  # a piece from each to each
