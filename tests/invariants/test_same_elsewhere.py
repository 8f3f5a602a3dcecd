"""A collective takes as long on other nodes of a kind, beside idle ones and beside another job."""

from __future__ import annotations

import random
from typing import Any

import pytest
from helpers.random_scenarios import COLLECTIVES, PRESETS, ROOTED, gpus_per_node
from helpers.share import share

import commsim as cs

SMALL = [preset for preset in PRESETS if gpus_per_node(preset) == 4 and preset != "pcie-rtx5090"]


def drawn(seed: int) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Return a scenario of four nodes, the ranks of two of them, and a call on these."""
    rng = random.Random(f"elsewhere {seed}")
    preset, kind = rng.choice(SMALL), rng.choice(("single_switch", "fat_tree", "rail_optimized"))
    fabric = {"kind": kind} | ({} if kind == "single_switch" else {"nodes_per_leaf": 2})
    half = 2 * gpus_per_node(preset)
    group = sorted(rng.sample(range(half), rng.randint(2, half)))
    op = rng.choice([one for one in COLLECTIVES if one != "barrier"])
    call: dict[str, Any] = {
        "op": op,
        "bytes": f"{4 * len(group) * 2 ** rng.randint(0, 16)}B",
        "group": group,
    }
    if op in ROOTED:
        call["root"] = rng.choice(group)
    data: dict[str, Any] = {
        "cluster": {"preset": preset, "nodes": 4, "fabric": fabric},
        "library": {"name": rng.choice(("nccl", "ideal", "gloo"))},
        "engine": {"network": rng.choice(("fluid", "steps"))},
    }
    return data, half, call


def moved(call: dict[str, Any], ranks: int) -> dict[str, Any]:
    root = {"root": call["root"] + ranks} if "root" in call else {}
    return call | {"group": [rank + ranks for rank in call["group"]]} | root


def took(data: dict[str, Any], call: dict[str, Any]) -> int:
    return int(cs.run(data | {"workload": {"collectives": [call]}}).timeline.end.max())


@pytest.mark.parametrize("seed", share(range(100, 140), 1 / 10))
def test_a_collective_takes_as_long_elsewhere(seed: int) -> None:
    data, half, call = drawn(seed)
    here = took(data, call)
    assert took(data, moved(call, half)) == here
    assert took(data | {"cluster": data["cluster"] | {"nodes": 2}}, call) == here
    jobs = [
        {"name": name, "ranks": ranks, "workload": {"collectives": [call]}}
        for name, ranks in (("a", [*range(half)]), ("b", [*range(half, 2 * half)]))
    ]
    both = cs.run(data | {"jobs": jobs}).extra["jobs"]
    assert [job["step_time_s"] for job in both] == pytest.approx([here * 1e-12] * 2, rel=1e-9)
