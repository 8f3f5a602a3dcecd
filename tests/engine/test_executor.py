"""Which engine runs a graph, by its number of ops and what is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.engine import simulate
from commsim.engine.core import Engine
from commsim.engine.executor import COMPILED_FROM, EngineRun, _why_simpy, check_executor
from commsim.errors import ScenarioError
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal

MODULE = sys.modules["commsim.engine.executor"]


def work(ops: int, network: str = "fluid") -> EngineRun:
    """Return what stands for the run of a graph of so many ops."""
    graph: Any = type("Many", (), {"__len__": lambda _: ops})()
    return EngineRun(graph, None, Ideal(), network, True, ())


@pytest.mark.parametrize(
    ("executor", "ops", "compiles", "reason"),
    [
        ("auto", COMPILED_FROM, True, None), ("auto", COMPILED_FROM - 1, True, "so few"),
        ("auto", COMPILED_FROM, False, "so few"), ("simpy", COMPILED_FROM, True, "so few"),
        ("compiled", 1, True, None), ("compiled", 2**31 - 1, True, None),
        ("compiled", 2**31, True, "more than 2,147,483,648 operations"),
    ],
)  # fmt: skip
def test_many_ops_are_compiled_if_that_can_be(
    executor: str, ops: int, compiles: bool, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "can_compile", lambda: compiles)
    assert _why_simpy(executor, work(ops)) == reason
    assert _why_simpy(executor, work(ops, "steps")) == "network: steps"


def test_an_executor_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "can_compile", lambda: False)
    check_executor("auto")
    check_executor("simpy")
    with pytest.raises(ScenarioError, match="needs numba"):
        check_executor("compiled")
    with pytest.raises(ScenarioError, match="unknown executor 'symp'"):
        check_executor("symp")
    monkeypatch.setattr(MODULE, "can_compile", lambda: True)
    check_executor("compiled")


def test_who_follows_a_run_sees_how_far_it_is() -> None:
    """Four ops of 10 ps, looked at in the middle of each and at the end."""
    ask, shares = list[Callable[[], float]](), list[float]()
    build = GraphBuilder()
    lane = build.lane(0)
    for _ in range(4):
        build.compute(lane, 10, name="x")

    def looks(engine: Engine) -> Generator[Any, Any, None]:
        for delay in (5, 10, 10, 10, 10):
            yield engine.env.timeout(delay)
            shares.append(ask[0]())

    simulate(build.build(), None, library=Ideal(), follow=ask.append, extensions=[looks])
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0]
    nothing: Any = SimpleNamespace(recorder=SimpleNamespace(end=[]))
    assert Engine.share_done(nothing) == 1.0


def test_only_messages_one_by_one_may_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges are counted before they are planned message by message, and not for flows."""
    asked: list[str] = []
    monkeypatch.setattr(
        sys.modules["commsim.engine.simulate"], "check_exchanges", lambda _: asked.append("once")
    )
    build = GraphBuilder()
    build.compute(build.lane(0), 10, name="x")
    for network, times in (("fluid", 0), ("steps", 1)):
        asked.clear()
        simulate(build.build(), None, library=Ideal(), network=network, extensions=[waits])
        assert len(asked) == times


def waits(engine: Engine) -> Generator[Any, Any, None]:
    yield engine.env.timeout(0)
