"""
Simulating the layouts that are worth it, in several processes, with the same answer as in one.

Layouts are taken in the order of their floors. One is skipped when its floor lies above the
slowest of the `top` best that were known `_WINDOW` layouts before, by more than `SLACK`: that is
never one of the best, and it is the same one however many processes work.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context
from typing import Any, NamedTuple

import msgspec

from commsim.cluster import Cluster, build_cluster
from commsim.engine import folded, gc_paused, simulate
from commsim.libraries import Library, make_library
from commsim.metrics import Metrics, bubbles, measure, priced
from commsim.scenario import Scenario
from commsim.study.advise.judge import Judge, Judged
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.steady import Short, extended, few
from commsim.timeline import Timeline
from commsim.workload import TrainingFacts, TrainingSection, build_training, peak_memory

__all__ = ["MOST", "SLACK", "Ran", "Worker", "Workers", "judge_all", "run_best", "workers"]

_WINDOW = 16
SLACK = 1.03
"""How far a floor may lie above a step: ranks leave a collective before its end, and the start of
a message hides where its receiver waits already."""
SLIGHT = 1e-3
"""What of a link's bytes does not tell ranks apart: one bucket of a few KiB on one NIC of eight
would otherwise take nine times as many lanes."""
MOST = 300
"""Simulations of one call: where floors are weak, so many best by floor are tried."""


class Ran(NamedTuple):
    """What simulating a layout gave; `memory` in bytes on the fullest GPU.

    `short`: two steps of fewer microbatches were run, see `advise_steady`.
    """

    candidate: Candidate
    metrics: Metrics
    memory: int
    fits: bool
    short: bool = False


class Worker:
    """A process's own cluster, library and judge, kept for all layouts."""

    def __init__(self, scenario: Scenario) -> None:
        file = scenario.file
        assert file.cluster is not None
        assert file.workload.training is not None
        self.section: TrainingSection = file.workload.training
        self.cluster: Cluster = build_cluster(file.cluster, scenario.where)
        self.library: Library = make_library(file.library, self.cluster)
        self._slowdown = file.engine.overlap_slowdown
        self.judge = Judge(self.section, self.cluster, self.library, slows=self._slowdown)

    def run(self, candidate: Candidate) -> Ran:
        """Simulate one layout, ranks that are alike once; a long step by two shorter ones."""
        section = self.judge.section(candidate)
        once = candidate.degrees.dp * candidate.micro
        microbatches = section.batch.global_ // once
        counts = few(
            microbatches, layers=self.judge.layers, stages=candidate.degrees.pp,
            schedule=candidate.schedule,
        )  # fmt: skip
        if counts is None:
            timeline, metrics, facts = self._simulated(section)
            use, capacity, _ = peak_memory(facts, timeline)
            metrics = priced(metrics, self.cluster)
            return Ran(candidate, metrics, use.total, use.total <= capacity)
        shorter, longer = (self._short(section, count, once) for count in counts)
        metrics = priced(extended(shorter, longer, microbatches), self.cluster)
        judged = self.judge.one(candidate)
        assert judged is not None
        return Ran(candidate, metrics, judged.use.total, judged.fits, short=True)

    def _short(self, section: TrainingSection, count: int, once: int) -> Short:
        """Run a step of `count` microbatches of `once` sequences."""
        batch = msgspec.structs.replace(section.batch, global_=count * once)
        timeline, metrics, _ = self._simulated(msgspec.structs.replace(section, batch=batch))
        bubble = bubbles(timeline)
        return Short(count, metrics, bubble.span if bubble else 0.0)

    @gc_paused()
    def _simulated(self, section: TrainingSection) -> tuple[Timeline, Metrics, TrainingFacts]:
        """Return the timeline of a run, its metrics, and what is known of its steps."""
        work = build_training(section, self.cluster, where="advise", fold=True)
        assert work.training is not None
        graph, planner = folded(work.graph, self.cluster, self.library, slight=SLIGHT)
        timeline = simulate(
            graph, self.cluster, library=self.library, planner=planner,
            overlap_slowdown=self._slowdown,
        )  # fmt: skip
        facts = work.training
        metrics = measure(
            timeline, model_flops=facts.model_flops, hardware_flops=facts.hardware_flops,
            peak_flops=facts.peak_flops, tokens=facts.tokens,
        )  # fmt: skip
        return timeline, metrics, facts


class Workers:
    """Does work here, or in other processes that each have a `Worker`."""

    def __init__(self, here: Worker, pool: Executor | None) -> None:
        self.here = here
        self._pool = pool

    def degrees(self, degrees: Sequence[Degrees]) -> Iterator[list[Judged]]:
        """Judge all layouts of each of some degrees, in order."""
        if self._pool is None:
            return map(self.here.judge.degrees, degrees)
        return self._pool.map(_judge, degrees)

    def run(self, candidate: Candidate) -> Callable[[], Ran]:
        """Begin to simulate a layout; the result waits for it."""
        if self._pool is None:
            found = self.here.run(candidate)
            return lambda: found
        future: Future[Ran] = self._pool.submit(_run, candidate)
        return future.result


@contextmanager
def workers(scenario: Scenario, processes: int) -> Iterator[Workers]:
    """Give workers for a scenario; `processes` above 1 start others beside this one."""
    here = Worker(scenario)
    if processes <= 1:
        yield Workers(here, None)
        return
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else None)
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(scenario,))
    try:
        yield Workers(here, pool)
    finally:
        pool.shutdown(cancel_futures=True)


_worker: Worker | None = None


def _begin(scenario: Scenario) -> None:
    global _worker
    _worker = Worker(scenario)


def _judge(degrees: Degrees) -> list[Judged]:
    assert _worker is not None
    return _worker.judge.degrees(degrees)


def _run(candidate: Candidate) -> Ran:
    assert _worker is not None
    return _worker.run(candidate)


def judge_all(doing: Workers, degrees: Sequence[Degrees], tick: Callable[[], None]) -> list[Judged]:
    """Return all layouts that can run, those that do not fit among them."""
    found: list[Judged] = []
    for judged in doing.degrees(degrees):
        found += judged
        tick()
    return found


def run_best(
    doing: Workers, ordered: Iterable[Judged], *, top: int, tick: Callable[[bool], None]
) -> dict[Candidate, Ran]:
    """Simulate layouts in order, but for those that cannot be among the `top` best, up to `MOST`.

    `tick` hears of each layout, and whether it was simulated.
    """
    ran: dict[Candidate, Ran] = {}
    best: list[float] = []  # a heap of the `top` best, negated: the slowest is first
    waiting: deque[tuple[Judged, Callable[[], Ran] | None]] = deque()

    def settle() -> None:
        judged, result = waiting.popleft()
        if result is not None:
            one = result()
            ran[judged.candidate] = one
            if one.fits:
                heapq.heappush(best, -one.metrics.step_time_s)
                if len(best) > top:
                    heapq.heappop(best)
        tick(result is not None)

    for judged in ordered:
        if len(waiting) >= _WINDOW:
            settle()
        hopeless = len(ran) + len(waiting) >= MOST or (
            len(best) == top and judged.floor > -best[0] * SLACK
        )
        waiting.append((judged, None if hopeless else doing.run(judged.candidate)))
    while waiting:
        settle()
    return ran
