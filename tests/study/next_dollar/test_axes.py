"""Axes of a what-if at their edges: of numbers made by hand and of small scenarios."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.scenario import read_scenario, scenario_from
from commsim.study.next_dollar.resources import resources_of
from commsim.study.next_dollar.what_if import WhatIfAxis, axes_for
from commsim.study.next_dollar.what_if.axes import _by_factors, _Known, _of_path, axis_names
from commsim.study.next_dollar.what_if.grid import _executor, _found
from commsim.study.sweep import Outcome

DP = "workload.training.parallel.dp"


def scenario(nodes: int = 1, *, batch: int = 32, micro: int = 1, **training: Any) -> Any:
    return {
        "cluster": {"preset": "dgx-h100", "nodes": nodes},
        "workload": {"training": {
            "model": {"preset": "gpt2-124m", "seq_len": 512},
            "parallel": {"dp": 8 * nodes},
            "batch": {"global": batch, "micro": micro},
        } | training},
    }  # fmt: skip


def axes(asked: list[str], given: Any = None, **settings: Any) -> tuple[WhatIfAxis, ...]:
    data, where, folder, _ = read_scenario(given or scenario(**settings))
    loaded = scenario_from(data, where, folder=folder)
    section = loaded.file.cluster
    nodes = section.nodes if section is not None and isinstance(section.nodes, int) else 1
    cluster = None if section is None else Cluster.preset("dgx-h100", nodes=nodes)
    return axes_for(loaded, cluster, data, asked)


def labels(*asked: str, **settings: Any) -> list[tuple[str, ...]]:
    return [axis.labels for axis in axes(list(asked), **settings)]


NINE = ("x0.125", "x0.25", "x0.5", "x0.75", "x1", "x1.5", "x2", "x4", "x8")


def test_the_more_axes_the_fewer_places_each_has() -> None:
    assert labels("nic", nodes=2) == [NINE]
    assert labels("nic,nvlink", nodes=2) == [NINE[1:-1]] * 2
    three = ("x0.25", "x0.5", "x1", "x2", "x4")
    assert labels("nic,nvlink,pcie", nodes=2) == [three] * 3
    assert labels("nic,nvlink,pcie,hbm", nodes=2) == [("x0.5", "x1", "x2")] * 4
    # Those with values of their own count too.
    assert labels("nic", "nvlink=1,2", nodes=2) == [NINE[1:-1], ("x1", "x2")]
    assert labels("nic", "nvlink=1,2", "pcie=1", "hbm=1", "compute=1", nodes=2)[0] == NINE[2:7:2]


def test_runs_of_a_page_are_counted() -> None:
    assert len(labels("nic=1..20+1", "nvlink=1..10+1", nodes=2)) == 2
    with pytest.raises(ScenarioError, match=r"20 of nic x 11 of nvlink are 220 runs"):
        labels("nic=1..20+1", "nvlink=1..11+1", nodes=2)
    with pytest.raises(ScenarioError, match="5 axes are too many for one page"):
        labels("nic,nvlink,pcie,hbm,compute", nodes=2)


def test_one_node_is_doubled_and_of_two_factors_both_stay() -> None:
    assert labels("nodes,nvlink,pcie,hbm")[0] == ("1", "2")
    assert labels("nodes,nvlink")[0] == ("1", "2", "4")


def known(*factors: float, follows: bool = False, number: float | None = None) -> _Known:
    """What can be changed by these factors alone."""

    def times(factor: float) -> Any:
        return (lambda _: {"x": f"{factor:g}"}) if factor in factors else None

    return _Known("a title", "now", number, times, follows)


def test_nodes_of_which_only_this_count_can_be_had_are_tried_upwards() -> None:
    given = (0.5, 1.0, 2.0)
    assert _by_factors("nodes", known(1.0, 4.0), given).labels == ("x1", "x4")
    assert _by_factors("nic", known(1.0, 4.0), given).labels == ("x1",)
    assert _by_factors("nodes", known(1.0, 2.0, 4.0), given).labels == ("x1", "x2")


def test_what_there_is_stands_among_the_places_and_changes_nothing() -> None:
    made = _by_factors("x", known(0.5, 2.0), (0.5, 1.0, 2.0))
    assert (made.labels, made.given, made.title) == (("x0.5", "x1", "x2"), 1, "a title, now now")
    assert [change({}) for change in made.changes] == [{"x": "0.5"}, {}, {"x": "2"}]
    made = _by_factors("x", known(0.5, 1.0, number=1500.0), (0.5, 1.0))
    assert (made.labels, made.given, made.title) == (("750", "1,500"), 1, "a title")
    assert [change({}) for change in made.changes] == [{"x": "0.5"}, {}]
    made = _by_factors("x", known(0.5, 1.0, follows=True), (0.5, 1.0))
    assert [change({}) for change in made.changes] == [{"x": "0.5"}, {"x": "1"}]


def test_any_setting_has_the_value_of_the_file_at_its_place() -> None:
    path = "workload.training.model.seq_len"
    (axis,) = axes([f"{path}=256,512,1024,256"])
    assert (axis.labels, axis.given) == (("256", "512", "1024"), 1)
    assert [change({}) for change in axis.changes] == [{path: n} for n in axis.labels]
    (axis,) = axes([f"{path}=256,1024"])
    assert (axis.labels, axis.given) == (("512", "256", "1024"), 0)
    assert [change({}) for change in axis.changes] == [{}, {path: "256"}, {path: "1024"}]
    (axis,) = axes(["library.env.NCCL_ALGO=Ring"])
    assert (axis.labels, axis.changes[0]({})) == (("as given", "Ring"), {})


def test_values_of_a_known_name_are_counts_or_factors() -> None:
    (axis,) = axes(["micro=4,1,2"], micro=2)
    assert (axis.labels, axis.given) == (("1", "2", "4"), 1)
    (axis,) = axes(["nvlink=x2,0.5"])
    assert (axis.labels, axis.given) == (("x0.5", "x1", "x2"), 1)
    for asked, told in (
        ("micro=0", "'0' is not a count"), ("nvlink=-1", "'-1' is not a factor"),
        ("nvlink=fast", "'fast' is not a factor"), ("micro=3.5", "cannot be had"),
    ):  # fmt: skip
        with pytest.raises(ScenarioError, match=told):
            axes([asked], micro=2)


def test_microbatches_are_whole_and_one_at_least() -> None:
    """Eight replicas of 8 sequences, two at once: four microbatches."""
    (axis,) = axes(["microbatches"], batch=64, micro=2)
    assert (axis.labels, axis.given) == (("1", "2", "3", "4", "6", "8", "16", "32"), 3)
    assert axis.changes[0]({}) == {"workload.training.batch.global": str(8 * 2)}
    assert axis.changes[3]({DP: "16"}) == {"workload.training.batch.global": str(16 * 2 * 4)}
    with pytest.raises(ScenarioError, match="microbatches"):
        axes(["microbatches"], batch=72, micro=2)  # four and a half
    with pytest.raises(ScenarioError, match="cannot be had"):
        axes(["microbatches=2.5"], batch=64, micro=2)


@pytest.mark.parametrize(
    ("now", "factor", "value"),
    [(4, 0.5, "2"), (4, 0.25, "1"), (4, 0.125, None), (4, 0.3, None), (0.5, 0.5, "0.25"),
     (2.0, 0.125, "0.25")],
)  # fmt: skip
def test_whole_numbers_of_a_file_stay_whole_and_above_zero(
    now: float, factor: float, value: str | None
) -> None:
    change = _of_path("a.b", now).times(factor)
    assert (None if change is None else change({})) == (None if value is None else {"a.b": value})


def test_which_numbers_of_a_file_have_names() -> None:
    data = scenario(2, steps=3)
    loaded = scenario_from(data, "x")
    names = axis_names(loaded, Cluster.preset("dgx-h100", nodes=2))
    assert {"nic", "microbatches"} <= set(names)
    data["workload"]["training"]["batch"]["flag"] = True
    found = {axis.name: axis for axis in axes_for(loaded, None, data, ["seq_len=256", "steps=6"])}
    assert found["steps"].title == "workload.training.steps"
    for name in ("global", "dp", "flag"):
        with pytest.raises(ScenarioError, match="nothing that can be varied"):
            axes_for(loaded, None, data, [name])
    for numbers, told in (({"a": {"b": 1, "c": 2.5}}, "b, c; or any"), ({}, "no numbers; or any")):
        bare = scenario_from({"workload": {"collectives": [{"op": "barrier"}]}}, "x")
        with pytest.raises(ScenarioError, match=f"Known: {told}"):
            axes_for(bare, None, numbers, ["flag"])


@pytest.mark.parametrize(("ops", "points", "where"), [
    (100, 1000, "serial"), (100, 1001, "processes"), (1000, 100, "serial"),
])  # fmt: skip
def test_many_operations_go_to_processes(ops: int, points: int, where: str) -> None:
    given: Any = SimpleNamespace(timeline=SimpleNamespace(graph=range(ops)))
    assert _executor(given, points) == where


def test_a_point_has_the_command_that_runs_it_or_its_error() -> None:
    held = {"metrics": {}, "page": {"command": "", "headline": "x"}, "spans": b""}
    found = _found((1,), {"a.b": "1 2"}, Outcome("key", held, None), "commsim run x.yaml")
    assert found.page is not None
    assert found.page["command"] == "commsim run x.yaml --set 'a.b=1 2'"
    assert found.settings == (("a.b", "1 2"),)
    given = _found((0,), {}, Outcome("key", held, None), "commsim run x.yaml")
    assert given.page is not None
    assert given.page["command"] == "commsim run x.yaml"
    nameless = _found((0,), {"a": "1"}, Outcome("key", held, None), "")
    assert nameless.page is not None
    assert nameless.page["command"] == ""
    wrong = _found((0,), {"a": "1"}, Outcome("key", None, "no"), "x")
    assert (wrong.error, wrong.page, wrong.step_time_s) == ("no", None, None)


def resources(nodes: int = 2, **settings: Any) -> dict[str, Any]:
    data, where, folder, _ = read_scenario(scenario(nodes, **settings))
    loaded = scenario_from(data, where, folder=folder)
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    return {one.key: one for one in resources_of(loaded.file, cluster, where)}


def test_more_nodes_have_more_replicas_and_smaller_microbatches() -> None:
    """16 replicas of 2 sequences; 32 of one, 8 of four, and none of 24."""
    nodes = resources(batch=32, micro=2)["nodes"]
    assert nodes.sets(2.0) == ("cluster.nodes=4", f"{DP}=32", "workload.training.batch.micro=1")
    assert nodes.sets(0.5) == ("cluster.nodes=1", f"{DP}=8")
    assert nodes.sets(1.5) == ("cluster.nodes=3", f"{DP}=24")
    assert nodes.sets(0.25) is nodes.sets(1.25) is None
    assert [nodes.offered(times) for times in (0.5, 1.0, 1.5, 2.0)] == [True, True, False, True]
    assert nodes.now == "2"


def test_microbatches_and_buckets_of_what_the_file_says() -> None:
    found = resources(micro=2)
    assert found["micro"].sets(0.5) == ("workload.training.batch.micro=1",)
    assert found["micro"].sets(2.0) == ("workload.training.batch.micro=4",)
    assert found["micro"].sets(0.25) is found["micro"].sets(1.25) is None
    given = resources(data_parallel={"kind": "ddp", "bucket": "10MB"})["bucket"]
    path = "workload.training.data_parallel.bucket"
    assert given.sets(0.5) == (f"{path}=5000000B",)
    assert given.sets(1 / 3) == (f"{path}=3333333B",)
    for data in ({"kind": "fsdp"}, {"kind": "zero", "stage": 3}):
        assert "bucket" not in resources(data_parallel=data)
    assert "bucket" in resources(data_parallel={"kind": "zero", "stage": 2})


def test_times_are_halved_where_rates_are_doubled() -> None:
    found = resources()
    assert found["nic"].sets(2.0) == ("cluster.scale.nic=2",)
    assert found["network_latency"].sets(2.0) == ("cluster.scale.network_latency=0.5",)
    assert found["nvlink_latency"].sets(0.5) == ("cluster.scale.nvlink_latency=2",)
    assert found["nic"].now == "8 x 50 GB/s"
    assert not {"nic", "network_latency"} & set(resources(1))
