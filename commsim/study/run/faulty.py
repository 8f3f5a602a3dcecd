"""
A scenario with faults: a healthy run to hold it against, then a run per draw, and their spread.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Floats
from commsim.cluster import Cluster
from commsim.engine import (
    DrawnFaults,
    Extension,
    FaultsSection,
    Planner,
    check_faults,
    draw_dead,
    draw_faults,
    in_windows,
)
from commsim.errors import ScenarioError
from commsim.follow import Follow, followed, unfollowed
from commsim.graph import Graph, OpKind, rank_lanes
from commsim.metrics import measured_window
from commsim.scenario import Scenario
from commsim.study.run.result import Result
from commsim.units import format_time

__all__ = ["Strike", "with_faults"]

_LEAST_SEEN = 8  # ops of one name, for what a median is worth
_MOST_LISTED = 12


class Strike(msgspec.Struct, frozen=True):
    """What strikes one run: `faults`, whose windows count from `begin` ps of the run."""

    faults: DrawnFaults
    begin: int

    def in_windows(self, graph: Graph, planner: Planner | None) -> Sequence[Extension]:
        """Return the extensions for what comes and goes."""
        like = np.zeros(0, np.int64) if planner is None else planner.equivalent_links()
        return in_windows(self.faults, self.begin, rank_lanes(graph), like)


def with_faults(
    scenario: Scenario,
    once: Callable[..., Result],
    *,
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
) -> Result:
    """Return the run with the median step of those that `scenario.file.faults` draws.

    `once` runs a scenario. The JSON's key `faults` has the healthy step, mean, p50 and p99, and
    every draw.

    Raises:
        ScenarioError: no cluster, or a fault of something that is not there.
    """
    section = scenario.file.faults
    assert section is not None
    _check(scenario, section)
    where, pool = f"{scenario.where}: faults", _Pool(Path(scenario.folder))
    check = partial(check_faults, section, where=where, pool=pool)
    progress("the healthy run")
    healthy = once(scenario, draw=check)
    base, cluster = healthy.metrics.step_time_s, healthy.cluster
    begin = int(measured_window(healthy.timeline).first)
    del healthy  # timelines are large: one is there at a time, and the collector may be paused
    gc.collect()
    assert cluster is not None
    draws: list[dict[str, Any]] = []

    def sample_run(sample: int) -> tuple[Result, dict[str, Any]]:
        dead = draw_dead(section, cluster, sample, where=where)
        drawn: list[DrawnFaults] = []
        draw = partial(_strike, section, sample, where, pool, begin, drawn)
        result = once(scenario, dead=dead, draw=draw)
        told = _told(drawn[-1] if drawn else DrawnFaults(), dead, result)
        return result, {"step_time_s": result.metrics.step_time_s, "faults": told}

    shown = 0
    progress(f"draws of faults, {section.samples:,}")
    for sample in followed(range(section.samples), follow):
        result, told = sample_run(sample)
        draws.append(told)
        if section.samples > 1:
            del result
            gc.collect()
    if section.samples > 1:  # the one that is shown is made again
        order = np.argsort([draw["step_time_s"] for draw in draws], kind="stable")
        shown = int(order[(len(order) - 1) // 2])
        result = sample_run(shown)[0]
    return _summary(section, base, result, draws, shown)


def _summary(
    section: FaultsSection,
    base: float,
    middle: Result,
    draws: list[dict[str, Any]],
    shown: int,
) -> Result:
    steps = np.array([draw["step_time_s"] for draw in draws])
    mean, p50, p99 = (float(v) for v in (steps.mean(), *np.quantile(steps, (0.5, 0.99))))
    longer = mean / base - 1 if base else 0.0
    many = f" (p50 {_time(p50)}, p99 {_time(p99)}, {len(steps)} draws)" if len(steps) > 1 else ""
    preface = f"Healthy {_time(base)}, with faults {_time(mean)}{many}: {longer:+.1%}."
    # With links alone a rank is late because its own transfers are: the headline names those.
    late = section.slow_gpus or section.jitter
    waits = [wait for wait in middle.waits if late and wait.kind != "bubble"][:1]
    if waits and waits[0].seconds > 0.01 * p50:
        preface += f" Rank {waits[0].rank} waits {_time(waits[0].seconds)} for {waits[0].peer}."
    if len(steps) > 1:
        preface += " The median draw:"
    found = {
        "healthy_step_time_s": base,
        "mean_s": mean,
        "p50_s": p50,
        "p99_s": p99,
        "seed": section.seed,
        "draws": draws,
    }
    notes = (
        *_notes(section),
        *(f"faults: {line}" for line in draws[shown]["faults"]),
        *middle.notes,
    )
    told = replace(middle, notes=notes, preface=preface, extra={**middle.extra, "faults": found})
    told.__dict__.update(middle.__dict__)  # who waits for whom: of millions of spans, seconds
    return told


def _notes(section: FaultsSection) -> list[str]:
    notes = []
    if section.dead_nics:
        notes.append(
            "faults: a NIC that dies in a run ends it, unless NCCL 2.29.7 or later has"
            " NCCL_IB_RESILIENCY_PORT_FAILOVER=1 (off by default) and the GPU another port; this is"
            " a run that began without it."
        )
    if section.samples > 1:
        notes.append("faults: timeline and tables are those of the median draw.")
    return notes


def _check(scenario: Scenario, section: FaultsSection) -> None:
    where = f"{scenario.where}: faults"
    if scenario.file.cluster is None:
        raise ScenarioError(f"{where}: needs a cluster that could break: add cluster.")
    timed = [one for one in section.slow_gpus if one.start is not None or one.end is not None]
    timed_links = [
        one
        for one in section.slow_links
        if one.start is not None or one.end is not None or one.every is not None
    ]
    engine = scenario.file.engine
    if timed_links and engine.network != "fluid":
        raise ScenarioError(f"{where}.slow_links: what comes and goes needs engine.network: fluid.")
    if timed and not engine.overlap_slowdown:
        raise ScenarioError(
            f"{where}.slow_gpus: what comes and goes needs engine.overlap_slowdown: true."
        )


def _strike(
    section: FaultsSection,
    sample: int,
    where: str,
    pool: Callable[[str], Floats],
    begin: int,
    drawn: list[DrawnFaults],
    cluster: Cluster,
) -> Strike:
    faults = draw_faults(section, cluster, sample, where=where, pool=pool)
    drawn.append(faults)
    return Strike(faults, begin)


class _Pool:
    """What traces say of jitter: each compute op's time over the median of its name and rank."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Floats] = {}

    def __call__(self, name: str) -> Floats:
        if name not in self._known:
            from commsim.traces import import_graph

            self._known[name] = _spread(import_graph(self._folder / name).graph, name)
        return self._known[name]


