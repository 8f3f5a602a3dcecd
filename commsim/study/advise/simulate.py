"""
Simulating layouts, in one process or in several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_all_start_methods, get_context
from typing import Any, NamedTuple

import msgspec

from commsim.cluster import Cluster, build_cluster
from commsim.engine import folded, gc_paused, simulate
from commsim.libraries import Library, make_library
from commsim.metrics import Metrics, bubbles, measure, priced
from commsim.models import fits
from commsim.scenario import Scenario
from commsim.study.advise.few_layers import KEPT, carried_on, thinned
from commsim.study.advise.judge import Judge
from commsim.study.advise.layouts import Candidate
from commsim.study.advise.steady import Short, extended, few, short_counts
from commsim.timeline import Timeline
from commsim.workload import TrainingFacts, TrainingSection, build_training, peak_memory
from commsim.workload.training import with_stack

__all__ = ["Pool", "Ran", "Worker", "workers"]

SLIGHT = 1e-3
"""What of a link's bytes does not tell ranks apart: one bucket of a few KiB on one NIC of eight
would otherwise take nine times as many lanes."""


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
        # One stack for all layouts: what differs between two of them is the layout.
        self.section: TrainingSection = with_stack(file.workload.training)
        self.cluster: Cluster = build_cluster(file.cluster, scenario.where)
        self.library: Library = make_library(file.library, self.cluster)
        self._slowdown = file.engine.overlap_slowdown
        self.judge = Judge(self.section, self.cluster, self.library, slows=self._slowdown)

    def run(self, candidate: Candidate) -> Ran:
        """Simulate one layout, identical ranks once; a long step by two shorter ones."""
        section = self.judge.section(candidate)
        once = candidate.degrees.dp * candidate.micro
        microbatches = section.batch.global_ // once
        counts = few(
            microbatches,
            layers=self.judge.shape.layers,
            stages=candidate.degrees.pp,
            schedule=candidate.schedule,
        )
        if counts is None:
            timeline, metrics, facts = self._simulated(section)
            use, capacity, _ = peak_memory(facts, timeline)
            metrics = priced(metrics, self.cluster)
            return Ran(candidate, metrics, use.total, fits(use, capacity))
        shorter, longer = (self._short(section, count, once) for count in counts)
        metrics = priced(extended(shorter, longer, microbatches), self.cluster)
        judged = self.judge.one(candidate)
        assert judged is not None
        return Ran(candidate, metrics, judged.use.total, judged.fits, short=True)

    def estimate(self, candidate: Candidate) -> float:
        """Return what thin models say of a step, in seconds; 0 if they would save little."""
        section = self.judge.section(candidate)
        once = candidate.degrees.dp * candidate.micro
        microbatches = section.batch.global_ // once
        counts: tuple[int, ...] = short_counts(candidate.degrees.pp, candidate.schedule)
        if microbatches < sum(counts):
            counts = (microbatches,)
        steps: list[list[float]] = []
        lacking: list[int] = []
        for kept in KEPT:
            made = thinned(self.judge.shape, section, kept=kept)
            if made is None:
                return 0.0
            lacking.append(made[1])
            steps.append([self._short(made[0], n, once).metrics.step_time_s for n in counts])
        ends = [carried_on(both, lacking) for both in zip(*steps, strict=True)]
        if len(ends) == 1:
            return ends[0]
        ahead = (microbatches - counts[1]) / (counts[1] - counts[0])
        return ends[1] + (ends[1] - ends[0]) * ahead

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
        graph, planner = folded(work.graph, self.cluster, self.library, negligible=SLIGHT)
        timeline = simulate(
            graph,
            self.cluster,
            library=self.library,
            planner=planner,
            overlap_slowdown=self._slowdown,
        )
        facts = work.training
        metrics = measure(
            timeline,
            model_flops=facts.model_flops,
            hardware_flops=facts.hardware_flops,
            peak_flops=facts.peak_flops,
            tokens=facts.tokens,
        )
        return timeline, metrics, facts


class Pool:
    """Does work here, or in other processes that each have a `Worker`."""

    def __init__(self, local: Worker, executor: Executor | None) -> None:
        self.local = local
        self._executor = executor

    def run(self, candidate: Candidate) -> Callable[[], Ran]:
        """Begin to simulate a layout; the result waits for it."""
        if self._executor is None:
            found = self.local.run(candidate)
            return lambda: found
        future: Future[Ran] = self._executor.submit(_run, candidate)
        return future.result

    def estimate(self, candidate: Candidate) -> Callable[[], float]:
        """Begin to ask thin models of a layout; the result waits for them."""
        if self._executor is None:
            found = self.local.estimate(candidate)
            return lambda: found
        future: Future[float] = self._executor.submit(_estimate, candidate)
        return future.result


@contextmanager
def workers(scenario: Scenario, processes: int) -> Iterator[Pool]:
    """Give workers for a scenario; `processes` above 1 start others next to this one."""
    here = Worker(scenario)
    if processes <= 1:
        yield Pool(here, None)
        return
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else None)
    if hasattr(context, "set_forkserver_preload"):
        context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(scenario,))
    try:
        yield Pool(here, pool)
    finally:
        pool.shutdown(cancel_futures=True)


_worker: Worker | None = None


def _begin(scenario: Scenario) -> None:
    global _worker
    _worker = Worker(scenario)


def _run(candidate: Candidate) -> Ran:
    assert _worker is not None
    return _worker.run(candidate)


def _estimate(candidate: Candidate) -> float:
    assert _worker is not None
    return _worker.estimate(candidate)
