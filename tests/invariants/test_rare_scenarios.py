"""
Random scenarios of what few use: no rule of `helpers.invariants` is broken, and most of them run.

A failure names its seed and prints the smallest scenario that still fails; the seed then goes
into `SEEDS`. `python -m pytest -m long tests/invariants` runs 3,000, as does
`python benchmarks/random_work.py rare 0 3000` in several processes.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest
from helpers.rare_scenarios import rare_scenario
from helpers.rule_checks import check
from helpers.share import later

SEEDS: dict[int, str] = {
    392: "NCCL took NICs without a fabric for a way between the sockets of a node",
    527: "a message that crosses a link twice began before the members that it needs were there",
}
"""What once failed: why."""

SUITES = [range(15), *(later(range(start, start + 15)) for start in range(15, 120, 15))]
LONG = [range(start, start + 40) for start in range(120, 3_000, 40)]

tried = partial(check, most=16, draw=rare_scenario)


@pytest.mark.parametrize("seeds", SUITES, ids=str)
def test_no_rule_is_broken(seeds: range) -> None:
    assert sum(map(tried, seeds)) > 0.6 * len(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", LONG, ids=lambda seeds: f"{seeds.start}")
def test_no_rule_is_broken_in_thousands(seeds: range) -> None:
    assert sum(map(tried, seeds)) > 0.6 * len(seeds)


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_what_once_failed(seed: int) -> None:
    assert tried(seed)


def words(data: Any) -> set[str]:
    """Return the keys and the texts of plain data."""
    if isinstance(data, dict):
        return {str(key) for key in data}.union(*map(words, data.values()))
    if isinstance(data, list):
        return set[str]().union(*map(words, data))
    return {data} if isinstance(data, str) else set()


RARE = (
    "torus", "dragonfly_plus", "graph", "planes", "adaptive", "congestion", "node", "overrides",
    "scale", "env", "algo", "proto", "pieces", "interface", "experts", "ulysses", "etp", "offload",
    "parameter_server", "dataparallel", "core_attn", "fp8", "steps", "batch_isend_irecv",
    "coalesced", "all_gather_object", "copy_to_host", "side", "synchronize", "backend", "every",
    "dead_nics", "jobs", "breadth_first", "zb_v",
)  # fmt: skip


def test_all_that_is_rare_is_drawn() -> None:
    drawn = Counter(word for seed in range(600) for word in words(rare_scenario(seed)))
    assert [word for word in RARE if drawn[word] < 3] == []
    assert json.dumps(rare_scenario(7)) == json.dumps(rare_scenario(7))
