"""What advise answers, of layouts made by hand; what would fit where nothing does."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster, ClusterSection
from commsim.errors import ScenarioError
from commsim.models import MemoryUse
from commsim.scenario import scenario_from
from commsim.sections import decode
from commsim.study.advise import Advice, advise
from commsim.study.advise.advise import _advice, _check, _given, _in_order, _settle
from commsim.study.advise.infeasible import _nodes, _offload, _shorter, nothing_fits
from commsim.study.advise.judge import Judged
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.workload import TrainingSection

GIB = 2**30
MODULE = "commsim.study.advise.advise"
SMALL = {"layers": 4, "hidden": 1024, "heads": 8, "vocab": 8192, "seq_len": 2048}


def layout(micro: int = 1, shard: str = "ddp") -> Candidate:
    return Candidate(Degrees(8, 1, 1, 1, 1), "1f1b", 1, micro, "none", shard)


def ran(micro: int, step: float, *, short: bool = False) -> Any:
    metrics = SimpleNamespace(step_time_s=step)
    return SimpleNamespace(candidate=layout(micro), metrics=metrics, short=short, memory=3 * GIB)


def asked(**changes: Any) -> Any:
    """A scenario, or one that differs in a section."""
    given = {
        "cluster": {"preset": "dgx-h100"},
        "workload": {"training": {"model": SMALL, "batch": {"global": 8, "micro": 1}}},
    } | changes
    return scenario_from({key: value for key, value in given.items() if value is not None}, "x")


def test_only_training_on_a_cluster_of_fluid_links_can_be_advised() -> None:
    _check(asked(), 1)
    with pytest.raises(ScenarioError, match="--top 0: give 1 or more"):
        _check(asked(), 0)
    with pytest.raises(ScenarioError, match="engine.network"):
        _check(asked(engine={"network": "steps"}), 1)
    work = {"collectives": [{"op": "barrier", "bytes": "0B"}]}
    with pytest.raises(ScenarioError, match="advise is about training"):
        _check(asked(workload=work), 1)
    assert inspect.signature(advise).parameters["top"].default == 5


class Worker:
    """Runs layouts whole: a step of what `whole` says."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def searched(*found: Any, **more: Any) -> Any:
    judged = {one.candidate: Judged(one.candidate, MemoryUse(1, 0, 0, 0), 0, 2, 0.5)
              for one in found}  # fmt: skip
    return SimpleNamespace(ran={one.candidate: one for one in found}, judged=judged,
                           considered=40, estimated=2, queue=[], **more)  # fmt: skip


def test_the_fastest_first_and_of_equals_the_smaller_layout() -> None:
    found = searched(ran(4, 2.0), ran(2, 1.0), ran(1, 2.0))
    assert [one.candidate.micro for one in _in_order(found)] == [2, 1, 4]


