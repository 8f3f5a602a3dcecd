"""What if: axes that mean what they say, and points that are runs of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commsim as cs
from commsim.errors import ScenarioError
from commsim.scenario import read_scenario, scenario_from
from commsim.study.next_dollar.what_if import WhatIfAxis, WhatIfGrid, axes_for, axis_names, what_if

SMALL = {
    "cluster": {"preset": "dgx-h100", "nodes": 2},
    "workload": {
        "training": {
            "model": {"preset": "gpt2-124m", "seq_len": 512},
            "parallel": {"dp": 16},
            "batch": {"global": 32, "micro": 1},
        }
    },
}


def axes_of(asked: list[str], source: Any = SMALL) -> tuple[WhatIfAxis, ...]:
    data, where, folder, _ = read_scenario(source)
    scenario = scenario_from(data, where, folder=folder)
    section = scenario.file.cluster
    cluster = None if section is None else cs.Cluster.preset("dgx-h100", nodes=2)
    return axes_for(scenario, cluster, data, asked)


def settings(axis: WhatIfAxis) -> list[dict[str, str]]:
    return [change({}) for change in axis.changes]


def test_a_resource_is_varied_by_factors_around_what_there_is() -> None:
    (nic,) = axes_of(["nic.bandwidth"])
    assert (nic.name, nic.given, nic.labels[nic.given]) == ("nic", 4, "x1")
    assert settings(nic)[nic.given] == {}
    assert settings(nic)[-1] == {"cluster.scale.nic": "8"}


def test_nodes_bring_their_replicas() -> None:
    (nodes,) = axes_of(["nodes=1,2,4"])
    assert nodes.labels == ("1", "2", "4")
    assert settings(nodes)[2] == {"cluster.nodes": "4", "workload.training.parallel.dp": "32"}


def test_microbatches_hold_for_every_replica_that_nodes_leave() -> None:
    nodes, micro = axes_of(["microbatches=1,2,4", "nodes=2,4"])
    assert (nodes.name, micro.name) == ("nodes", "microbatches")
    before = nodes.changes[1]({})
    assert micro.changes[2](before) == {"workload.training.batch.global": str(32 * 4)}
    assert micro.changes[2]({}) == {"workload.training.batch.global": str(16 * 4)}


def test_any_setting_has_a_place_for_what_the_file_says() -> None:
    (algo,) = axes_of(["library.env.NCCL_ALGO=Ring,Tree"])
    assert (algo.labels, algo.given) == (("as given", "Ring", "Tree"), 0)
    (seq,) = axes_of(["workload.training.model.seq_len=256,512"])
    assert (seq.labels, seq.given) == (("256", "512"), 1)


def test_numbers_of_a_pipeline_are_known_by_their_names() -> None:
    (micro,) = axes_of(["microbatches"], "1f1b")
    assert micro.labels[micro.given] == "8"
    assert settings(micro)[-1] == {"workload.pipeline.microbatches": "64"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([], "name what to vary"),
        (["nic.bandwith"], "Did you mean"),
        (["nic,nvlink,pcie,hbm,compute"], "5 axes are too many"),
        (["nic", "nic.bandwidth"], "asked for twice"),
        (["nodes=3,x"], "'x' is not a count above zero"),
        (["nic=0"], "'0' is not a factor"),
        (["nic=nan"], "'nan' is not a factor"),
        (["nic.bandwidth="], "--what-if nic.bandwidth=: write a path, '=' and values, like --what"),
        (["seq_len=5..1"], "--what-if seq_len=5..1: the range goes nowhere"),
        (["micro=1,2.5"], "2.5 cannot be had"),
        (["workload.training.model.seq_len=1..300+1"], "301 runs, and a page holds 200"),
    ],
)
def test_what_cannot_be_varied_is_said(asked: list[str], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        axes_of(asked)


def test_names_are_listed() -> None:
    data, where, folder, _ = read_scenario(SMALL)
    names = axis_names(scenario_from(data, where), cs.Cluster.preset("dgx-h100", nodes=2))
    assert {"nic", "nvlink", "compute", "nodes", "micro", "microbatches"} <= set(names)


@pytest.fixture(scope="module")
def found() -> WhatIfGrid:
    return what_if(SMALL, ["nic=0.25,1", "nodes=2,4"], executor="serial")


def test_each_point_is_the_run_with_its_settings(found: WhatIfGrid) -> None:
    assert len(found) == 4
    for point in found.points:
        sets = [f"{path}={value}" for path, value in point.settings]
        alone = cs.run(SMALL, sets)
        assert point.step_time_s == alone.metrics.step_time_s
        assert point.page is not None
        assert point.page["headline"].replace("\xa0", " ") == alone.headline.replace("\xa0", " ")


def test_points_are_found_by_their_labels(found: WhatIfGrid) -> None:
    given, slow = found.at(), found.at(nic="x0.25")
    assert given.step_time_s == found.result.metrics.step_time_s
    assert given.settings == ()
    assert slow.step_time_s is not None
    assert given.step_time_s is not None
    assert slow.step_time_s > given.step_time_s
    assert [point.places[0] for point in found.along(found.axes[0])] == [0, 1]
    assert [row["nodes"] for row in found.rows()] == ["2", "4", "2", "4"]
    with pytest.raises(ScenarioError, match="no axis 'nix'"):
        found.at(nix="x1")
    with pytest.raises(ScenarioError, match=r"nic has x0\.25, x1, not x9"):
        found.at(nic="x9")


def test_each_axis_alone_is_a_part_of_the_grid(tmp_path: Path) -> None:
    """Six runs of 18, with the same figures; there is nothing for sliders to show."""
    asked = ["nic.bandwidth=0.5,1,2", "nvlink=0.5,1,2", "seq_len=256,512"]
    whole, alone = what_if(SMALL, asked), what_if(SMALL, asked, combined=False)
    assert (len(whole), len(alone)) == (18, 6)
    for at, axis in enumerate(alone.axes):
        steps = [[p.step_time_s for p in one.along(one.axes[at])] for one in (whole, alone)]
        assert len(steps[0]) == len(axis.labels)
        assert steps[0] == steps[1]
    with pytest.raises(ScenarioError, match="combinations were not run"):
        alone.at(**{axis.name: axis.labels[0] for axis in alone.axes})
    with pytest.raises(ScenarioError, match="sliders need every combination"):
        alone.report(tmp_path / "no.html")
    assert not (tmp_path / "no.html").exists()


def test_it_says_what_it_is(found: WhatIfGrid) -> None:
    assert repr(found) == "WhatIfGrid('the scenario', 2 nic x 2 nodes, 4 runs)"
    assert "cluster.scale.nic=0.25" in repr(found.points[0])
    said = found.to_dict()
    assert (said["schema"], [axis["name"] for axis in said["axes"]]) == (1, ["nic", "nodes"])


@pytest.mark.long
def test_processes_find_the_same(found: WhatIfGrid) -> None:
    asked = ["nic=0.25,1", "nodes=2,4"]
    heard: list[tuple[int, int]] = []
    other = what_if(
        SMALL, asked, executor="processes:2", progress=lambda done, of: heard.append((done, of))
    )
    assert [p.page for p in other.points] == [p.page for p in found.points]
    assert [p.spans for p in other.points] == [p.spans for p in found.points]
    assert heard == [(done, 4) for done in range(5)]


def test_a_point_that_cannot_run_stops_no_other() -> None:
    found = what_if("1f1b", ["workload.pipeline.schedule=gpipe,nonsense"])
    errors = [point.error for point in found.points]
    assert errors[:2] == [None, None]
    assert errors[2] is not None
    assert "nonsense" in errors[2]


def test_a_page_of_a_point_runs_it_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "workload: {pipeline: {stages: 2, microbatches: 2, forward: 1ms, backward: 2ms}}"
    )
    found = what_if(path, "microbatches=2,4")
    page = found.points[1].page
    assert page is not None
    assert page["command"] == f"commsim run {path} --set workload.pipeline.microbatches=4"


def test_more_nodes_take_smaller_microbatches_where_the_batch_asks_for_it() -> None:
    """Of 128 sequences 32 replicas have 4 each; 24 have no whole number, and are not offered."""
    (nodes,) = axes_of(["nodes"], "quickstart")
    assert nodes.labels == ("1", "2", "4, micro 4", "8, micro 2", "16, micro 1")
    assert settings(nodes)[2]["workload.training.batch.micro"] == "4"
    (asked,) = axes_of(["nodes=2,3"], "quickstart")
    assert asked.labels == ("2", "3")  # what was asked for runs, and says why it cannot


def test_nodes_keep_the_microbatch_where_the_batch_follows() -> None:
    nodes, _ = axes_of(["nodes=2,4", "microbatches=1,2"], "quickstart")
    assert nodes.labels == ("2", "4")
    assert "workload.training.batch.micro" not in settings(nodes)[1]
