"""
Which engine runs a graph: the one on SimPy, or compiled code over tables for many operations.

Both give the same timeline. The one on SimPy is open to extensions, runs message by message, and
is what the other is held against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from commsim.cluster import Cluster
from commsim.compiled import can_compile
from commsim.engine.core import Engine
from commsim.engine.planning import Planner
from commsim.errors import ScenarioError, did_you_mean
from commsim.follow import Follow
from commsim.graph import Graph
from commsim.libraries import Library
from commsim.limits import BYTES_PER_OP, COMPILED_FROM, check_size

if TYPE_CHECKING:
    from commsim.engine.columns import ColumnsEngine

__all__ = ["COMPILED_FROM", "EXECUTORS", "LESS_WORK", "EngineRun", "check_executor", "run_work"]

EXECUTORS = ("auto", "simpy", "compiled")
LESS_WORK = "Run a part of it, or let equal ranks fold."
_FIT = 2**31  # places in tables are 32 bits


class EngineRun(msgspec.Struct, frozen=True, eq=False):
    """What is to run, and how: the arguments of `simulate`."""

    graph: Graph
    cluster: Cluster | None
    library: Library
    network: str
    overlap_slowdown: bool
    extensions: tuple[Callable[..., Any], ...]


def check_executor(executor: str) -> None:
    """Raise a ScenarioError if there is no such executor, or none can compile here."""
    if executor not in EXECUTORS:
        raise ScenarioError(
            f"engine.executor: unknown executor {executor!r}.{did_you_mean(executor, EXECUTORS)}"
            f" Known: {', '.join(EXECUTORS)}."
        )
    if executor == "compiled" and not can_compile():
        raise ScenarioError(
            "engine.executor: compiled needs numba: pip install 'commsim[fast]', or take auto."
        )


def run_work(
    executor: str, work: EngineRun, planner: Planner, follow: Follow
) -> Engine | ColumnsEngine:
    """Return an engine that has run the work, all of it unless it is a deadlock.

    Raises:
        ScenarioError: `compiled` is asked for, and this is not for it.
    """
    reason = _why_simpy(executor, work)
    if reason is None:
        from commsim.engine.columns import ColumnsEngine, NotInColumnsError

        try:
            columns = ColumnsEngine(
                work.graph,
                work.cluster,
                work.library,
                planner=planner,
                overlap_slowdown=work.overlap_slowdown,
                extensions=work.extensions,
                compile=can_compile(),
            )
            follow(columns.share_done)
            columns.run()
            return columns
        except NotInColumnsError as error:
            reason = str(error)
    if executor == "compiled":
        raise ScenarioError(f"engine.executor: compiled cannot run {reason}. Take auto.")
    check_size(
        len(work.graph), BYTES_PER_OP,
        f"the graph: {len(work.graph):,} operations in the engine on SimPy", LESS_WORK,
    )  # fmt: skip
    engine = Engine(
        work.graph,
        work.cluster,
        work.library,
        planner=planner,
        stepwise=work.network == "steps",
        overlap_slowdown=work.overlap_slowdown,
    )
    follow(engine.share_done)
    for extension in work.extensions:
        engine.env.process(extension(engine))
    engine.run()
    return engine


def _why_simpy(executor: str, work: EngineRun) -> str | None:
    """Return why SimPy is to run some work; None if it is not."""
    if work.network == "steps":
        return "network: steps"
    if len(work.graph) >= _FIT:
        return f"more than {_FIT:,} operations"
    few = len(work.graph) < COMPILED_FROM or not can_compile()
    return "so few" if executor == "simpy" or (executor == "auto" and few) else None
