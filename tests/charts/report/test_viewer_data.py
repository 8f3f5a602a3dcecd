"""What the report's viewer gets: columns of spans, lanes, rows and the critical path."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest
from helpers.many_spans import many_spans
from helpers.optional import present
from helpers.report_pages import MS, four_ranks, hostile, scenario
from helpers.star import Star
from hypothesis import given
from hypothesis import strategies as st

from commsim.charts.report import (
    ShownRun,
)
from commsim.charts.report.columns import column
from commsim.charts.report.pack import _distinct, pack
from commsim.charts.theme import FAMILIES
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.study.run import run
from commsim.timeline import Timeline


def unpacked(elements: str) -> dict[str, np.ndarray]:
    """Read the columns of a page as the browser does."""
    found: dict[str, np.ndarray] = {}
    for name, planes, packed in re.findall(
        r'data-column="(\w+)" data-planes="(\d)">([^<]*)</script>', elements
    ):
        data = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
        parts = data.reshape(int(planes), -1).astype(np.int64)
        found[name] = (parts << (8 * np.arange(len(parts)))[:, None]).sum(axis=0)
    return found


@given(st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=60))
def test_a_column_comes_back_as_it_was(values: list[int]) -> None:
    found = unpacked("".join(column("x", np.array(values, np.int64))))
    assert found["x"].tolist() == values


def test_a_long_column_is_whole() -> None:
    values = np.random.default_rng(1).integers(0, 2**24, 900_000)
    pieces = list(column("x", values))
    assert len(pieces) > 4  # not one string of many megabytes
    assert np.array_equal(unpacked("".join(pieces))["x"], values)


@pytest.mark.parametrize("values", [[-1], [2**53]])
def test_a_column_refuses_what_a_browser_would_round(values: list[int]) -> None:
    with pytest.raises(ValueError, match=r"0\.\.2\*\*53"):
        list(column("x", np.array(values)))


@pytest.mark.parametrize("name", ["1f1b", "quickstart", "p2p-nonblocking"])
def test_the_viewer_gets_every_span_that_takes_time(name: str) -> None:
    timeline = scenario(name).timeline
    facts, elements = pack([ShownRun("", timeline)])
    columns = unpacked("".join(elements))
    begin = np.where(timeline.arrive < 0, timeline.start, timeline.arrive)
    some = timeline.end > begin
    assert facts["spans"] == int(some.sum())
    rows = np.repeat(np.arange(len(facts["counts"])), facts["counts"])
    starts = np.zeros(len(rows), np.int64)
    for row in range(len(facts["counts"])):
        starts[rows == row] = np.cumsum(columns["begin"][rows == row])
    lane_of = {row: lane["rank"] for lane in facts["lanes"] for row in lane["rows"]}
    zero, tick = int(begin[some].min()), facts["tick"]
    ranks = timeline.graph.lane_rank[timeline.lane]
    wanted = sorted(
        zip(
            ranks[some].tolist(), ((begin[some] - zero) // tick).tolist(),
            ((timeline.end[some] - zero) // tick).tolist(), strict=True,
        )
    )  # fmt: skip
    ends = starts + columns["wait"] + columns["length"]
    shown = zip(
        [lane_of[row] for row in rows.tolist()], starts.tolist(), ends.tolist(), strict=True
    )
    assert sorted(shown) == wanted


def test_what_a_span_is_comes_along() -> None:
    timeline = scenario("1f1b").timeline
    facts, elements = pack([ShownRun("", timeline)])
    columns = unpacked("".join(elements))
    words = [facts["words"][facts["meanings"][what][0]] for what in columns["what"].tolist()]
    numbers = columns["microbatch"] - 1
    assert sorted(words) == sorted(timeline.graph.op_name(op) for op in timeline.op.tolist())
    assert all(word[1:] == str(m) for word, m in zip(words, numbers.tolist(), strict=True))
    looks = {FAMILIES[facts["meanings"][what][1]].label for what in columns["what"].tolist()}
    assert looks == {"forward", "backward"}


def test_members_of_a_collective_share_a_number_and_its_bus_factor() -> None:
    timeline = four_ranks().timeline
    facts, elements = pack([ShownRun("", timeline)])
    columns = unpacked("".join(elements))
    numbers = columns["instance"][columns["instance"] > 0]
    assert set(np.bincount(numbers)[1:].tolist()) == {4}  # ranks of the group
    meanings = [facts["meanings"][what] for what in columns["what"][columns["instance"] > 0]]
    assert {row[5] for row in meanings} == {1.5}  # 2(n-1)/n
    assert {facts["words"][row[3]] for row in meanings} == {"all-reduce"}


def test_two_runs_are_on_one_axis() -> None:
    one, two = scenario("1f1b").timeline, scenario("gpipe").timeline
    facts, elements = pack([ShownRun("a", one), ShownRun("b", two)])
    assert facts["runs"] == ["a", "b"]
    assert facts["spans"] == len(one) + len(two)
    assert len(unpacked("".join(elements))["begin"]) == facts["spans"]
    assert facts["reach"] * facts["tick"] >= max(one.end_time, two.end_time)
    assert {lane["run"] for lane in facts["lanes"]} == {0, 1}


def test_ticks_are_fine_enough() -> None:
    facts, _ = pack([ShownRun("", scenario("quickstart").timeline)])
    assert 2**32 / 10 < facts["reach"] < 2**32
    small, _ = pack([ShownRun("", hostile())])
    assert small["tick"] == 1


def test_a_million_spans_stay_small() -> None:
    """The full size is in benchmarks; the bytes per span are those of a small one."""
    timeline = many_spans(50_000)
    facts, elements = pack([ShownRun("", timeline)])
    size = sum(map(len, elements)) + len(json.dumps(facts))
    assert facts["spans"] == len(timeline)
    assert size < 10 * len(timeline)


def test_rows_of_the_viewer_overlap_no_more_than_their_streams_do() -> None:
    facts, elements = pack([ShownRun("", four_ranks().timeline)])
    columns = unpacked("".join(elements))
    rows = np.repeat(np.arange(len(facts["counts"])), facts["counts"])
    for row in range(len(facts["counts"])):
        mine = rows == row
        begin = np.cumsum(columns["begin"][mine])
        end = begin + columns["wait"][mine] + columns["length"][mine]
        assert np.all(begin[1:] >= end[:-1] - 1)  # a tick of rounding


def test_the_critical_path_of_the_viewer_is_that_of_the_metrics() -> None:
    result = scenario("1f1b")
    facts, elements = pack([ShownRun("", result.timeline)])
    columns = unpacked("".join(elements))
    words = [facts["words"][facts["meanings"][w][0]] for w in columns["what"].tolist()]
    assert [words[i] for i in facts["paths"][0]] == [p.op for p in result.metrics.critical_path]


def test_lanes_know_their_node_stage_and_replica() -> None:
    result = run("quickstart", ["engine.fold=off"])
    facts, _ = pack([ShownRun("", result.timeline, present(result.cluster).node_of)])
    assert [lane["node"] for lane in facts["lanes"]] == [0] * 8 + [1] * 8
    assert [lane["replica"] for lane in facts["lanes"]] == list(range(16))
    staged, _ = pack([ShownRun("", scenario("1f1b").timeline)])
    assert [lane["stage"] for lane in staged["lanes"]] == [0, 1, 2, 3]
    assert {lane["node"] for lane in staged["lanes"]} == {-1}


def mixed() -> Timeline:
    """Two ranks: an all-reduce while they compute, and a message, each on a stream of its own."""
    build = GraphBuilder()
    world = build.group("world", range(2))
    for lane in range(2):
        build.lane(lane)
        build.compute(lane, 5 * MS, name="work")
        build.collective(lane, world, "all_reduce", 2**24, stream="a")
    build.send(0, 1, 2**24, group=world, stream="b")
    build.recv(1, 0, 2**24, group=world, stream="b")
    return simulate(build.build(), Star(2), library=Ideal("ring"))


def test_messages_and_collectives_have_numbers_of_their_own() -> None:
    facts, elements = pack([ShownRun("", mixed())])
    columns = unpacked("".join(elements))
    ops = {
        number: {
            facts["meanings"][what][3] for what in columns["what"][columns["instance"] == number]
        }
        for number in set(columns["instance"].tolist()) - {0}
    }
    assert sorted(map(len, ops.values())) == [1, 2]
    assert {-2, -3} in ops.values()
    assert facts["instances"] == 2


def test_streams_that_overlap_have_rows_of_their_own() -> None:
    apart, _ = pack([ShownRun("", mixed())])
    assert {len(lane["rows"]) for lane in apart["lanes"]} == {3}
    build = GraphBuilder()
    world = build.group("world", range(2))
    for lane in range(2):
        build.lane(lane)
        first = build.collective(lane, world, "all_reduce", 2**24, stream="a")
        build.collective(lane, world, "all_gather", 2**24, stream="b", after=[first])
    after = simulate(build.build(), Star(2), library=Ideal("ring"))
    together, _ = pack([ShownRun("", after)])
    assert {len(lane["rows"]) for lane in together["lanes"]} == {2}


@given(
    st.integers(1, 12).flatmap(
        lambda rows: st.lists(
            st.lists(st.integers(-2, 2**31), min_size=rows, max_size=rows), min_size=1, max_size=5
        )
    )
)
def test_distinct_combinations_are_told_apart(columns: list[list[int]]) -> None:
    first, row = _distinct(np.array(column, np.int64) for column in columns)
    whole = list(zip(*columns, strict=True))
    assert len(first) == len(set(whole))
    assert [whole[first[one]] for one in row.tolist()] == whole
