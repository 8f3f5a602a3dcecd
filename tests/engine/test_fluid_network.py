"""The fluid network against SimGrid's finish times, and against worked examples."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.flow_logs import NoLog, Progress
from helpers.paths import ROOT

from commsim.engine import fluid_network
from commsim.engine.clock import Clock
from commsim.engine.fair_share import Sharers, fair_again
from commsim.engine.fluid_network import FluidNetwork
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
    network = FluidNetwork(env, np.full(links, speed), log=NoLog(), note=lambda _: None)
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


def test_a_flow_that_was_slowed_does_not_end_when_it_would_have() -> None:
    """At 20 ms, when another does, it has half a GB left; the flow that slowed it ends last."""
    flows = ((0, message(0, 1e9)), (0, message(1, 1e9)), (10 * MS, message(1, 1e9)))
    assert run(*flows, links=2) == [20 * MS, 30 * MS, 40 * MS]


def test_a_hundred_equal_flows_end_at_one_instant() -> None:
    ends = run(*[(0, message(0, 1e6 / 7))] * 100, links=1)
    assert len(set(ends)) == 1


def test_flows_as_columns_take_their_weeks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluid_network, "_AS_COLUMNS", 8)
    weeks = 0.9 * 2**62
    ends = run(*[(0, message(0, 1e6))] * 16, links=1, speed=16e6 / weeks * 1e12)
    assert ends == pytest.approx([weeks] * 16, rel=1e-9)


def test_what_moves_is_what_was_asked_for() -> None:
    """Progress over the logged segments of a flow adds up to 1, whoever came and went."""
    env = Clock()
    log = Progress()
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
    assert sorted(log.moved.values()) == pytest.approx([1.0] * 6, rel=1e-9)


def crossing(seed: int, flows: int, links: int) -> tuple[np.ndarray, list[tuple[int, PlanPhase]]]:
    """Return capacities, and flows over a few random links each that begin at random times."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(flows):
        chosen = np.sort(rng.choice(links, size=int(rng.integers(1, 6)), replace=False))
        load = np.full(len(chosen), float(rng.uniform(1e6, 1e9)))
        conns = np.full(len(chosen), float(rng.integers(1, 4)))
        start = int(rng.integers(0, 4)) * 10 * MS
        made.append((start, PlanPhase(int(rng.integers(1, 20 * MS)), chosen, load, conns)))
    return np.exp(rng.normal(24, 0.5, links)), made


def ends_of(
    capacity: np.ndarray, flows: list[tuple[int, PlanPhase]], log: Any = None
) -> tuple[list[int], int]:
    """Return when flows end while a link slows down and recovers, and how often rates changed."""
    env = Clock()
    network = FluidNetwork(env, capacity, log=log or NoLog(), note=lambda _: None)
    ends = [0] * len(flows)

    def go(number: int, start: int, phase: PlanPhase) -> Any:
        yield env.timeout(start)
        yield network.start(phase).reach(0.5)
        yield env.timeout(MS)
        rest = PlanPhase(phase.idle, phase.link, phase.load, phase.conns)
        yield network.start(rest).reach(1.0)
        ends[number] = env.now

    def slow() -> Any:
        for share in (0.3, 1.0):
            yield env.timeout(15 * MS)
            network.set_link(0, share)

    for number, (start, phase) in enumerate(flows):
        env.process(go(number, start, phase))
    env.process(slow())
    env.run()
    return ends, network.solved


def expected_ends(
    capacity: np.ndarray, flows: list[tuple[int, PlanPhase]], patch: pytest.MonkeyPatch
) -> tuple[list[int], int]:
    """Return when flows end if all of them are solved together each time, and how often that is."""
    with patch.context() as all_together:
        all_together.setattr(fluid_network, "fair_again", lambda *_, **__: None)
        all_together.setattr(FluidNetwork, "_together", lambda _: None)
        return ends_of(capacity, flows)


def assert_same(found: list[int], expected: list[int], solved: int) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert abs(mine - theirs) <= max(1e-9 * theirs, solved)


@pytest.mark.parametrize("seed", range(2))
def test_many_flows_end_when_solving_all_of_them_each_time_has_them_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As columns."""
    monkeypatch.setattr(fluid_network, "_AS_COLUMNS", 64)
    capacity, flows = crossing(seed, 150, 80)
    looked_at: list[int] = []
    share = Sharers.share_again

    def watched(sharers: Sharers) -> Any:
        found = share(sharers)
        looked_at.append(len(found[0]))
        return found

    monkeypatch.setattr(Sharers, "share_again", watched)
    found, _ = ends_of(capacity, flows)
    assert sum(count < 40 for count in looked_at) > 50  # most instants were solved in part
    assert_same(found, *expected_ends(capacity, flows, monkeypatch))


def test_many_flows_end_as_they_should_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that never ends has other bytes per connection on its two links."""
    capacity, flows = crossing(0, 150, 80)
    flows.append((0, PlanPhase(1, np.array([0, 1]), np.array([1e9, 2e10]), np.ones(2))))
    again: list[int] = []

    def watched(*args: Any, **settings: Any) -> Any:
        found = fair_again(*args, **settings)
        again.append(-1 if found is None else len(found))
        return found

    with monkeypatch.context() as watching:
        watching.setattr(fluid_network, "fair_again", watched)
        found, _ = ends_of(capacity, flows)
    assert sum(0 <= count < 40 for count in again) > 50
    assert_same(found, *expected_ends(capacity, flows, monkeypatch))


def heard(function: Any, name: str, calls: list[str]) -> Any:
    """Return a function that also notes that it has been called."""

    def noting(*args: Any) -> Any:
        calls.append(name)
        return function(*args)

    return noting


@pytest.mark.parametrize("seed", range(3))
def test_flows_go_from_columns_to_one_by_one_and_back(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve flows are many here; some have other bytes per connection on their links."""
    capacity, flows = crossing(seed, 60, 30)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        load = rng.uniform(1e6, 1e9, 2)
        start = int(rng.integers(5, 60)) * MS
        flows.append((start, PlanPhase(1, np.array([3, 7]), load, np.ones(2))))
    expected = expected_ends(capacity, flows, monkeypatch)
    moves: list[str] = []
    for name in ("_together", "_one_by_one"):
        monkeypatch.setattr(FluidNetwork, name, heard(getattr(FluidNetwork, name), name, moves))
    monkeypatch.setattr(fluid_network, "_AS_COLUMNS", 12)
    found, _ = ends_of(capacity, flows)
    assert moves[:2] == ["_together", "_one_by_one"]
    assert_same(found, *expected)


def test_what_many_flows_move_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluid_network, "_AS_COLUMNS", 64)
    capacity, flows = crossing(5, 150, 80)
    log = Progress()
    ends_of(capacity, flows, log=log)
    assert len(log.moved) == 2 * len(flows)
    halves = sorted(log.moved.values())
    assert halves == pytest.approx([0.5] * len(flows) + [1.0] * len(flows), rel=1e-6)


@pytest.mark.parametrize("most", [8, 512])
def test_flows_that_begin_at_one_instant_are_solved_once(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As columns, of which there are then more than 8, and one by one."""
    monkeypatch.setattr(fluid_network, "_AS_COLUMNS", most)
    env, solved = Clock(), list[int]()
    network = FluidNetwork(env, np.full(2, 50e9), log=NoLog(), note=lambda _: None)
    for size in range(1, 17):
        network.start(message(0, size * 1e6)).go(1.0, lambda _: None)
    env.call(lambda _: solved.append(network.solved), 1)
    env.run()
    assert solved == [1]
