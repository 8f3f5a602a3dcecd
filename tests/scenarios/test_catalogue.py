"""Every scenario of the catalogue: its expected figures, and the closed forms behind them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from helpers.kept import Account, account, account_without_limits, kept, moved
from helpers.paths import ROOT
from helpers.share import later

from commsim.study.run import run

FOLDER = ROOT / "scenarios"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LONG = {"llama3-405b", "own-fabric-thin", "buy-aws-p5"}
"""What takes seconds; `own-fabric-full` and another of `buy` stand for the latter two."""


@cache
def said(name: str) -> tuple[dict[str, Any], Account]:
    """Return the JSON of a scenario, but for what takes as long again: who limits it.

    Beside it stands its account.
    """
    found = run(name)
    data = {**found.metrics.to_dict(), **found.extra}
    return data, account_without_limits(found)


def result(name: str) -> dict[str, Any]:
    return said(name)[0]


@pytest.mark.parametrize("name", [later(name) if name in LONG else name for name in NAMES])
def test_nothing_that_a_run_says_has_moved(name: str) -> None:
    """But where `benchmarks/kept_figures.py` wrote it again."""
    assert moved(kept("catalogue")[name], said(name)[1]) == []


@pytest.mark.share(0.2)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG])
def test_every_scenario_says_what_limits_it(name: str) -> None:
    found = run(name)
    assert all(one.removed_s > 0 for one in found.limits)
    assert found.headline.endswith(".")
    assert moved(kept("limits")[name], account(found.to_dict())) == []


@pytest.mark.parametrize("name", [later(name) if name in LONG else name for name in NAMES])
def test_the_expected_figures(name: str) -> None:
    """NAME.expected.json holds paths into the run's JSON and what stands there."""
    expected = json.loads((FOLDER / f"{name}.expected.json").read_text())
    assert expected
    for path, value in expected.items():
        found: Any = result(name)
        for step in path.split("."):
            found = found[int(step) if step.isdecimal() else step]
        exact = isinstance(value, str)
        assert found == (value if exact else pytest.approx(value, rel=1e-6)), path


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_short_and_says_what_to_see(name: str) -> None:
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    assert len(lines) < 40
    assert lines[0].startswith("# ")


def test_bubbles_are_the_closed_forms() -> None:
    assert result("naive-model-parallel")["bubble_fraction"] == pytest.approx(1 / 2, abs=1e-12)
    assert result("gpipe")["bubble_fraction"] == pytest.approx(3 / 7, abs=1e-12)
    assert result("1f1b")["bubble_fraction"] == pytest.approx(3 / 11, abs=1e-12)


def test_a_server_is_n_times_slower_than_a_ring() -> None:
    """2 (n-1) S / B against 2 (n-1)/n S / B."""
    server, ring = (result(n)["step_time_s"] for n in ("reduce-to-server", "ring-all-reduce"))
    assert server / ring == pytest.approx(8, rel=0.01)


def test_nonblocking_hides_the_transfer() -> None:
    blocking, free = (result(f"p2p-{n}") for n in ("blocking", "nonblocking"))
    transfer = blocking["step_time_s"] - 5e-3 if blocking["step_time_s"] > 5e-3 else 0
    # 4 ms of work, and what a kernel on one SM of 132 takes from it
    assert 4e-3 < free["step_time_s"] < 4.04e-3
    assert transfer > 0.5e-3


def test_data_parallel_hides_all_but_the_last_bucket() -> None:
    ddp = result("ddp")
    assert 0 < ddp["breakdown"]["exposed_transfer_s"] < 0.25 * ddp["breakdown"]["comm_s"]


@pytest.mark.long
def test_llama3_405b_fits_and_is_half_bubble() -> None:
    """16 lanes stand for all GPUs; 1F1B with as many microbatches as stages: 15/31 at least."""
    found = result("llama3-405b")
    assert found["memory_gib"]["fits"]
    assert [rank["multiplicity"] for rank in found["ranks"]] == [1024] * 16
    assert 15 / 31 <= found["bubble_fraction"] < 0.52


def test_a_torus_uses_four_links_where_one_ring_has_one() -> None:
    by_dimensions = run("torus").metrics.step_time_s
    one_ring = run("torus", sets=["library.algo=ring"]).metrics.step_time_s
    assert 3.4 < one_ring / by_dimensions < 4


def test_adaptive_routing_spares_half_of_what_two_neighbours_share() -> None:
    """Two thirds of each of two messages go round: 4/3 of S on the fullest trunk, not 2."""
    adaptive = run("dragonfly").metrics.step_time_s
    even = run("dragonfly", sets=["cluster.fabric.ecmp=even"]).metrics.step_time_s
    assert even / adaptive == pytest.approx(1.5, rel=1e-3)
