"""Facts of the figures: what is drawn, what is said, and that names from traces stay text."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers.report_pages import HOSTILE, MS, scenario
from helpers.star import Star

from commsim.charts import busbw, gantt, gantt_svg, link_use, save_figure
from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.study.bench import bench
from commsim.timeline import Timeline


@cache
def ring_or_tree() -> dict[str, Any]:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    sizes = [2**k for k in range(10, 29, 6)]
    return bench(cluster, "all_reduce", sizes, algo="ring,tree", library="ideal").to_dict()


def hostile() -> Timeline:
    build = GraphBuilder()
    world = build.group(HOSTILE, range(2))
    for lane in range(2):
        build.lane(lane)
        build.compute(lane, MS * (lane + 1), name=HOSTILE)
        build.collective(lane, world, "all_reduce", 2**20, stream=HOSTILE, name=HOSTILE)
    return simulate(build.build(), Star(2), library=Ideal("ring"))


def boxes(figure: Any) -> int:
    """Count the boxes that stand for work: all bars but the first trace, the ground."""
    return sum(len(trace["x"]) for trace in figure.to_dict()["data"][1:])


def test_virtual_stages_share_a_row_in_two_shades_of_their_colour() -> None:
    """4 devices of 2 stages: half of the forwards of each row have the lighter blue."""
    result = scenario("interleaved")
    figure = gantt(result.timeline, metrics=result.metrics).to_dict()
    assert "4 stages × 2 virtual × 8 microbatches" in figure["layout"]["title"]["text"]
    for trace in figure["data"][1:]:
        shades = Counter(trace["marker"]["color"])
        assert sorted(shades.values()) == [32, 32]
    drawn = gantt_svg(result.timeline, metrics=result.metrics)
    assert all(drawn.count(f'fill="{shade}"') >= 32 for shade in shades)
    assert "4 stages × 8 microbatches" in gantt_svg(scenario("1f1b").timeline)
    assert isinstance(gantt(scenario("1f1b").timeline).to_dict()["data"][1]["marker"]["color"], str)


def test_a_pipeline_has_a_box_per_op_with_its_microbatch() -> None:
    result = scenario("1f1b")
    figure = gantt(result.timeline, metrics=result.metrics)
    assert boxes(figure) == 4 * 8 * 2
    data = figure.to_dict()
    texts = [text for trace in data["data"][1:] for text in trace["text"]]
    assert sorted(map(int, texts)) == sorted([m for m in range(8) for _ in range(8)])
    assert "1F1B, 4 stages" in data["layout"]["title"]["text"]
    assert "bubble 27.3%" in data["layout"]["title"]["subtitle"]["text"]
    assert data["data"][0]["name"] == "not computing"
    assert {t["marker"]["color"] for t in data["data"][1:]} == {"#4C78A8", "#F2A65A"}


def test_the_boxes_stand_where_the_spans_are() -> None:
    result = scenario("gpipe")
    forward = gantt(result.timeline).to_dict()["data"][1]
    assert sorted(set(forward["x"])) == [1.0]
    assert min(forward["base"]) == 0.0
    assert max(forward["base"]) == 6.0


@pytest.mark.parametrize("name", ["1f1b", "ddp", "quickstart", "p2p-nonblocking"])
def test_same_input_same_figure(name: str) -> None:
    timeline = scenario(name).timeline
    assert gantt(timeline).to_json() == gantt(timeline).to_json()
    assert link_use(timeline).to_json() == link_use(timeline).to_json()
    assert gantt_svg(timeline) == gantt_svg(timeline)


@pytest.mark.parametrize("name", ["1f1b", "ddp", "quickstart"])
def test_the_svg_is_wellformed_and_says_the_same(name: str) -> None:
    result = scenario(name)
    text = gantt_svg(result.timeline, metrics=result.metrics)
    root = ElementTree.fromstring(text)
    words = " ".join(node.text or "" for node in root.iter() if node.tag.endswith("text"))
    title = gantt(result.timeline, metrics=result.metrics).to_dict()["layout"]["title"]["text"]
    assert title.removeprefix("<b>").removesuffix("</b>") in words
    assert len(list(root.iter())) > 60


def test_names_from_traces_stay_text() -> None:
    timeline = hostile()
    assert "<script>" not in gantt_svg(timeline)
    ElementTree.fromstring(gantt_svg(timeline))
    for figure in (gantt(timeline), link_use(timeline)):
        assert "<script>" not in figure.to_json()


def test_the_busbw_chart_marks_the_crossover() -> None:
    figure = busbw(ring_or_tree()).to_dict()
    names = [trace["name"] for trace in figure["data"] if trace.get("showlegend", True)]
    assert names == ["bound (proven)", "bound, switches adding", "ring", "tree"]
    crossover = ring_or_tree()["crossovers"][0]
    assert figure["layout"]["shapes"][0]["x0"] == crossover["size"]
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert "ring is fastest from" in figure["layout"]["title"]["text"]


def test_link_use_never_exceeds_the_link() -> None:
    result = scenario("quickstart")
    figure = link_use(result.timeline).to_dict()
    first = result.metrics.links[0].name.replace(">", "&gt;")
    assert figure["data"][0]["name"].startswith(f"{first} and ")
    tops = [max(trace["y"]) for trace in figure["data"]]
    assert 0.5 < max(tops) <= 1 + 1e-9


def test_a_run_without_links_says_so() -> None:
    assert "No link" in link_use(scenario("1f1b").timeline).to_dict()["layout"]["title"]["text"]


def test_a_page_is_whole_and_reproducible(tmp_path: Path) -> None:
    pages = []
    for name in ("a.html", "b.html"):
        save_figure(gantt(scenario("1f1b").timeline), tmp_path / name)
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]
    assert b"<script src=" not in pages[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"\.html"):
        save_figure(gantt(scenario("1f1b").timeline), tmp_path / "a.gif")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<svg")]
)
def test_kaleido_draws_pictures(tmp_path: Path, suffix: str, start: bytes) -> None:
    pytest.importorskip("kaleido")
    path = tmp_path / f"a{suffix}"
    save_figure(busbw(ring_or_tree()), path)
    assert path.read_bytes().startswith(start)
    assert len(list(tmp_path.iterdir())) == 1
