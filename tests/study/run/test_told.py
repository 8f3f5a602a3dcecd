"""What a run says of itself: in a line, of its lanes, and of what it was left to choose."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import commsim as cs
from commsim.errors import ScenarioError
from commsim.scenario import load_scenario, scenario_from
from commsim.study.run.hardware import idle_gpus
from commsim.study.run.run import _chosen, _command, _lanes, _loaded, _may_fold

WORK = {"collectives": [{"op": "barrier", "bytes": "0B"}]}


def test_lanes_that_stand_for_ranks() -> None:
    assert _lanes(1, 8) == "1 lane stands for 8 ranks"
    assert _lanes(2, 8) == "2 lanes stand for 8 ranks"
    assert _lanes(3, 8) == "3 lanes stand for 8 ranks"


def test_a_result_in_a_line() -> None:
    """A stage of 3 ms, twice: 6 ms."""
    work = {"stages": 1, "microbatches": 2, "forward": "1ms", "backward": "2ms"}
    result = cs.run({"name": "x", "workload": {"pipeline": work}})
    assert repr(result).startswith("Result('x', step 6 ms, ")


def remarks(lanes: int | None = None, earlier: int | None = None, **more: Any) -> list[str]:
    settings: dict[str, Any] = {"workload": WORK, **more}
    scenario = scenario_from(settings, "x")
    many = SimpleNamespace(sum=lambda: 16)
    graph: Any = SimpleNamespace(
        folding=None if lanes is None else 1, lane_rank=range(lanes or 16), multiplicity=many,
        meta={} if earlier is None else {"earlier_microbatches": earlier},
    )  # fmt: skip
    return _chosen(scenario, cs.Ideal(), graph)


def test_what_a_scenario_leaves_open_is_told() -> None:
    library = "library: ideal (taken for this cluster), latency and bandwidth only, no launch, no"
    assert remarks() == [f"{library} protocol.", "engine: network fluid, no folding."]
    named = remarks(lanes=2, library={"name": "ideal"}, engine={"overlap_slowdown": False})
    assert named == [
        "library: ideal, latency and bandwidth only, no launch, no protocol.",
        "engine: network fluid, 2 lanes stand for 16 ranks, communication takes nothing from"
        " compute.",
    ]
    assert remarks(earlier=3)[1] == (
        "engine: network fluid, no folding, 3 microbatches in steps before the measured one."
    )


@pytest.mark.parametrize(
    ("gpus", "engine", "ecmp", "folds"),
    [
        (17, {}, "even", True), (16, {}, "even", False), (17, {"fold": "off"}, "even", False),
        (17, {"network": "steps"}, "even", False), (17, {}, "hash", False),
    ],
)  # fmt: skip
def test_equivalent_ranks_of_more_than_16_gpus_are_simulated_once(
    gpus: int, engine: dict[str, Any], ecmp: str, folds: bool
) -> None:
    file = scenario_from({"workload": WORK, "engine": engine}, "x").file
    cluster: Any = SimpleNamespace(
        world_size=gpus, fabric=SimpleNamespace(spec=SimpleNamespace(ecmp=ecmp))
    )
    assert _may_fold(file, cluster) is folds
    assert not _may_fold(file, None)


def test_the_command_that_runs_it_again() -> None:
    assert _command("a b", ()) == "commsim run 'a b'"
    words = shlex.split(_command(Path("x.yaml"), ("a=1", "b=[1, 2]")))
    assert words == ["commsim", "run", "x.yaml", "--set", "a=1", "--set", "b=[1, 2]"]
    assert _command({"workload": WORK}, ()) == ""
    assert _command(load_scenario("ddp"), ()).startswith("commsim run ")


def test_what_is_loaded_already_is_not_changed() -> None:
    ddp = load_scenario("ddp")
    assert _loaded(ddp, (), {}) is ddp
    for sets, settings in ((("a=1",), {}), ((), {"cluster": {}})):
        with pytest.raises(ScenarioError, match="is loaded already and cannot be changed"):
            _loaded(ddp, sets, settings)
    with pytest.raises(ScenarioError, match="or a dict, not of type int"):
        _loaded(3, (), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(("ranks", "idle"), [(8, 0), (9, 0), (7, 1), (1, 7)])
def test_gpus_without_work(ranks: int, idle: int) -> None:
    graph: Any = SimpleNamespace(multiplicity=SimpleNamespace(sum=lambda: ranks))
    told = idle_gpus(graph, cs.Cluster.preset("dgx-h100"))
    assert bool(told) is bool(idle)
    if idle:
        assert told[0].startswith(f"ranks: {idle} of the cluster's 8 GPUs have no work: it is of")
    assert idle_gpus(graph, None) == []
