"""The next dollar: what it puts first is what independent runs say, and more is never worse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import commsim as cs
from commsim.cli.main import call
from commsim.study.sweep import run_points

SMALL = [
    "all-gather", "all-to-all", "broadcast", "ddp", "dp-pp", "host-offload", "p2p-blocking",
    "reduce-scatter", "ring-all-reduce", "sub-groups", "tensor-parallel", "zero-offload",
]  # fmt: skip
LATENCIES = ("network_latency", "nvlink_latency")
BETTER = {
    "compute": 2, "hbm": 2, "gpu_memory": 2, "nvlink": 2, "pcie": 2, "host_memory": 2, "nic": 2,
    "uplinks": 2, "network_latency": 0.5, "nvlink_latency": 0.5,
}  # fmt: skip
FABRIC: dict[str, Any] = {
    "cluster": {
        "preset": "dgx-h100",
        "nodes": 4,
        "fabric": {"kind": "fat_tree", "nodes_per_leaf": 2},
        "overrides": {"nic": {"bandwidth": "100Gbps"}},
    },
    "workload": {"collectives": [{"op": "all_reduce", "bytes": "64MiB"}]},
    "library": {"name": "ideal", "algo": "ring"},
}


def _first_by_runs(name: str) -> tuple[float, dict[str, float]]:
    """Return the step and what doubling each resource saves, by runs of another path."""
    base = cs.run(name).metrics.step_time_s
    saved = {
        key: base - cs.run(name, cluster={"scale": {key: times}}).metrics.step_time_s
        for key, times in BETTER.items()
    }
    return base, saved


def _check(name: str) -> None:
    found = cs.next_dollar(name, executor="serial")
    base, saved = _first_by_runs(name)
    most = max(saved.values())
    if most >= 0.01 * base:
        assert found.best is not None
        assert saved[found.best.resource] == most == found.best.saved_s
    else:
        assert found.best is None
    for one in found.upgrades:
        if one.kind == "hardware":
            steps = [change.step_time_s or 0.0 for change in one.changes]
            assert steps == sorted(steps, reverse=True), (name, one.resource)
            assert one.saved_s == pytest.approx(saved[one.resource], abs=1e-15)
            halved = cs.run(name, sets=one.changes[0].sets).metrics.step_time_s
            assert one.changes[0].step_time_s == halved  # also of those that were not run


@pytest.mark.share(0.5)
@pytest.mark.parametrize("name", ["ring-all-reduce", "ddp"])
def test_the_first_resource_is_the_one_whose_doubling_saves_most(name: str) -> None:
    _check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_the_first_resource_saves_most_on_the_catalogue(name: str) -> None:
    _check(name)


@pytest.fixture(scope="module")
def of_fabric() -> Any:
    """The next dollar of `FABRIC`."""
    return cs.next_dollar(FABRIC, executor="serial")


def test_what_nothing_goes_over_is_run_once_and_gains_end_where_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def heard(points: Any, executor: str) -> Any:
        asked.extend(f"{path}={value}" for point in points for path, value in point.settings)
        return run_points(points, executor)

    monkeypatch.setattr("commsim.study.next_dollar.runs.run_points", heard)
    cs.next_dollar("all-to-all", executor="serial")
    assert [one for one in asked if "host_memory" in one or "gpu_memory" in one] == [
        "cluster.scale.gpu_memory=2", "cluster.scale.host_memory=2",
    ]  # fmt: skip
    followed = [one for one in asked if one.rpartition("=")[2] in ("4", "8", "16")]
    assert followed == ["cluster.scale.nic=4"]  # no better than 2: 8 and 16 are not asked


def test_a_ring_over_slow_nics_is_proportional_to_them(of_fabric: Any) -> None:
    """Closed form: a ring moves at its slowest link, here a NIC of 12.5 GB/s behind PCIe of 63."""
    found = of_fabric
    nic = next(one for one in found.upgrades if one.resource == "nic")
    half, less, more, twice = (change.step_time_s or 0.0 for change in nic.changes)
    assert found.best is nic
    assert half / found.step_time_s == pytest.approx(2, rel=0.02)
    assert less / found.step_time_s == pytest.approx(1.1, rel=0.01)
    assert found.step_time_s / more == pytest.approx(1.1, rel=0.01)
    assert found.step_time_s / twice == pytest.approx(2, rel=0.03)


def test_uplinks_begin_to_hurt_where_they_are_slower_than_what_crosses_them(of_fabric: Any) -> None:
    """Eight rings cross a trunk of 16 NICs, a NIC's rate each: full at 2:1, 1 % longer past it."""
    found = of_fabric
    uplinks = next(one for one in found.upgrades if one.resource == "uplinks")
    assert uplinks.hurts == pytest.approx(1 / 2.02, rel=0.05)
    assert "at most 50% full" in uplinks.why
    assert "it begins to hurt at 2.1:1" in uplinks.why
    longer = cs.run(FABRIC, [f"cluster.scale.uplinks={uplinks.hurts}"]).metrics.step_time_s
    assert longer >= 1.01 * found.step_time_s


