"""What damaged inputs once brought down, each mended: one sentence that names what is wrong."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.kineto_writer import Recording
from helpers.paths import TESTS
from msgspec.structs import replace

import commsim as cs
from commsim.cli.main import call
from commsim.engine import simulate
from commsim.errors import UnitError
from commsim.files import write_text
from commsim.graph import (
    GraphBuilder,
    load_graph,
    member_lanes,
    save_graph,
    scale_compute,
    validate,
)
from commsim.libraries import Ideal, library_of
from commsim.libraries.nccl import cluster_from_xml
from commsim.scenario import read_recipe
from commsim.timeline import load_timeline, save_timeline
from commsim.traces import import_graph
from commsim.traces.formats import buffer_size, in_bytes, read_nccl_tests, splits_in_bytes
from commsim.units import parse_bandwidth, parse_duration, parse_size

CLUSTER = cs.Cluster.preset("dgx-h100")


def test_an_entry_of_a_list_without_a_setting_that_it_needs() -> None:
    work = {"cluster": {"preset": "dgx-h100"}, "workload": {"collectives": [{"bytes": "1MiB"}]}}
    with pytest.raises(cs.ScenarioError, match=r"'workload.collectives\.0.op' is missing"):
        cs.run(work)


def test_half_a_surrogate(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text('name: "\\uD800"\nworkload: {pipeline: {stages: 2}}\n')
    with pytest.raises(cs.ScenarioError):
        cs.run(file)
    with pytest.raises(cs.ScenarioError, match="is not text"):
        cs.run({"workload": {"\ud800": 1}})


def test_a_result_that_is_not_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(b'{"\xcd": 1}')
    with pytest.raises(cs.TraceError):
        cs.compare(file, file)


@pytest.mark.parametrize(
    ("op", "sizes", "library", "told"),
    [
        (True, "1MiB", "nccl", "bench: ops: True is of type bool"),
        ("all_reduce", 1.5, "nccl", "bench: sizes: 1.5 is of type float"),
        ("all_reduce", 2**63, "nccl", "from 0 to 4 EiB"),
        ("all_reduce", "1MiB", 3, "bench: library: 3 is of type int"),
        ("all_reduce", "1MiB", {"name": 3}, "not the name of a library"),
    ],
)
def test_arguments_of_bench(op: Any, sizes: Any, library: Any, told: str) -> None:
    with pytest.raises(cs.ScenarioError, match=told):
        cs.bench(CLUSTER, op, sizes, library=library)


@pytest.mark.parametrize("where", ["fabric", "overrides"])
def test_a_part_of_a_cluster_that_is_a_number(where: str) -> None:
    with pytest.raises(cs.ScenarioError, match=where):
        cs.Cluster.preset("dgx-h100", **{where: 3.5})  # type: ignore[arg-type]


def test_calls_that_are_played_back_beside_a_library() -> None:
    """A send whose peer has no file keeps its time, whatever library plans the rest."""
    assert library_of(cs.Ideal(), "recorded").name == "recorded"
    assert library_of(cs.Ideal(), "gloo").name == "ideal"


def test_a_step_larger_than_time_can_be_held() -> None:
    model = {"layers": 2, "hidden": 10**9, "heads": 1, "vocab": 10**9, "seq_len": 10**9}
    training = {"model": model, "batch": {"global": 1, "micro": 1}}
    overrides = {"gpu": {"count": 1}}
    cluster = {"preset": "dgx-h100", "overrides": overrides}
    with pytest.raises(cs.ScenarioError, match="longer than commsim can hold"):
        cs.run({"cluster": cluster, "workload": {"training": training}})


@pytest.mark.parametrize(
    ("column", "value"),
    [("bandwidth", 5e-324), ("bandwidth", -1.0), ("load_bytes", 1e308), ("load_bytes", np.nan),
     ("rate", 1e300), ("rate", -1e-9)],
)  # fmt: skip
def test_a_timeline_whose_links_are_no_links(column: str, value: float, tmp_path: Path) -> None:
    work = {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]}
    timeline = cs.run({"cluster": {"preset": "dgx-h100"}, "workload": work}).timeline
    file = tmp_path / "t.npz"
    save_timeline(timeline, file)
    assert load_timeline(file).links.names == timeline.links.names
    damaged = np.full_like(getattr(timeline.links, column), value)
    links = replace(timeline.links, **{column: damaged})
    save_timeline(replace(timeline, links=links), file)
    with pytest.raises(cs.TraceError, match="a link|a flow"):
        load_timeline(file)


def test_an_op_on_a_group_that_its_rank_is_not_in() -> None:
    build = GraphBuilder()
    group = build.group("pair", (0, 1))
    for rank in range(2):
        build.collective(build.lane(rank), group, "all_reduce", 8, stream="s")
    build.collective(build.lane(2), build.group("three", (0, 1, 2)), "all_reduce", 8, stream="s")
    graph = build.build()
    moved = replace(graph, lane=np.where(graph.lane == 1, 2, graph.lane))
    with pytest.raises(cs.ScenarioError, match="group 'pair', which rank 2 is not in"):
        validate(moved)


def test_a_collective_of_more_time_than_is_there() -> None:
    build = GraphBuilder()
    group = build.group("world", range(16))
    for rank in range(16):
        build.collective(build.lane(rank), group, "all_reduce", 2**62, stream="s")
    with pytest.raises(cs.ScenarioError, match="smaller size"):
        simulate(build.build(), cs.Cluster.preset("dgx-h100", nodes=2), library=Ideal("ring"))


def test_more_layers_than_can_be_looked_at() -> None:
    sets = [f"workload.training.model.layers={2 * 10**15}"]
    with pytest.raises(cs.ScenarioError, match=r"model.layers: 2000000000000000 layers"):
        cs.run("quickstart", sets)


def test_a_file_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(cs.ScenarioError, match="no file can have this name"):
        write_text(tmp_path / "a\ud800.html", "x")


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
@pytest.mark.parametrize("option", ["--json", "--csv", "--report"])
def test_an_output_of_a_name_that_no_file_can_have(
    option: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert call(["run", "1f1b", "-q", option, f"{name}.html"]) == 2
    assert "no file can have this name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_waited_for_less_than_no_time(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(cs.run("1f1b").to_dict()))
    assert cs.compare(file, file)
    damaged = json.loads(file.read_text())
    damaged["breakdown"]["waiting_s"] = -0.009
    file.write_text(json.dumps(damaged))
    with pytest.raises(cs.TraceError, match="waiting_s"):
        cs.compare(file, file)


def test_a_flow_that_ends_before_it_starts(tmp_path: Path) -> None:
    work = {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]}
    timeline = cs.run({"cluster": {"preset": "dgx-h100"}, "workload": work}).timeline
    links = replace(timeline.links, start=timeline.links.end + 1)
    save_timeline(replace(timeline, links=links), tmp_path / "t.npz")
    with pytest.raises(cs.TraceError, match="ends before it starts"):
        load_timeline(tmp_path / "t.npz")


def test_a_group_that_reaches_beyond_the_cluster() -> None:
    build = GraphBuilder()
    group = build.group("nine", range(9))
    build.collective(build.lane(0), group, "all_reduce", 8, stream="s")
    with pytest.raises(cs.ScenarioError, match="rank 8, the cluster 8 GPUs"):
        simulate(build.build(), CLUSTER, library=Ideal("ring"))


def test_a_scenario_by_a_name_that_is_too_long() -> None:
    for name in ("9" * 400, "9" * 400 + ".yaml"):
        with pytest.raises(cs.ScenarioError):
            cs.run(name)


def test_a_graph_of_the_highest_rank() -> None:
    build = GraphBuilder()
    lane = build.lane(2**40)
    build.collective(lane, build.group("g", (0, 2**40)), "all_reduce", 8, stream="s")
    assert member_lanes(build.build()) == [{0: 1}]


def test_a_recipe_that_counts_beyond_any_run(tmp_path: Path) -> None:
    file = tmp_path / "titan.toml"
    file.write_text(f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = {10**200}\n')
    with pytest.raises(cs.ScenarioError, match="seq_len"):
        read_recipe(file, cluster="dgx-h100")


def test_a_timeline_whose_array_has_half_a_header(tmp_path: Path) -> None:
    file = tmp_path / "t.npz"
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("arrive.npy", array)
    with pytest.raises(cs.TraceError, match=r"t\.npz: not a"):
        load_timeline(file)


def test_an_event_months_after_the_others(tmp_path: Path) -> None:
    record = Recording(0)
    record.op("aten::mm", 10, 5)
    record.op("aten::mm", 2e13, 5)
    record.save(tmp_path)
    with pytest.raises(cs.TraceError, match="months apart"):
        cs.replay(tmp_path)


@pytest.mark.parametrize("bandwidth", ["10bps", "10kbps", "100kbps"])
def test_the_slowest_nics_are_slow_and_no_deadlock(bandwidth: str) -> None:
    work = {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]}
    nodes = {"preset": "dgx-h100", "nodes": 2, "overrides": {"nic": {"bandwidth": bandwidth}}}
    took = cs.run({"cluster": nodes, "workload": work}).timeline.end.max()
    slow = float(bandwidth.removesuffix("bps").replace("k", "000"))
    least = 2**20 / (8 * slow / 8) * 1e12  # bytes that leave a node over eight NICs, at least once
    assert least < took < 4 * least


def test_a_layout_whose_ranks_go_through_the_host() -> None:
    """With NCCL_P2P_DISABLE groups that are placed alike have ways of unequal length."""
    training = {
        "model": {"preset": "gpt3-6.7b"},
        "batch": {"global": 8, "micro": 1},
        "parallel": {"dp": 4, "tp": 4, "pp": 2},
    }
    steps = [
        cs.run({
            "cluster": {"preset": "dgx-h100", "nodes": 4},
            "library": {"name": "nccl", "env": {"NCCL_P2P_DISABLE": off}},
            "workload": {"training": training},
        }).metrics.step_time_s
        for off in (0, 1)
    ]  # fmt: skip
    assert 1.1 * steps[0] < steps[1]


@pytest.mark.parametrize("text", ["root:x:0:0:root", "7", "- a", "true", ""])
def test_next_of_a_file_that_is_no_mapping(text: str, tmp_path: Path) -> None:
    """Seed 51985 of the words: a text file of the system."""
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(cs.ScenarioError, match=r"x\.yaml"):
        cs.next_dollar(file, executor="serial")


@pytest.mark.parametrize("text", [";", " ", ""])
def test_nothing_to_vary(text: str) -> None:
    """Seed 147 of the words."""
    with pytest.raises(cs.ScenarioError, match="--vary"):
        cs.sweep("1f1b", [text])


@pytest.mark.parametrize("read", [parse_duration, parse_size, parse_bandwidth])
@pytest.mark.parametrize("number", [10**400, -(10**400), 10**301])
def test_a_number_that_no_float_holds(read: Callable[[Any], Any], number: int) -> None:
    """Seed 17534 of the collectives."""
    with pytest.raises(UnitError, match="Write a number and a unit"):
        read(number)
    with pytest.raises(cs.ScenarioError, match="not a positive number"):
        scale_compute(GraphBuilder().build(), -abs(number))


LOG_HEAD = (
    "# all_reduce_perf\n"
    "#  Rank  0 Pid 1 on  lab device  0 [0x02] X\n"
    "#  Rank  1 Pid 2 on  lab device  1 [0x03] X\n"
)
LOG_ROW = "1048576 262144 float sum -1 {time} 15.58 27.26 0 65.27 16.07 28.11 0\n"


@pytest.mark.parametrize(
    "line",
    [
        LOG_ROW.format(time="1e-310"),
        LOG_ROW.format(time="1e305"),
        LOG_ROW.replace("1048576", "9" * 400).format(time="67.31"),
        LOG_ROW.replace("262144", "9" * 5000).format(time="67.31"),
        f"# Out of bounds values : {'9' * 5000}\n",
        f"#  Rank  {'9' * 5000} Pid 1 on  lab device  0 [0x02] X\n",
    ],
)
def test_a_line_of_a_log_that_no_test_printed(line: str, tmp_path: Path) -> None:
    """Seeds 3052 and 27641 of the logs."""
    file, sound = tmp_path / "x.log", LOG_HEAD + LOG_ROW.format(time="67.31")
    file.write_text(sound + line)
    (table,) = read_nccl_tests(file.read_bytes(), "x.log")
    assert [row.size for row in table.rows] == [2**20]
    assert cs.compare(file, file)


def test_a_number_with_a_sign_where_nccl_counts() -> None:
    """Seed 27803 of NCCL's files; the same of a model's number."""
    text = (TESTS / "data" / "nccl" / "dgx_a100.xml").read_text()
    for name in ("sm", "modelid"):
        damaged = re.sub(rf' {name}="(\d+)"', rf' {name}="-\1"', text)
        with pytest.raises(cs.ScenarioError, match=f"{name} must be 0 or more"):
            cluster_from_xml(damaged)


def test_a_price_without_its_currency(tmp_path: Path) -> None:
    """Seed 5281 of the results."""
    told = cs.run("1f1b").to_dict() | {"cost": {"per_hour": 2.0}}
    file = tmp_path / "x.json"
    file.write_text(json.dumps(told))
    assert cs.compare(file, file)


@pytest.mark.parametrize("figure", ["bubble_fraction", "breakdown.comm_s"])
def test_a_result_with_a_figure_below_nothing(figure: str, tmp_path: Path) -> None:
    """Seed 28125 of the results."""
    told = cs.run("1f1b").to_dict()
    section, _, name = figure.rpartition(".")
    (told[section] if section else told)[name] = -1
    file = tmp_path / "x.json"
    file.write_text(json.dumps(told))
    with pytest.raises(cs.TraceError, match=name):
        cs.compare(file, file)


def test_a_buffer_of_more_bytes_than_can_be_counted() -> None:
    """Seed 5406 of the recordings; all readers ask `in_bytes`."""
    assert in_bytes(3, 4) == 12
    assert in_bytes(2**61, 4) == in_bytes(-1, 4) == in_bytes(3, -1) == -1
    assert splits_in_bytes((1, 2), 4) == (4, 8)
    assert splits_in_bytes((2**60, 2**60), 4) == ()
    assert buffer_size("all_gather", 2**61, -1, 4) == -1


@pytest.mark.parametrize("rank", [2**63 - 1, 10**400, 2**30])
def test_a_program_of_a_rank_beyond_all(rank: int) -> None:
    """Seeds 5452 and 22583 of the libraries: refused before a list of so many ranks is made."""
    calls = [{"all_reduce": {"bytes": "1MiB"}}]
    program = {"ranks": {"all": calls, rank: calls}}
    with pytest.raises(cs.ScenarioError, match="Name lower"):
        cs.run({"workload": {"program": program}}, limit="1GiB")


@pytest.mark.parametrize("name", ["s1²2", "s" + "9" * 5000])
def test_a_switch_by_a_number_that_is_none(name: str) -> None:
    """Digits that `int` does not take; names are sorted where a graph is in two parts."""
    links = [{"between": ["node0", name]}, {"between": ["node1", "b"]}]
    fabric = {"kind": "graph", "switches": [name, "b"], "links": links}
    with pytest.raises(cs.ScenarioError, match="in 2 parts"):
        cs.Cluster.preset("dgx-h100", nodes=2, fabric=fabric)


def test_a_log_of_numbers_that_nccl_cannot_have_printed(tmp_path: Path) -> None:
    line = (
        "h:1:1 [0] NCCL INFO AllReduce: opCount a sendbuff 0x1 recvbuff 0x2 count 18 datatype 7"
        " op 0 root 0 comm 0x55 [nranks=2] stream 0x7\n"
    )
    file, long = tmp_path / "x.log", "9" * 5000
    damaged = [
        line.replace(one, one[:-2] + long + one[-1:]) for one in ("count 18 ", "root 0 ", "=2]")
    ]
    file.write_text(line + "".join(damaged))
    assert len(import_graph(file).graph) == 1
    goal = tmp_path / "x.goal"
    goal.write_text(f"num_ranks 1\nrank 0 {{\na: calc 5{long}\n}}\n")
    assert len(import_graph(goal).graph) == 1
    send, recv = (f"{way} 1{long}b {end}" for way, end in (("send", "to 1"), ("recv", "from 0")))
    goal.write_text(f"num_ranks 2\nrank 0 {{\n{send}\n}}\nrank 1 {{\n{recv}\n}}\n")
    with pytest.raises(cs.TraceError, match="no call is that large"):
        import_graph(goal)


@pytest.mark.parametrize("size", [-(2**62), -2, 2**62 + 1])
def test_a_graph_whose_collective_has_no_size(size: int, tmp_path: Path) -> None:
    """Seed 49 of the graphs."""
    graph = cs.run("sub-groups").timeline.graph
    sizes = np.full_like(graph.collectives.size, size)
    damaged = replace(graph, collectives=replace(graph.collectives, size=sizes))
    save_graph(damaged, tmp_path / "g.npz")
    with pytest.raises(cs.CommsimError, match="give 0 to 4 EiB"):
        load_graph(tmp_path / "g.npz")


def test_a_timeline_whose_bytes_go_over_a_link_without_bandwidth(tmp_path: Path) -> None:
    """Seed 10051 of the timelines."""
    work = {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]}
    timeline = cs.run({"cluster": {"preset": "dgx-h100"}, "workload": work}).timeline
    links = replace(timeline.links, bandwidth=np.zeros_like(timeline.links.bandwidth))
    save_timeline(replace(timeline, links=links), tmp_path / "t.npz")
    with pytest.raises(cs.TraceError, match="without bandwidth carries"):
        load_timeline(tmp_path / "t.npz")


def test_a_collective_of_a_rank_beyond_all() -> None:
    data = {
        "workload": {"collectives": [{"op": "all_reduce", "bytes": "1MiB", "group": [0, 2**64]}]},
    }
    with pytest.raises(cs.ScenarioError, match="rank above"):
        cs.run(data)