def _spread(graph: Graph, name: str) -> Floats:
    ops = np.flatnonzero((graph.kind == OpKind.COMPUTE) & (graph.duration > 0))
    key = graph.name[ops] * len(graph.lane_rank) + graph.lane[ops]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    groups = [graph.duration[ops[part]] for part in np.split(order, cuts)]
    factors = [times / np.median(times) for times in groups if len(times) >= _LEAST_SEEN]
    if not factors:
        raise ScenarioError(
            f"faults.jitter.trace: {name} has no compute op {_LEAST_SEEN} times, so it shows no"
            " spread."
        )
    return np.concatenate(factors).astype(np.float64)


def _told(faults: DrawnFaults, dead: tuple[tuple[int, int], ...], result: Result) -> list[str]:
    """Return what was drawn, in words."""
    names = result.timeline.links.names
    lines = [f"NIC {nic} of node {node} is dead" for node, nic in dead]
    lines += [
        f"rank {one.rank} computes {one.factor:g} times as long"
        + ("" if one.start is None else f" from {format_time(one.start)} on")
        for one in faults.slow_gpus
    ]
    lines += [
        f"{names[one.links[0]]} carries {one.left:.0%}"
        + ("" if one.windows is None else f" in {len(one.windows)} windows")
        for one in faults.slow_links
    ]
    lines += [
        f"jitter of {'all ranks' if one.ranks is None else f'{len(one.ranks)} ranks'}"
        + (" as recorded" if one.pool is not None else f", {one.distribution} {one.spread:g}")
        for one in faults.noise
    ]
    return lines if len(lines) <= _MOST_LISTED else [*lines[:_MOST_LISTED], "and more"]


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12)
