"""What damaged inputs once brought down, each mended: one sentence that names what is wrong."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.kineto_writer import Recording
from msgspec.structs import replace

import commsim as cs
from commsim.engine import simulate
from commsim.files import write_text
from commsim.graph import GraphBuilder, member_lanes, validate
from commsim.libraries import Ideal, library_of
from commsim.scenario import read_recipe
from commsim.timeline import load_timeline, save_timeline

CLUSTER = cs.Cluster.preset("dgx-h100")


def test_an_entry_of_a_list_without_a_setting_that_it_needs() -> None:
    work = {"cluster": {"preset": "dgx-h100"}, "workload": {"collectives": [{"bytes": "1MiB"}]}}
    with pytest.raises(cs.ScenarioError, match=r"'workload.collectives\[0\].op' is missing"):
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
        (True, "1MiB", "nccl", "True is not text"),
        ("all_reduce", 1.5, "nccl", "1.5 is not a size"),
        ("all_reduce", 2**63, "nccl", "from 0 to 4 EiB"),
        ("all_reduce", "1MiB", 3, "write library"),
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
    with pytest.raises(cs.ScenarioError, match="more than commsim can hold"):
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
