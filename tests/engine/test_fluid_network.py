"""The fluid network against SimGrid's finish times, and against worked examples."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

from commsim.engine.clock import Clock
from commsim.engine.fluid_network import Flow, FluidNetwork
from commsim.libraries.plan import PlanPhase

CASES = sorted((ROOT / "tests" / "data" / "maxmin").glob("*.json"))
MS = 10**9


def validator() -> Any:
    spec = importlib.util.spec_from_file_location(
        "validate_maxmin", ROOT / "benchmarks" / "validate_maxmin.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_simgrid_agrees(path: Path) -> None:
    case = json.loads(path.read_text())
    found = validator().finish_times(case)
    events = len(case["flows"])
    for mine, theirs in zip(found, case["finish"], strict=True):
        assert abs(mine - theirs) <= max(1e-9 * theirs, events * 1e-12)


def run(*flows: tuple[int, PlanPhase], links: int, speed: float = 50e9) -> list[int]:
    """Return the end in ps of flows that start at given times, on links of one speed."""
    env = Clock()
    network = FluidNetwork(env, np.full(links, speed), log=lambda *_: None, note=lambda _: None)
    ends = [0] * len(flows)

    def go(number: int, start: int, phase: PlanPhase) -> Any:
        yield env.timeout(start)
        yield network.start(phase).reach(1.0)
        ends[number] = env.now

    for number, (start, phase) in enumerate(flows):
        env.process(go(number, start, phase))
    env.run()
    return ends


def ring(links: int = 4, load: float = 1.5e9, conns: float = 1.0) -> PlanPhase:
    """A ring all-reduce of 1 GB over 4 ranks at 50 GB/s and 5 us a hop: T0 = 30.030 ms."""
    ids = np.arange(links)
    return PlanPhase(30_030_000_000, ids, np.full(links, load), np.full(links, conns))


def message(link: int, size: float) -> PlanPhase:
    return PlanPhase(round(size / 50e9 * 1e12), np.array([link]), np.array([size]), np.ones(1))


def test_a_flow_alone_takes_its_idle_time() -> None:
    assert run((0, ring()), links=4) == [30_030_000_000]


def test_two_rings_share_and_latency_hides() -> None:
    """Together they need 3 GB of each link, 60 ms, not twice T0."""
    assert run((0, ring()), (0, ring()), links=4) == [60 * MS, 60 * MS]


def test_a_ring_that_starts_later() -> None:
    assert run((0, ring()), (10 * MS, ring()), links=4) == pytest.approx(
        [50.02 * MS, 60.02 * MS], rel=1e-6
    )


def test_a_ring_and_a_message_get_half_each() -> None:
    assert run((0, ring()), (0, message(0, 1e9)), links=4) == pytest.approx(
        [50.01 * MS, 40 * MS], rel=1e-6
    )


def test_a_hundred_equal_flows_end_at_one_instant() -> None:
    ends = run(*[(0, message(0, 1e6 / 7))] * 100, links=1)
    assert len(set(ends)) == 1


def test_what_moves_is_what_was_asked_for() -> None:
    """Progress over the logged segments of a flow adds up to 1, whoever came and went."""
    env = Clock()
    moved: dict[int, float] = {}

    def log(flow: Flow, now: int) -> None:
        key = id(flow.phase)
        moved[key] = moved.get(key, 0.0) + (now - flow.settled) * flow.rate

    network = FluidNetwork(env, np.full(2, 1e9), log=log, note=lambda _: None)
    phases = [message(i % 2, 1e6 * (i + 1)) for i in range(6)]

    def go(start: int, phase: PlanPhase) -> Any:
        yield env.timeout(start)
        flow = network.start(phase)
        yield flow.reach(0.3)
        yield env.timeout(1000)
        yield flow.reach(1.0)

    for at, phase in enumerate(phases):
        env.process(go(at * MS // 3, phase))
    env.run()
    assert sorted(moved.values()) == pytest.approx([1.0] * 6, rel=1e-9)
