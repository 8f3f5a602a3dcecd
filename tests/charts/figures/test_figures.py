"""Facts of the plotly figures: what is drawn is what was measured, and it stays the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import TESTS
from helpers.star import Star

from commsim.charts import (
    bandwidth_matrix,
    breakdown,
    busbw,
    gantt,
    link_use,
    memory,
    one_above_other,
    save_page,
    scaling,
    topology,
    traffic_matrix,
)
from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal, LibrarySection, make_library
from commsim.study.bench import bench
from commsim.study.run import Result, run
from commsim.timeline import Timeline

MS = 10**9
HOSTILE = "<script>alert('x')</script>&amp;</script>"
KEPT = TESTS / "data" / "chart_snapshots.json"
SNAPSHOTS = json.loads(KEPT.read_text())


@cache
def scenario(name: str) -> Result:
    return run(name, ("engine.fold=off",))


def three_ranks() -> Timeline:
    """0 sends 4 MiB to 1 and 1 MiB to 2, 1 sends 2 MiB to 2; rank 0 holds memory meanwhile."""
    build = GraphBuilder()
    world = build.group("world", range(3))
    for lane in range(3):
        build.lane(lane)
    build.compute(0, 3 * MS, name="a", alloc=2**30)
    build.compute(0, 2 * MS, name="b", alloc=2**29)
    build.compute(0, 1 * MS, name="c", free=2**30 + 2**29)
    for source, target, size in ((0, 1, 4), (0, 2, 1), (1, 2, 2)):
        build.send(source, target, size * 2**20, group=world, stream=f"to {target}")
        build.recv(target, source, size * 2**20, group=world, stream=f"from {source}")
    return simulate(build.build(), Star(3), library=Ideal("ring"))


def all_ways() -> dict[str, Any]:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    sizes = [2**k for k in range(10, 30, 3)]
    return bench(cluster, "all_reduce", sizes, algo="all", proto="all", library="nccl").to_dict()


def results() -> list[dict[str, Any]]:
    rank = {"rank": 0, "stage": None}
    return [
        {"scenario": f"on {gpus}", "step_time_s": step, "tokens_per_s": None,
         "ranks": [{**rank, "multiplicity": gpus}]}
        for gpus, step in ((8, 1.0), (64, 1.25), (16, 1.0))
    ]  # fmt: skip


FIGURES: dict[str, Callable[[], Any]] = {
    "gantt": lambda: gantt(scenario("1f1b").timeline, metrics=scenario("1f1b").metrics),
    "breakdown": lambda: breakdown(scenario("p2p-blocking").metrics),
    "link_use": lambda: link_use(three_ranks()),
    "memory": lambda: memory(three_ranks()),
    "traffic_matrix": lambda: traffic_matrix(three_ranks()),
    "bandwidth_matrix": lambda: bandwidth_matrix(Cluster.preset("dgx-1v")),
    "scaling": lambda: scaling(results()),
    "topology": lambda: topology(Cluster.preset("dgx-1v", nodes=2)),
}


def digest(name: str) -> str:
    """Return a digest of a figure's JSON, but for plotly's own template."""
    figure = FIGURES[name]().to_dict()
    figure["layout"].pop("template", None)
    return hashlib.sha256(json.dumps(figure, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", list(FIGURES))
def test_the_figure_is_the_one_it_was(name: str) -> None:
    """Look at the picture before new digests are written: `python tests/charts/THIS_FILE`."""
    assert FIGURES[name]().to_json() == FIGURES[name]().to_json()
    assert digest(name) == SNAPSHOTS[name]


def test_bars_add_up_to_the_step() -> None:
    result = scenario("ddp")
    figure = breakdown(result.metrics).to_dict()
    sums = np.sum([trace["x"] for trace in figure["data"]], axis=0)
    assert sums == pytest.approx([result.metrics.step_time_s * 1e3] * 4)
    shares = {trace["name"]: trace["x"][0] for trace in figure["data"]}
    assert shares["compute"] == pytest.approx(result.metrics.ranks[0].compute_s * 1e3)


def test_a_bar_for_each_stage_where_ranks_are_stages() -> None:
    axis = breakdown(scenario("1f1b").metrics).to_dict()["layout"]["yaxis"]
    assert axis["ticktext"] == ["stage 0", "stage 1", "stage 2", "stage 3"]
    assert axis["range"][0] > axis["range"][1]  # the first on top


def test_a_thousand_ranks_are_thinned_and_said_so() -> None:
    metrics = scenario("ddp").metrics
    from msgspec.structs import replace

    many = replace(metrics, ranks=metrics.ranks * 250)
    figure = breakdown(many).to_dict()
    assert len(figure["data"][0]["x"]) == 64
    assert "64 of 1,000 ranks" in figure["layout"]["title"]["subtitle"]["text"]


def test_memory_steps_where_ops_take_and_give() -> None:
    (line,) = memory(three_ranks()).to_dict()["data"]
    assert line["line"]["shape"] == "hv"
    assert line["x"][:3] == [0.0, 3.0, 6.0]
    assert line["y"][:3] == [1.0, 1.5, 0.0]
    assert max(line["y"]) == 1.5
    assert "1.5 GiB on rank 0" in memory(three_ranks()).to_dict()["layout"]["title"]["text"]


def test_alike_ranks_are_one_line_of_memory() -> None:
    figure = memory(scenario("ddp").timeline).to_dict()
    assert [trace["name"] for trace in figure["data"]] == ["rank 0 and 3 equal"]


def test_the_matrix_holds_each_message_once() -> None:
    heat = traffic_matrix(three_ranks()).to_dict()["data"][0]
    assert [[cell and round(cell, 9) for cell in row] for row in heat["z"]] == [
        [None, 4.0, 1.0], [None, None, 2.0], [None, None, None],
    ]  # fmt: skip
    assert heat["text"][0][1] == "4 MiB"


def test_the_matrix_of_a_ring_is_its_neighbours() -> None:
    cluster = Cluster.preset("dgx-h100")
    build = GraphBuilder()
    world = build.group("world", range(8))
    for lane in range(8):
        build.collective(build.lane(lane), world, "all_reduce", 2**24, stream="comm")
    library = Ideal("ring")
    timeline = simulate(build.build(), cluster, library=library)
    heat = traffic_matrix(timeline, cluster=cluster, library=library).to_dict()["data"][0]
    sent = np.array([[cell or 0.0 for cell in row] for row in heat["z"]])
    assert sent.sum(axis=0) == pytest.approx([28.0] * 8)  # 2 (n-1)/n S, in and out
    assert sent.sum(axis=1) == pytest.approx([28.0] * 8)
    without = traffic_matrix(timeline).to_dict()["layout"]["title"]
    assert "without 1 collective (no library to ask)" in without["subtitle"]["text"]


def test_the_matrix_of_an_all_to_all_is_what_each_has_for_each() -> None:
    heat = traffic_matrix(
        scenario("all-to-all-splits").timeline, cluster=scenario("all-to-all-splits").cluster,
        library=scenario("all-to-all-splits").library,
    ).to_dict()["data"][0]  # fmt: skip
    graph = scenario("all-to-all-splits").timeline.graph
    splits = np.array(graph.collectives.splits[0], dtype=float)
    np.fill_diagonal(splits, 0)
    sent = np.array([[cell or 0.0 for cell in row] for row in heat["z"]])
    assert sent / sent.max() == pytest.approx(splits / splits.max())


@pytest.mark.parametrize(
    ("op", "algo", "each"),
    [("all_reduce", "Ring", 2), ("all_reduce", "Tree", 2), ("all_gather", "Ring", 1)],
)
def test_the_matrix_of_nccl_adds_up(op: str, algo: str, each: int) -> None:
    """All ranks together send 2 (n-1) S, or (n-1) S, whichever way they take."""
    cluster = Cluster.preset("dgx-a100", nodes=2)
    library = make_library(LibrarySection("nccl", env={"NCCL_ALGO": algo}), cluster)
    build = GraphBuilder()
    world = build.group("world", range(16))
    for lane in range(16):
        build.collective(build.lane(lane), world, op, 2**24, stream="comm")
    timeline = simulate(build.build(), cluster, library=library)
    heat = traffic_matrix(timeline, cluster=cluster, library=library).to_dict()["data"][0]
    total = sum(cell or 0.0 for row in heat["z"] for cell in row)
    assert total == pytest.approx(each * 15 * 16)  # MiB


def test_the_matrix_of_a_cluster_is_what_its_routes_carry() -> None:
    cluster = Cluster.preset("dgx-1v")
    heat = bandwidth_matrix(cluster).to_dict()["data"][0]
    route = cluster.local_route(0, 3)
    assert route is not None
    assert heat["z"][0][3] == pytest.approx(cluster.links.capacity[list(route.link)].min() / 1e9)
    assert heat["z"][0][0] is None
    speeds = np.array(heat["z"], dtype=float)
    np.testing.assert_allclose(speeds, speeds.T)


def test_many_gpus_share_rows() -> None:
    build = GraphBuilder()
    world = build.group("world", range(130))
    for lane in range(130):
        build.lane(lane)
    build.send(0, 129, 2**20, group=world, stream="s")
    build.recv(129, 0, 2**20, group=world, stream="r")
    timeline = simulate(build.build(), Star(130), library=Ideal("ring"))
    figure = traffic_matrix(timeline).to_dict()
    assert len(figure["data"][0]["z"]) == 44
    assert "3 GPUs to a row" in figure["layout"]["title"]["subtitle"]["text"]


def test_scaling_says_what_is_left_of_perfect() -> None:
    figure = scaling(results()).to_dict()
    perfect, curve = figure["data"]
    assert curve["x"] == [8, 16, 64]
    assert curve["y"] == [8.0, 16.0, 51.2]
    assert perfect["y"] == [8.0, 64.0]
    assert "80.0% of perfect scaling at 64 GPUs" in figure["layout"]["title"]["text"]


def test_curves_of_all_ways_are_told_apart() -> None:
    data = all_ways()
    figure = busbw(data).to_dict()
    ways = {f"{row['algo']} {row['proto']}" for row in data["results"]}
    curves = [t for t in figure["data"] if t["name"] in ways]
    assert {trace["name"] for trace in curves} == ways
    assert len(ways) >= 6
    looks = {(t["line"]["color"], t["line"]["dash"]) for t in curves}
    assert len(looks) == len(ways)


def test_the_choice_of_the_library_is_a_band_along_its_rows() -> None:
    data = all_ways()
    (band,) = [t for t in busbw(data).to_dict()["data"] if t["name"] == "NCCL's choice"]
    chosen = [row for row in data["results"] if row["chosen"]]
    assert band["x"] == [row["size"] for row in chosen]
    assert band["y"] == [row["busbw_gbs"] for row in chosen]
    assert band["line"]["width"] > 8


def test_ribbons_change_where_the_fastest_does() -> None:
    data = all_ways()
    figure = busbw(data).to_dict()
    pieces = [t for t in figure["data"] if t["name"] == "ribbon 1"]
    edges = [piece["x"][0] for piece in pieces[1:]]
    assert edges == pytest.approx([c["size"] for c in data["crossovers"]])
    assert len(figure["layout"]["shapes"]) == len(data["crossovers"])
    assert all(
        a["x"][-1] == pytest.approx(b["x"][0]) for a, b in zip(pieces, pieces[1:], strict=False)
    )


def test_the_ribbon_of_the_choice_changes_where_the_text_says() -> None:
    data = all_ways()
    pieces = [t for t in busbw(data).to_dict()["data"] if t["name"] == "ribbon 0"]
    assert data["choices"]
    assert [round(piece["x"][0]) for piece in pieces[1:]] == [c["size"] for c in data["choices"]]


def test_a_library_that_chooses_nothing_has_one_ribbon() -> None:
    overrides = {"gpu": {"count": 4}, "nic": {"count": 4}}
    cluster = Cluster.preset("dgx-a100", nodes=2, overrides=overrides)
    data = bench(
        cluster, "all_reduce", [2**10, 2**20, 2**28], algo="all", library="ideal"
    ).to_dict()
    figure = busbw(data).to_dict()
    names = {trace["name"] for trace in figure["data"]}
    assert "ribbon 1" in names
    assert not names & {"ribbon 0", "ideal's choice"}
    assert figure["layout"]["yaxis2"]["range"] == [0.5, 1.5]
    drawn = [t for t in figure["data"] if t["mode"] == "lines+markers"]
    looks = {(t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"]) for t in drawn}
    assert len(looks) == len(drawn) > 8  # more than there are colours
    pieces = [t for t in figure["data"] if t["name"] == "ribbon 1"]
    curves = {t["name"]: t["line"]["color"] for t in figure["data"] if t["mode"] == "lines+markers"}
    for piece in pieces:
        assert piece["line"]["color"] == curves[piece["customdata"][0].split(" from ")[0]]


def test_no_curve_is_above_its_bound() -> None:
    data = all_ways()
    (bound,) = [t for t in busbw(data).to_dict()["data"] if t["name"].startswith("bound, ")]
    best = dict(zip(bound["x"], bound["y"], strict=True))
    assert all(row["busbw_gbs"] <= best[row["size"]] * (1 + 1e-9) for row in data["results"])


def test_several_ops_have_a_plot_each_where_algorithms_compete() -> None:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    sizes = [2**20, 2**24]
    both = bench(cluster, "all_reduce,all_gather", sizes, algo="all", library="nccl").to_dict()
    layout = busbw(both).to_dict()["layout"]
    assert layout["yaxis3"]["domain"][1] < layout["yaxis"]["domain"][0]
    one = bench(cluster, "all_reduce,all_gather", sizes, library="nccl").to_dict()
    names = [trace["name"] for trace in busbw(one).to_dict()["data"]]
    assert names == ["all-reduce", "all-gather"]


def test_one_scale_for_what_stands_one_above_the_other() -> None:
    short, long = (breakdown(scenario(name).metrics) for name in ("1f1b", "gpipe"))
    ends = [figure.to_dict()["layout"]["xaxis"]["range"][1] for figure in (short, long)]
    above, below = one_above_other([("measured", short), ("replayed", long)])
    for figure in (above, below):
        assert figure.to_dict()["layout"]["xaxis"]["range"] == [0, max(ends)]
    assert above.to_dict()["layout"]["title"]["text"].startswith("<b>Measured: ")


def test_names_from_traces_stay_text(tmp_path: Path) -> None:
    build = GraphBuilder()
    world = build.group(HOSTILE, range(2))
    for lane in range(2):
        build.lane(lane)
        build.compute(lane, MS * (lane + 1), name=HOSTILE)
        build.collective(lane, world, "all_reduce", 2**20, stream=HOSTILE, name=HOSTILE)
    timeline = simulate(build.build(), Star(2), library=Ideal("ring"))
    figures = [gantt(timeline, title=HOSTILE), memory(timeline), traffic_matrix(timeline)]
    save_page(figures, tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "<script>alert" not in text
    assert text.count("</script>") == 3  # the data, plotly, our own
    assert len(text) < 1_000_000


def test_no_text_of_a_figure_ends_its_script(tmp_path: Path) -> None:
    from plotly.graph_objects import Figure

    save_page([Figure(data=[{"type": "bar", "name": "</script>x"}])], tmp_path / "a.html")
    assert "</script>x" not in (tmp_path / "a.html").read_text()


if __name__ == "__main__":
    KEPT.write_text(json.dumps({name: digest(name) for name in FIGURES}, indent=1) + "\n")