def test_the_first_is_run_whole_until_it_is_one_that_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first turns out slower than the second, which stays first when it is run."""
    whole = {1: 3.0, 2: 2.1, 4: 9.0}
    runs: list[int] = []

    def run_whole(scenario: Any, worker: Any, one: Candidate, follow: Any) -> Any:
        runs.append(one.micro)
        return ran(one.micro, whole[one.micro])

    monkeypatch.setattr(sys.modules[MODULE], "run_whole", run_whole)
    found = searched(ran(1, 1.0), ran(2, 2.0), ran(4, 2.5))
    nothing: Any = None
    _settle(nothing, nothing, found, nothing)
    assert runs == [1, 2]
    assert [one.metrics.step_time_s for one in _in_order(found)] == [2.1, 2.5, 3.0]


@pytest.mark.parametrize(
    ("known", "fits", "runs"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_the_scenarios_own_layout_is_run_if_it_fits(
    monkeypatch: pytest.MonkeyPatch, known: bool, fits: bool, runs: bool
) -> None:
    own = layout(2)
    use = MemoryUse(1 if fits else 99, 0, 0, 0)
    judged = Judged(own, use, 0, 2, 0.5) if known else None
    monkeypatch.setattr(sys.modules[MODULE], "candidate_of", lambda section: own)
    pool: Any = SimpleNamespace(
        local=SimpleNamespace(section=None, run=lambda one: f"ran {one.micro}")
    )
    found: Any = SimpleNamespace(known=lambda one: judged, ran={})
    assert _given(pool, found) == (own if runs else None)
    assert found.ran == ({own: "ran 2"} if runs else {})
    found.ran = {own: "before"}
    assert _given(pool, found) == (own if runs else None)
    assert found.ran == {own: "before"}
    monkeypatch.setattr(sys.modules[MODULE], "candidate_of", lambda section: None)
    assert _given(pool, found) is None


def test_the_answer_has_as_many_as_were_asked_for_and_the_place_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others: list[int] = []

    def elsewhere(scenario: Any, worker: Any, order: Any) -> list[Any]:
        others.append(len(order))
        return []

    for name, value in {
        "reasons": lambda one, found: ("because",), "waits_for": lambda metrics: ("peers",),
        "settings_of": lambda worker, one: {}, "facts": lambda *_: ["a fact"],
        "best_of_kinds": lambda found, best: (best.micro,),
        "other_stacks": elsewhere,
    }.items():  # fmt: skip
        monkeypatch.setattr(sys.modules[MODULE], name, value)
    worker: Any = SimpleNamespace(
        section=SimpleNamespace(compute=SimpleNamespace(stack="torch-fsdp")),
        judge=SimpleNamespace(recomputes=("none", "full"), remarks=("a remark",)),
    )
    found = searched(*(ran(micro, float(micro)) for micro in range(1, 9)))
    found.judged[layout(9)] = Judged(layout(9), MemoryUse(9, 0, 0, 0), 0, 2, 0.5)
    scenario: Any = SimpleNamespace(name="mine")
    made = _advice(scenario, worker, found, layout(7), 3)
    assert [one.rank for one in made.layouts] == [1, 2, 3]
    assert made.given is not None
    assert (made.given.rank, made.given.candidate.micro, made.given.memory_gib) == (7, 7, 3.0)
    assert (made.considered, made.judged, made.fit, made.simulated) == (40, 9, 8, 8)
    assert made.kinds == (1,)  # type: ignore[comparison-overlap]
    assert "a remark" in made.notes
    assert any(note.startswith("9 of them have bounds low enough to be judged, of which 8 fit;")
               for note in made.notes)  # fmt: skip
    assert repr(made) == f"Advice('mine', best of 40: {layout(1).name}, step 1 s)"
    assert _advice(scenario, worker, found, None, 1).given is None
    assert _advice(scenario, worker, found, layout(9), 8).given is None
    assert others[0] == 3
    assert max(others) < 8  # few are run on other stacks
    with pytest.raises(ScenarioError, match="was loaded before"):
        Advice.save_scenario(made, "y.yaml")
    said = replace(made, layouts=(), given=None, kinds=()).to_dict()
    assert (said["schema"], said["given"], said["facts"]) == (1, None, ["a fact"])


def needs(total: int, *, optimizer: int = 0, shard: str = "zero-1", micro: int = 1) -> Judged:
    use = MemoryUse((total - optimizer) * GIB, 0, optimizer * GIB, 0)
    return Judged(layout(micro, shard), use, 0, 80 * GIB, float("inf"))


def test_the_optimizer_on_the_host_is_advised_where_the_rest_fits() -> None:
    """80 GiB of 80 fit; the least without its optimizer is named, of ZeRO alone."""

    def told(*listed: Judged) -> list[str]:
        return list(_offload(listed))

    first, second = needs(120, optimizer=40, shard="zero-2"), needs(100, optimizer=19, micro=2)
    (line,) = told(second, first, needs(81, optimizer=80, shard="fsdp"))
    assert line == (
        f"data_parallel: {{kind: zero, stage: 2, offload: cpu}} with {first.candidate.name}"
        " (80.0 GiB; advise does not try offload)"
    )
    assert told(second) == told(needs(81, optimizer=80, shard="ddp")) == told() == []


def section(seq: int = 2048) -> TrainingSection:
    data = {"model": SMALL | {"seq_len": seq}, "batch": {"global": 8, "micro": 1}}
    return decode(data, TrainingSection, "x")


@pytest.mark.parametrize(("fits", "told"), [
    (4, ["4 nodes instead of 1"]), (64, ["64 nodes instead of 1"]), (65, []),
])  # fmt: skip
def test_more_nodes_are_doubled_up_to_64_times(
    monkeypatch: pytest.MonkeyPatch, fits: int, told: list[str]
) -> None:
    module = sys.modules["commsim.study.advise.infeasible"]
    monkeypatch.setattr(module, "build_cluster", lambda given, where: given.nodes)
    monkeypatch.setattr(module, "_least", lambda section, nodes: nodes >= fits or None)
    given = decode({"preset": "dgx-h100", "nodes": 1}, ClusterSection, "x")
    scenario: Any = SimpleNamespace(where="x", file=SimpleNamespace(cluster=given))
    assert list(_nodes(scenario, section())) == told
    scenario.file.cluster = replace(given, nodes=2)
    assert list(_nodes(scenario, section())) == (
        [f"{max(fits, 4)} nodes instead of 2"] if fits <= 128 and fits != 65
        else ["128 nodes instead of 2"]
    )  # fmt: skip
    scenario.file.cluster = decode(
        {"nodes": [{"preset": "dgx-h100"}, {"preset": "dgx-a100"}]}, ClusterSection, "x"
    )
    assert list(_nodes(scenario, section())) == []


@pytest.mark.parametrize(("fits", "told"), [
    (2047, ["model.seq_len 1024 instead of 2048"]), (256, ["model.seq_len 256 instead of 2048"]),
    (255, []),
])  # fmt: skip
def test_shorter_sequences_are_halved_down_to_256_tokens(
    monkeypatch: pytest.MonkeyPatch, fits: int, told: list[str]
) -> None:
    module = sys.modules["commsim.study.advise.infeasible"]
    monkeypatch.setattr(
        module, "_least", lambda section, cluster: section.model.seq_len <= fits or None
    )
    cluster: Any = None
    assert list(_shorter(section(), cluster)) == told
    assert list(_shorter(section(256), cluster)) == []


def test_the_closest_layout_is_the_one_that_needs_least(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["commsim.study.advise.infeasible"]
    monkeypatch.setattr(module, "_changes", lambda scenario, judged: iter(()))
    scenario: Any = SimpleNamespace(where="x")
    told = nothing_fits(scenario, [needs(100, micro=4), needs(90, micro=2), needs(90)], 77)
    assert told.startswith(f"x: none of 77 layouts fits. The closest, {needs(90).candidate.name}: ")
    assert told.endswith("Would fit: a smaller model, or GPUs with more memory.")
    monkeypatch.setattr(module, "_changes", lambda scenario, judged: iter(("this", "that")))
    assert nothing_fits(scenario, [needs(90)], 1).endswith("Would fit: this or that.")


def test_a_cluster_of_one_node_without_a_network_is_not_doubled() -> None:
    given = decode({"preset": "pcie-rtx2080ti"}, ClusterSection, "x")
    assert Cluster.preset("pcie-rtx2080ti").world_size == 2
    scenario: Any = SimpleNamespace(where="x", file=SimpleNamespace(cluster=given))
    assert list(_nodes(scenario, section())) == []
