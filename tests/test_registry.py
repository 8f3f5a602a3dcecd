"""Users and plugins bring algorithms and libraries, and are held to the rules of our own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

import commsim as cs
from commsim import registry
from commsim.collectives.catalogue import ALGORITHMS
from commsim.libraries.section import LIBRARIES


def chain(ask: cs.Ask) -> cs.Program:
    """Add up along a chain, then copy back along it."""
    build = cs.ProgramBuilder("all_reduce", "chain", ask.n, [1.0])
    for rank in range(ask.n - 1):
        build.reduce(0, rank, rank + 1, step=rank)
    for rank in reversed(range(ask.n - 1)):
        build.copy(0, rank + 1, rank, step=2 * ask.n - rank, phase=1)
    return build.build()


@pytest.fixture
def registered() -> Iterator[None]:
    cs.register_algorithm("all_reduce", "chain", members="an even number")(chain)
    yield
    ALGORITHMS.remove(("all_reduce", "chain"))


@pytest.mark.usefixtures("registered")
def test_an_algorithm_of_a_user_is_benched_beside_ours() -> None:
    cluster = cs.Cluster.preset("dgx-h100")
    rows = cs.bench(cluster, "all_reduce", "64MiB", algo="chain,ring", library="ideal").results
    slow, ring = (row.time_us for row in rows)
    # A chain of 8 passes the whole buffer 14 times, a ring 14 times an eighth of it.
    assert slow == pytest.approx(8 * ring, rel=0.05)
    assert "chain" in [row.algo for row in cs.bench(
        cluster, "all_reduce", 1024, algo="all", library="ideal").results]  # fmt: skip


@pytest.mark.usefixtures("registered")
def test_an_algorithm_that_needs_even_members_is_refused_for_odd_ones() -> None:
    cluster = cs.Cluster.preset("dgx-h100")
    with pytest.raises(cs.ScenarioError, match="chain"):
        cs.bench(cluster, "all_reduce", 1024, algo="chain", library="ideal", gpus_per_node=7)
    rows = cs.bench(cluster, "all_reduce", 1024, algo="all", library="ideal", gpus_per_node=7)
    assert "chain" not in [row.algo for row in rows.results]


@pytest.mark.usefixtures("registered")
def test_a_name_is_registered_once() -> None:
    with pytest.raises(cs.ScenarioError, match="all_reduce chain exists already"):
        cs.register_algorithm("all_reduce", "chain")(chain)
    with pytest.raises(cs.ScenarioError, match="'allreduce' is not a collective"):
        cs.register_algorithm("allreduce", "other")
    with pytest.raises(cs.ScenarioError, match="members: 'odd' is not one of"):
        cs.register_algorithm("all_reduce", "other", members="odd")


class Settings(cs.Section, frozen=True):
    """What a library of a user can be told."""

    slower: float = 1.0


class SlowIdeal:
    """The textbook library, with the time between start and transfer as `slower` says."""

    name = "slow"
    concurrency = 1

    def __init__(self, settings: Settings) -> None:
        self.slower = settings.slower
        self._ideal = cs.Ideal("ring")

    def plan(self, request: cs.Request, cluster: cs.Cluster | None) -> cs.Plan:
        bytes_ = int(request.size * self.slower)
        return self._ideal.plan(cs.Request(request.kind, bytes_, request.ranks), cluster)


@pytest.fixture
def slow_library() -> Iterator[None]:
    cs.register_library("slow", Settings, "half as fast")(SlowIdeal)
    yield
    LIBRARIES.remove("slow")


@pytest.mark.usefixtures("slow_library")
def test_a_library_of_a_user_with_settings_of_its_own() -> None:
    cluster = cs.Cluster.preset("dgx-h100")

    def time(**settings: object) -> float:
        section = cs.LibrarySection("slow", **settings)
        return cs.bench(cluster, "all_reduce", "64MiB", library=section).results[0].time_us

    assert time(slower=2.0) == pytest.approx(2 * time(), rel=0.03)
    with pytest.raises(cs.ScenarioError, match=r"library\.channels: means nothing to library slow"):
        time(channels=2)
    with pytest.raises(cs.ScenarioError, match=r"library\.slower: 'much' is not a number"):
        time(slower="much")


@pytest.mark.usefixtures("slow_library")
def test_a_scenario_names_it() -> None:
    scenario = {
        "cluster": {"preset": "dgx-h100"},
        "workload": {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]},
    }
    from commsim.scenario import scenario_from

    made = scenario_from({**scenario, "library": {"name": "slow", "slower": 3.0}}, "x.yaml")
    assert made.file.library == cs.LibrarySection("slow", slower=3.0)
    with pytest.raises(cs.ScenarioError, match=r"library: unknown setting 'slowr'\. Did you mean"):
        scenario_from({**scenario, "library": {"name": "slow", "slowr": 3.0}}, "x.yaml")


def plugin(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    found = EntryPoint("mine", value, registry.PLUGINS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [found])
    registry.load_plugins.cache_clear()


def bring_chain() -> None:
    cs.register_algorithm("all_reduce", "plugged_chain")(chain)


def test_a_plugin_is_loaded_when_its_name_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "plugged", sys.modules[__name__])
    plugin(monkeypatch, "plugged:bring_chain")
    try:
        assert ("all_reduce", "plugged_chain") in ALGORITHMS
    finally:
        ALGORITHMS.remove(("all_reduce", "plugged_chain"))
        registry.load_plugins.cache_clear()


def test_a_plugin_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(monkeypatch, "no_such_module:register")
    with pytest.raises(cs.ScenarioError, match=r"plugin 'mine' \(no_such_module:register\): Modu"):
        registry.load_plugins()
    registry.load_plugins.cache_clear()
