"""
Random valid scenarios: whatever is run on whatever, no rule of `helpers.invariants` is broken.

A failure names its seed and prints the smallest scenario that still fails; the seed then goes
into `SEEDS`. `python -m pytest -m long tests/invariants` runs 20,000, as does
`python benchmarks/random_work.py scenarios 0 20000` in several processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.invariants import exports_differ
from helpers.kept import account_of_run, kept, moved
from helpers.paths import ROOT
from helpers.random_scenarios import scenario
from helpers.rule_checks import check, checked
from helpers.share import share, share_of_each

import commsim as cs

SMALL = 8
SEEDS: dict[tuple[int, int], str] = {
    (26, 16): "channels of the ideal library that share a link were timed as if each had it alone",
    (27, 16): "the same over PCIe",
    (111, 16): "the same, an all-gather among eight",
    (2510, 16): "the flow of a send without bytes, in slices on links that others use",
    (6775, 16): "a broadcast of nothing did not wait for the last of its members",
    (13307, 16): "a link to two NICs of one GPU stood twice in a hop, as two free links would",
}
"""(seed, most GPUs) of what once failed: why."""

SUITES = share([range(start, start + 25) for start in range(0, 300, 25)], 1 / 6)
LONG = [range(start, start + 100) for start in range(300, 20_000, 100)]


@pytest.mark.parametrize("seeds", SUITES, ids=str)
def test_no_rule_is_broken(seeds: range) -> None:
    """Nor has anything moved that a run says, but where `benchmarks/kept_figures.py` wrote it."""
    ran = {str(seed): result for seed in seeds if (result := checked(seed, SMALL))}
    assert len(ran) > 0.8 * len(seeds)
    for seed, before in kept("random").items():
        if int(seed) in seeds:
            assert moved(before, account_of_run(ran[seed], depth=1)) == [], f"seed {seed}"


@pytest.mark.long
@pytest.mark.parametrize("seeds", LONG, ids=lambda seeds: f"{seeds.start}")
def test_no_rule_is_broken_in_thousands(seeds: range) -> None:
    ran = sum(check(seed, 16) for seed in seeds)
    assert ran > 0.8 * len(seeds)


@pytest.mark.parametrize(("seed", "most"), SEEDS, ids=str)
def test_what_once_failed(seed: int, most: int) -> None:
    assert check(seed, most)


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_exports_tell_what_the_run_says(seed: int, tmp_path: Path) -> None:
    try:
        result = cs.run(scenario(seed, most=SMALL))
    except cs.ScenarioError:
        return
    assert exports_differ(result, tmp_path) == []


@pytest.mark.parametrize("seed", range(1100, 1106))
def test_the_same_on_repeat(seed: int) -> None:
    data = scenario(seed, most=SMALL)
    try:
        first, second = cs.run(data), cs.run(data)
    except cs.ScenarioError:
        return
    assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
    assert np.array_equal(first.timeline.end, second.timeline.end)


def test_the_same_whatever_strings_hash_to() -> None:
    script = (
        "import json, commsim as cs\n"
        "from helpers.random_scenarios import scenario\n"
        "for seed in range(1200, 1203):\n"
        "    try:\n"
        "        print(json.dumps(cs.run(scenario(seed, most=8)).to_dict()))\n"
        "    except cs.ScenarioError as error:\n"
        "        print(error)\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "tests")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert len(told[0]) > 500


def training(seed: int) -> dict[str, Any]:
    """Return the first random training from a seed on, on more GPUs than are shown whole."""
    while True:
        data = scenario(seed, most=32)
        work = data.get("workload", {}).get("training")
        if work is not None and data["cluster"]["nodes"] > 2 and "faults" not in data:
            data["engine"] = {"network": "fluid"}
            return data
        seed += 1


@pytest.mark.parametrize("seed", range(2000, 2080, 20))
def test_folded_is_unfolded(seed: int) -> None:
    data = training(seed)
    try:
        folded = cs.run(data)
    except cs.ScenarioError:
        return
    whole = cs.run(data | {"engine": {"network": "fluid", "fold": "off"}})
    assert len(folded.timeline.graph.lane_rank) <= len(whole.timeline.graph.lane_rank)
    assert folded.metrics.step_time_s == pytest.approx(whole.metrics.step_time_s, rel=1e-6)
    ours, theirs = folded.metrics.breakdown, whole.metrics.breakdown
    step = whole.metrics.step_time_s
    for part in ("compute_s", "exposed_transfer_s", "waiting_s", "idle_s"):
        assert getattr(ours, part) == pytest.approx(getattr(theirs, part), abs=1e-6 * step)


ONE_OP = {"all_reduce": "ring", "all_gather": "ring", "broadcast": "ring", "all_to_all": "direct"}


def step_time(op: str, preset: str, **scale: float) -> float:
    """Return how long one op takes, by one algorithm, on two nodes with parts of another speed."""
    root = {"root": 0} if op == "broadcast" else {}
    data: dict[str, Any] = {
        "cluster": {"preset": preset, "nodes": 2, "scale": scale},
        "library": {"name": "ideal", "algo": ONE_OP[op]},
        "workload": {"collectives": [{"op": op, "bytes": "8MiB", **root}]},
    }
    return float(cs.run(data).metrics.step_time_s)


usual = cache(step_time)
PARTS = ("nic", "uplinks", "nvlink", "pcie", "network_latency")
PRESETS = ("dgx-h100", "aws-p3dn", "pcie-a100")


@pytest.mark.parametrize(("part", "op", "preset"), share_of_each(
    [(part,) for part in PARTS], product(ONE_OP, PRESETS), 1 / 3
))  # fmt: skip
def test_worse_parts_are_never_faster(part: str, op: str, preset: str) -> None:
    """One op by one algorithm: of several, a slower link may reorder them and save time."""
    worse = 2.0 if part.endswith("latency") else 0.5
    assert step_time(op, preset, **{part: worse}) >= usual(op, preset) * (1 - 1e-9)


@pytest.mark.parametrize(("left", "milliseconds"), [(1.0, 3.0034), (0.5, 3.0292), (0.3, 3.0033)])
def test_messages_that_meet_in_another_order_may_save_time(
    left: float, milliseconds: float
) -> None:
    """What the page on flows and messages says of Gloo's reduce: not the slowest NIC is slowest."""
    data: dict[str, Any] = {
        "cluster": {"preset": "dgx-1v", "nodes": 3},
        "library": {"name": "gloo"},
        "workload": {"collectives": [{"op": "reduce", "bytes": "2073600B", "root": 1}]},
        "faults": {"slow_links": [{"link": "node0/nic0", "left": left}]},
    }
    assert cs.run(data).metrics.step_time_s * 1e3 == pytest.approx(milliseconds, abs=1e-4)
