"""
Every numeric setting of a cluster moves a time, is refused, or is named as without effect.

The settings are found by walking the schema: a new field is tried without a word here. A worse
component never makes an algorithm faster, and no time is below its bound.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from typing import Any

import pytest
from helpers.paths import ROOT
from helpers.settings import Setting, settings_of
from helpers.share import share

from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.study.bench import bench
from commsim.study.run.run import run

LIBRARIES = ("nccl", "ideal", "gloo")
OPS = {
    "nccl": ("all_reduce", "all_gather", "broadcast", "all_to_all", "send_recv"),
    "ideal": ("all_reduce", "all_to_all"),
    "gloo": ("all_reduce", "broadcast"),
}
ALGOS = {"nccl": "all", "ideal": "ring,direct", "gloo": "auto"}
SIZES = (1 << 10, 1 << 22)
TREE = {"kind": "fat_tree", "nodes_per_leaf": 1, "oversubscription": 8.0}
PLACES: dict[str, dict[str, Any]] = {
    "two halves of a DGX H100": {
        "preset": "dgx-h100", "nodes": 2,
        "overrides": {"gpu": {"count": 4}, "nic": {"count": 4}},
    },
    "a DGX H100": {"preset": "dgx-h100"},
    "two DGX-1V": {"preset": "dgx-1v", "nodes": 2},
    "GPUs without peer access": {"preset": "pcie-rtx5090"},
    "GPUs of two sockets": {"preset": "pcie-l40s"},
    "CPUs": {"preset": "cpu-ethernet", "nodes": 4},
    "staged NICs": {"preset": "aws-g5", "nodes": 2},
    "superchips": {
        "preset": "gb200-nvl72", "nodes": 2, "overrides": {"nvlink": {"domain_nodes": 1}},
    },
    "a tree by its radix": {"preset": "dgx-a100", "nodes": 4, "fabric": {"kind": "fat_tree"}},
    "a thin tree": {
        "preset": "aws-g5", "nodes": 8, "fabric": {**TREE, "spines": 8, "ecmp": "hash"},
    },
}  # fmt: skip
FIRST = next(iter(PLACES))
PAGE = (ROOT / "docs" / "reference" / "clusters.md").read_text("utf-8")

Rows = dict[tuple[str, int, str, str | None, int | None], tuple[float, float]]


def named_without_effect() -> dict[str, set[str]]:
    """Return the table of the page: setting -> libraries whose times it leaves alone."""
    table = PAGE.split("## What a setting changes")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for settings, libraries in re.findall(r"^\| (`.+?) \| .+ \| (.+) \|$", table, re.MULTILINE):
        for setting in re.findall(r"`([\w.]+)`", settings):
            found[setting] = set(LIBRARIES) if libraries == "all" else set(libraries.split(", "))
    return found


@pytest.fixture(autouse=True)
def no_crossovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times alone: sizes between them, at which the fastest changes, are half the work."""
    monkeypatch.setattr(sys.modules["commsim.study.bench.bench"], "fastest_changes", lambda *_: [])


def timed(
    section: dict[str, Any], library: str, sizes: tuple[int, ...] = SIZES
) -> Callable[[str], Rows]:
    """Return what times an op on a cluster: nothing is timed that nobody asks for."""
    cluster = cluster_from(section, "test")

    def rows_of(op: str) -> Rows:
        algo = ALGOS[library]
        return {
            (r.op, r.size, r.algo, r.proto, r.nchannels): (r.time_us, r.bound_us or 0.0)
            for r in bench(cluster, op, sizes, algo=algo, library=library).results
        }

    return rows_of


def rows(section: dict[str, Any], library: str, sizes: tuple[int, ...] = SIZES) -> Rows:
    each = timed(section, library, sizes)
    return {key: row for op in OPS[library] for key, row in each(op).items()}


@cache
def usual(place: str, library: str, op: str) -> Rows:
    return timed(PLACES[place], library)(op)


FASTER = {
    ("two DGX-1V", "ideal"): {
        (path, "all_reduce", size, "ring")
        for path in ("fabric.congestion", "nic.bandwidth", "nic.efficiency", "pcie.efficiency",
                     "pcie.generation", "pcie.width")
        for size in (8, 65536)
    } | {
        ("fabric.congestion", "all_to_all", 65536, "ring"),
        ("nic.gdr", "all_to_all", 65536, "ring"),
        ("pcie.width", "all_to_all", 65536, "ring"),
    },
    ("staged NICs", "ideal"): {
        ("cpu.dram_bandwidth", "all_reduce", 65536, "direct"),
        ("cpu.dram_efficiency", "all_reduce", 65536, "direct"),
        ("cpu.latency", "all_reduce", 1 << 27, "direct"),
        ("pcie.width", "all_reduce", 1 << 27, "direct"),
        ("pcie.width", "all_reduce", 1 << 27, "ring"),
        ("pcie.width", "all_to_all", 1 << 27, "ring"),
    },
}  # fmt: skip
"""By place and library, what a worse part makes faster: (setting, op, size, algorithm). Messages
that queue whole for a link that several rings share meet there in another order."""