def test_prices_become_money_per_second_saved() -> None:
    price = {"price": 3.0, "source": "a list", "date": "2026-01"}
    priced = FABRIC | {"cluster": FABRIC["cluster"] | {"prices": {"gpu_hour": price}}}
    found = cs.next_dollar(priced, prices={"nic": 0.5}, executor="serial")
    nic = next(one for one in found.upgrades if one.resource == "nic")
    twice = nic.changes[-1].step_time_s or 0.0
    gpus = 32
    # As much per hour more as makes a step cost what it did.
    assert nic.worth_per_hour is not None
    assert (3.0 * gpus + nic.worth_per_hour) * twice == pytest.approx(
        3.0 * gpus * found.step_time_s
    )
    seconds = 3600 * (found.step_time_s - twice) / twice
    assert nic.per_saved_second == pytest.approx(0.5 * gpus / seconds)
    with pytest.raises(cs.ScenarioError, match=r"--price wheels: there is none.*nic"):
        cs.next_dollar(FABRIC, prices={"wheels": 1.0})


def test_the_bill_of_a_bought_cluster_says_what_as_much_again_costs() -> None:
    """4 DGX H100 on two leaves of 16 NICs and 16 uplinks each under one spine."""

    def price(much: float) -> dict[str, Any]:
        return {"price": much, "source": "a list", "date": "2026-01"}

    prices = {
        "node": price(250_000), "nic": price(1_500), "switch": price(20_000), "cable": price(100),
        "optic": price(500), "electricity": price(0.1), "switch_watts": 1000, "pue": 1.5,
        "years": 4,
    }  # fmt: skip
    cluster = {
        "preset": "dgx-h100", "nodes": 4, "prices": prices,
        "fabric": {"kind": "fat_tree", "nodes_per_leaf": 2},
    }  # fmt: skip
    found = cs.next_dollar(FABRIC | {"cluster": cluster}, executor="serial")
    by_key = {one.resource: one for one in found.upgrades}
    hours, kilowatt = 4 * 365 * 24, 0.1 * 1.5
    uplinks = (1 * 20_000 + 32 * (100 + 2 * 500)) / hours + 1 * kilowatt
    nic = (32 * 1_500 + 3 * 20_000 + 64 * (100 + 2 * 500)) / hours + 3 * kilowatt
    assert by_key["uplinks"].price_per_hour == pytest.approx(uplinks, rel=1e-2)
    assert by_key["nic"].price_per_hour == pytest.approx(nic, rel=1e-2)
    assert by_key["uplinks"].buys == "1 switch, 32 cables, 64 optics"
    assert by_key["nvlink"].price_per_hour is None
    assert not by_key["nvlink"].buys


def test_no_cluster_is_nothing_to_buy() -> None:
    with pytest.raises(cs.ScenarioError, match="has no cluster, so there is nothing to buy"):
        cs.next_dollar("1f1b")


@pytest.mark.parametrize("factor", ["0", "-1", "1e9"])
def test_a_factor_must_be_one(factor: str) -> None:
    with pytest.raises(cs.ScenarioError, match=r"cluster\.scale\.nic: .* is no factor"):
        cs.run(FABRIC, [f"cluster.scale.nic={factor}"])


def test_the_command_writes_all_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, data = tmp_path / "n.html", tmp_path / "n.json"
    call(["next", "ring-all-reduce", "--report", str(page), "--json", str(data), "-q"])
    shown = capsys.readouterr().out
    assert "NVLink bandwidth is worth most" in shown
    assert "PCIe bandwidth" in shown
    assert json.loads(data.read_text())["upgrades"][0]["resource"] == "nvlink"
    assert "<table>" in page.read_text()
    assert call(["next", "ring-all-reduce", "--price", "nic"]) == 2
