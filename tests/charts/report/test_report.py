"""Facts of the report: its sections, its words, its numbers, and what the viewer gets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.report_pages import HOSTILE, four_ranks, hostile, ranks, scenario
from msgspec.structs import replace

from commsim.charts.report import (
    ReportFacts,
    ReportSection,
    Residents,
    report_page,
    write_report,
)
from commsim.charts.report.head_figures import figures
from commsim.charts.report.markup import BarPart, area, percent, stack, table
from commsim.charts.report.memory_part import memory_section
from commsim.charts.report.time_parts import breakdown_section, path_section
from commsim.charts.report.use_parts import bandwidth_section
from commsim.charts.report.write import page
from commsim.charts.theme import FAMILIES
from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.metrics import measure
from commsim.metrics.measure import CollectiveMetrics, RankTimes
from commsim.study.run import Result, run


def text_of(result: Result) -> str:
    return "".join(report_page(result.facts()))


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', page)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("1f1b", "breakdown bubble timeline limits waits path notes again"),
        ("quickstart",
         "breakdown timeline limits bandwidth links topology memory path notes again"),
        ("ring-all-reduce", "breakdown timeline limits bandwidth links topology path notes again"),
        ("p2p-nonblocking",
         "breakdown timeline limits bandwidth links topology path notes again"),
    ],
)  # fmt: skip
def test_a_page_has_the_sections_that_its_run_has(name: str, wanted: str) -> None:
    assert sections(text_of(scenario(name))) == wanted.split()


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    result = scenario("ddp")
    for name in ("a.html", "b.html"):
        result.report(tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.html", "b.html"]


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    text = text_of(scenario("quickstart"))
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
    assert "@import" not in text
    assert "fetch(" not in text


def test_names_from_traces_stay_text() -> None:
    timeline = hostile()
    facts = ReportFacts(HOSTILE, timeline, measure(timeline), (HOSTILE,), command=HOSTILE)
    text = "".join(report_page(facts))
    assert "<script>alert" not in text
    held = re.search(r'id="viewer-facts">(.*?)</script>', text, re.DOTALL)
    assert held is not None
    assert any("<script>alert" in word for word in json.loads(held[1])["words"])


def test_an_empty_run_has_a_page_too() -> None:
    build = GraphBuilder()
    build.lane(0)
    timeline = simulate(build.build(), None, library=Ideal())
    text = "".join(report_page(ReportFacts("nothing", timeline, measure(timeline))))
    assert sections(text) == []
    assert text.endswith("</html>\n")


def test_a_page_that_cannot_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("commsim.charts.report.write.pack", broken)
    with pytest.raises(ScenarioError, match="disk full"):
        write_report(scenario("1f1b").facts(), tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []


def test_the_headline_is_the_title_of_the_page() -> None:
    facts = scenario("1f1b").facts()
    assert facts.headline.startswith(
        "1F1B, 4 stages × 8 microbatches: 33\N{NO-BREAK SPACE}ms, 72.7%"
    )
    assert facts.headline in "".join(report_page(facts))


def test_the_head_shows_what_is_known() -> None:
    labels = {one.label: one for one in figures(scenario("quickstart").facts())}
    assert labels["memory of the fullest GPU"].remark == "fits"
    assert labels["step time"].value.endswith(" ms")
    assert "bubble fraction" not in labels
    assert "bubble fraction" in {one.label for one in figures(scenario("1f1b").facts())}


def test_a_replay_says_how_far_it_is() -> None:
    facts = four_ranks().facts()
    before = replace(facts.metrics, step_time_s=facts.metrics.step_time_s / 1.1)
    held = replace(facts, measured=(facts.timeline, before))
    assert figures(held)[0].remark.endswith(", +10.0%")
    body = breakdown_section(held)
    assert body is not None
    assert body.body.count(", measured") == body.body.count(", replayed") == 4
    assert '"runs":["measured","replayed"]' in "".join(report_page(held))


def rows_of(*times: RankTimes) -> list[tuple[str, list[str]]]:
    facts = scenario("1f1b").facts()
    section = breakdown_section(replace(facts, metrics=replace(facts.metrics, ranks=times)))
    assert section is not None
    lines = re.findall(r"<tr><td>(.*?)</td>.*?</tr>", section.body)
    return [(line, re.findall(r"(\d+\.\d%)<", section.body)) for line in lines]


def test_neighbours_that_read_the_same_share_a_row() -> None:
    assert [label for label, _ in rows_of(*ranks(0.5, 0.5, 0.5, 0.25))] == [
        "ranks 0 to 2",
        "rank 3",
    ]
    assert [label for label, _ in rows_of(*ranks(0.5, 0.5, multiplicity=4))] == [
        "ranks 0 to 1, each ×4"
    ]


def test_many_ranks_are_shown_by_examples_of_both_ends() -> None:
    labels = [label for label, _ in rows_of(*ranks(*(k / 100 for k in range(100))))]
    assert len(labels) == 16
    assert (labels[0], labels[-1]) == ("rank 0", "rank 99")


def test_stages_show_the_mean_of_their_ranks() -> None:
    first, second = ranks(0.2, stage=0)[0], ranks(0.6, multiplicity=3, stage=0)[0]
    other = replace(ranks(0.9, stage=1)[0], rank=9)
    (label, shares), (after, _) = rows_of(first, second, other)
    assert (label, after) == ("stage 0", "stage 1")
    assert shares[0] == "50.0%"  # (0.2 + 3 * 0.6) / 4


def test_the_critical_path_adds_up_by_kind_and_op() -> None:
    section = path_section(scenario("1f1b").facts())
    assert section is not None
    assert "33 ms" in section.lead
    assert re.search(r"compute</td>.*?100\.0%.*?33 ms", section.body, re.DOTALL)


def test_groups_of_one_kind_share_a_row_in_a_long_table() -> None:
    uses = tuple(
        CollectiveMetrics("all_reduce", f"tp{k}", 2, 10, 3.0, 1.0, 0.5, 100.0 * (k + 1))
        for k in range(9)
    )
    facts = scenario("ddp").facts()
    long = bandwidth_section(replace(facts, metrics=replace(facts.metrics, collectives=uses)))
    assert long is not None
    assert "tp (9 groups)" in long.body
    assert "500 GB/s" in long.body  # the mean of 100, ..., 900 over equal transfers
    short = bandwidth_section(replace(facts, metrics=replace(facts.metrics, collectives=uses[:8])))
    assert short is not None
    assert "groups)" not in short.body


def test_memory_is_drawn_over_what_stays() -> None:
    facts = scenario("quickstart").facts()
    lanes = len(facts.timeline.graph.lane_rank)
    most = int(facts.timeline.memory.held.max())
    room = Residents(np.full(lanes, most), np.full(lanes, 4 * most))
    section = memory_section(replace(facts, resident=room))
    assert section is not None
    assert section.lead.startswith("Full height is 50% of a GPU's memory.")
    assert '<rect class="base" x="0" y="50" width="1000" height="50"/>' in section.body
    heights = [float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)", section.body)]
    assert min(heights) == pytest.approx(0)  # resident and activations: half of the capacity
    tight = Residents(np.full(lanes, most), np.full(lanes, most))
    over = memory_section(replace(facts, resident=tight))
    assert over is not None
    assert over.lead.startswith("Full height is 200% of a GPU's memory.")


def test_areas_are_steps() -> None:
    drawn = area(np.array([0.0, 0.25, 0.5, 1.0]), np.array([0.5, 0.5, 1.0]))
    assert 'd="M0 100L0 50H500L500 0H1000V100Z"' in drawn


def test_bars_and_tables_escape_and_add_up() -> None:
    bar = stack([BarPart("compute", 0.25, HOSTILE), BarPart("idle", 0.0, "nothing")])
    assert "width:25%" in bar
    assert bar.count("<span") == 1
    assert "<script>" not in bar
    made = table([HOSTILE, "n"], [["x", "1"]], right=[1])
    assert '<td class="right" data-label="n">1</td>' in made
    assert "<script>" not in made
    assert (percent(0.1234), percent(0.0001), percent(0.0)) == ("12.3%", "<0.1%", "0.0%")


def test_a_section_without_a_neighbour_is_wide() -> None:
    def laid(*wide: bool) -> list[bool]:
        made = [ReportSection(f"s{k}", "t", "", "", wide=one) for k, one in enumerate(wide)]
        text = "".join(page("t", "n", made))
        return ['class="wide"' in one for one in re.findall(r"<section [^>]*>", text)]

    assert laid(False, True) == [True, True]
    assert laid(False, False, True) == [False, False, True]
    assert laid(False, False, False) == [False, False, True]
    assert laid(True, False) == [True, True]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours [WCAG 2.2, 1.4.3]."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(theme: str) -> None:
    text = text_of(scenario("1f1b"))
    rule = re.search(
        r":root \{(.*?)\}" if theme == "light" else r':root\[data-theme="dark"\] \{(.*?)\}',
        text, re.DOTALL,
    )  # fmt: skip
    assert rule is not None
    colours: dict[str, Any] = dict(re.findall(r"--(\w+): (#\w{6})", rule[1]))
    for ink in ("ink", "muted", "focus"):
        for ground in ("paper", "card", "head"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def test_numbers_can_be_read_on_their_boxes() -> None:
    for family in FAMILIES:
        assert contrast(family.fill, family.ink) >= 3.8, family.label


def section_of(text: str, key: str) -> str:
    found = re.search(rf'<section id="{key}".*?</section>', text, re.DOTALL)
    assert found is not None
    return found[0]


def test_links_that_do_the_same_share_a_row_with_their_figures() -> None:
    result = scenario("quickstart")
    body = section_of(text_of(result), "links")
    rows = re.findall(r"<tr><td data-label=.link.>(.*?)</td>(.*?)</tr>", body)
    first = result.metrics.links[0]
    assert rows[0][0].startswith(first.name.replace(">", "&gt;"))
    assert "and 31 equal" in rows[0][0]
    assert f'data-label="mean">{first.utilization:.1%}<' in rows[0][1]
    names = [row[0].partition(" <")[0] for row in rows]
    assert len(set(names)) == len(names)


def test_the_use_of_a_link_is_drawn_to_scale() -> None:
    """A transfer that fills a link for part of the time is an area of that share."""
    facts = scenario("gloo-all-reduce").facts()
    body = section_of("".join(report_page(facts)), "links")
    drawn = re.search(r'k-network" d="M0 100L0 ([\d.]+)H1000V100Z"', body)
    assert drawn is not None
    assert 100 - float(drawn[1]) == pytest.approx(100 * facts.metrics.links[0].utilization, abs=0.1)


def test_the_topology_colours_what_is_used() -> None:
    facts = scenario("gloo-all-reduce").facts()
    body = section_of("".join(report_page(facts)), "topology")
    lines = re.findall(r'<path class="use(\d)" d="[^"]*"><title>(.*?)</title>', body)
    busy = [name for use, name in lines if use == "5"]
    assert len(busy) == 4
    assert all("nic0" in name and "switch" in name and "99." in name for name in busy)
    assert {use for use, name in lines if "cpu0-&gt;cpu1" in name} == {"0"}
    assert body.count('class="frame"') == 4


def test_the_command_runs_it_again() -> None:
    result = run("1f1b", ["workload.pipeline.microbatches=4"])
    assert result.command == "commsim run 1f1b --set workload.pipeline.microbatches=4"
    body = section_of(text_of(result), "again")
    assert "<pre>commsim run 1f1b --set workload.pipeline.microbatches=4</pre>" in body


def test_the_drawings_of_links_end_above_the_highest() -> None:
    facts = scenario("quickstart").facts()
    body = section_of(text_of(scenario("quickstart")), "links")
    peak = max(float(one) for one in re.findall(r'data-label="peak">([\d.]+)%', body))
    full = re.search(r"Full height is (\d+)% of what a link can", body)
    assert full is not None
    assert int(full[1]) in (5, 10, 25, 50, 100)
    assert int(full[1]) / 2.5 <= peak <= int(full[1])
    tops = [100 - float(y) for y in re.findall(r"L[\d.]+ ([\d.]+)", body)]
    assert max(tops) == pytest.approx(100 * peak / int(full[1]), abs=0.5)
    assert facts.metrics.links


def test_a_replay_shows_both_bandwidths() -> None:
    facts = four_ranks().facts()
    slower = tuple(replace(use, busbw_gbs=1.5) for use in facts.metrics.collectives)
    held = replace(facts, measured=(facts.timeline, replace(facts.metrics, collectives=slower)))
    made = bandwidth_section(held)
    assert made is not None
    assert made.body.count("dp0, measured") == made.body.count("dp0, replayed") == 1
    assert "1.5 GB/s" in made.body


def test_a_lane_of_which_no_memory_is_known_is_drawn_too() -> None:
    facts = scenario("quickstart").facts()
    memory = facts.timeline.memory
    kept = memory.lane != 0
    fewer = replace(memory, lane=memory.lane[kept], time=memory.time[kept], held=memory.held[kept])
    section = memory_section(replace(facts, timeline=replace(facts.timeline, memory=fewer)))
    assert section is not None
    assert section.body.count("<svg") == 2
