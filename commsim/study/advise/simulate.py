"""
Simulating layouts, in one process or by an executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import uuid4

import msgspec

from commsim.cluster import Cluster, build_cluster
from commsim.engine import folded, gc_paused, simulate
from commsim.errors import CommsimError
from commsim.executors import ExecutorName, submitted
from commsim.follow import Follow, part_of, unfollowed
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

T = TypeVar("T")

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
        self.library: Library = make_library(file.library, self.cluster, where=scenario.where)
        self._slowdown = file.engine.overlap_slowdown
        self.judge = Judge(self.section, self.cluster, self.library, slows=self._slowdown)

    def run(self, candidate: Candidate, follow: Follow = unfollowed) -> Ran:
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
            timeline, metrics, facts = self._simulated(section, follow)
            use, capacity, _ = peak_memory(facts, timeline)
            metrics = priced(metrics, self.cluster)
            return Ran(candidate, metrics, use.total, fits(use, capacity))
        shorter, longer = (
            self._short(section, count, once, part_of(follow, at, len(counts)))
            for at, count in enumerate(counts)
        )
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

    def _short(
        self, section: TrainingSection, count: int, once: int, follow: Follow = unfollowed
    ) -> Short:
        """Run a step of `count` microbatches of `once` sequences."""
        batch = msgspec.structs.replace(section.batch, global_=count * once)
        timeline, metrics, _ = self._simulated(
            msgspec.structs.replace(section, batch=batch), follow
        )
        bubble = bubbles(timeline)
        return Short(count, metrics, bubble.span if bubble else 0.0)

    @gc_paused()
    def _simulated(
        self, section: TrainingSection, follow: Follow
    ) -> tuple[Timeline, Metrics, TrainingFacts]:
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
            follow=follow,
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
    """Does work here, or by an executor whose workers each keep the last `Worker` they needed."""

    def __init__(self, scenario: Scenario, executor: Executor | None = None) -> None:
        self.local = Worker(scenario)
        self._executor = executor
        self._scenario, self._key = scenario, uuid4().hex

    @property
    def elsewhere(self) -> bool:
        """Whether work is done by an executor."""
        return self._executor is not None

    def run(self, candidate: Candidate) -> Callable[[], Ran]:
        """Begin to simulate a layout; the result waits for it."""
        return self._begun(Worker.run, candidate)

    def estimate(self, candidate: Candidate) -> Callable[[], float]:
        """Begin to ask thin models of a layout; the result waits for them."""
        return self._begun(Worker.estimate, candidate)

    def _begun(
        self, call: Callable[[Worker, Candidate], T], candidate: Candidate
    ) -> Callable[[], T]:
        if self._executor is not None:
            try:
                begun = submitted(
                    self._executor, _elsewhere, call, self._key, self._scenario, candidate
                )
            except BrokenExecutor:
                self._executor = None
            else:
                return partial(self._settled, begun, call, candidate)
        found = call(self.local, candidate)
        return lambda: found

    def _settled(
        self, begun: Future[T], call: Callable[[Worker, Candidate], T], candidate: Candidate
    ) -> T:
        """Return what a worker found; done here if the worker died."""
        try:
            return begun.result()
        except CommsimError:
            raise
        except Exception:  # BrokenExecutor, Dask's KilledWorker, or the scheduler is gone
            return call(self.local, candidate)


@contextmanager
def workers(scenario: Scenario, executor: str) -> Iterator[Pool]:
    """Give workers for a scenario; `executor` is the word of a sweep's."""
    with ExecutorName.read(executor).opened() as opened:
        yield Pool(scenario, opened)


_kept: dict[str, Worker] = {}


def _elsewhere(
    call: Callable[[Worker, Candidate], T], key: str, scenario: Scenario, candidate: Candidate
) -> T:
    """Do a piece of work in a worker, which keeps what it made of the scenario of a key."""
    if key not in _kept:
        _kept.clear()
        _kept[key] = Worker(scenario)
    return call(_kept[key], candidate)