def runs_here(place: str, library: str) -> bool:
    return (place == "CPUs") <= (library == "gloo")


@cache
def settings_at(place: str) -> dict[str, Setting]:
    at = PLACES[place]
    return {each.path: each for each in settings_of(at["preset"], at.get("fabric"))}


def differs(path: str, place: str, library: str) -> bool | None:
    """Say whether a setting moves a time of a place; None if it is refused or not there."""
    if path not in settings_at(place):
        return None
    try:
        now = timed(settings_at(place)[path].within(PLACES[place]), library)
        return any(
            {key: time for key, (time, _) in now(op).items()}
            != {key: time for key, (time, _) in usual(place, library, op).items()}
            for op in OPS[library]
        )
    except ScenarioError:
        return None


def moves(path: str, library: str, places: Iterable[str]) -> bool | None:
    """Say whether a setting moves a time somewhere; None: it is refused wherever it is tried."""
    refused = True
    for place in places:
        found = differs(path, place, library) if runs_here(place, library) else None
        if found:
            return True
        refused = refused and found is None
    return None if refused else False


EVERY = sorted({path for place in PLACES for path in settings_at(place)})
WORSE = [path for path, setting in settings_at(FIRST).items() if setting.worsens]


def test_the_walk_finds_the_settings_that_people_change() -> None:
    assert {
        "nic.bandwidth", "nic.efficiency", "nic.latency", "nvlink.bandwidth", "nvlink.per_link",
        "pcie.generation", "fabric.cable_latency", "fabric.switch_latency", "gpu.tflops",
        "c2c.bandwidth", "cpu.dram_bandwidth", "nic.gdr", "fabric.oversubscription",
    } <= set(EVERY)  # fmt: skip
    assert len(EVERY) > 40


@pytest.mark.share(0.5)
@pytest.mark.parametrize(
    "library", ["nccl", *(pytest.param(name, marks=pytest.mark.long) for name in LIBRARIES[1:])]
)
@pytest.mark.parametrize("path", EVERY)
def test_a_setting_moves_a_time_or_is_refused_or_named(path: str, library: str) -> None:
    if library in named_without_effect().get(path, set()):
        assert not moves(path, library, list(PLACES)[:2])
    else:
        assert moves(path, library, PLACES) in (True, None)


@pytest.mark.share(0.6)
@pytest.mark.parametrize(("path", "library"), [
    *((path, "nccl") for path in WORSE), *share(product(WORSE, LIBRARIES[1:]), 0.3),
])  # fmt: skip
def test_a_worse_component_is_never_faster_nor_below_the_bound(path: str, library: str) -> None:
    try:
        now = rows(settings_at(FIRST)[path].within(PLACES[FIRST]), library)
    except ScenarioError:
        return
    before = {key: row for op in OPS[library] for key, row in usual(FIRST, library, op).items()}
    for key, (time, least) in now.items():
        assert time >= least * (1 - 1e-9), key
        assert key not in before or time >= before[key][0] * (1 - 1e-9), key


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("place", list(PLACES))
def test_every_place(place: str, library: str) -> None:
    if not runs_here(place, library):
        pytest.skip("no GPUs")
    sizes = (8, 1 << 16, 1 << 27)
    before = rows(PLACES[place], library, sizes)
    faster: set[tuple[Any, ...]] = set()
    for setting in settings_at(place).values():
        try:
            now = rows(setting.within(PLACES[place]), library, sizes)
        except ScenarioError:
            continue
        for key, (time, least) in now.items():
            assert time >= least * (1 - 1e-9), (setting, key)
            if setting.worsens and key in before and time < before[key][0] * (1 - 1e-9):
                faster.add((setting.path, *key[:3]))
    assert faster == FASTER.get((place, library), set())
    for path, libraries in named_without_effect().items():
        assert library not in libraries or not moves(path, library, [place]), path


@cache
def step_and_memory(*sets: str) -> tuple[Any, Any]:
    ran = run("quickstart", ["workload.training.model.layers=4", *sets]).to_dict()
    return ran["step_time_s"], ran["memory_gib"]


@pytest.mark.parametrize(
    "setting", ["gpu.memory=8GiB", "gpu.memory_bandwidth=1TB/s", "gpu.tflops={bf16: 100}",
                "gpu.sm_count=40"],
)  # fmt: skip
def test_what_leaves_collectives_alone_moves_the_step(setting: str) -> None:
    path, value = setting.split("=")
    assert step_and_memory() != step_and_memory(f"cluster.overrides.{path}={value}")
