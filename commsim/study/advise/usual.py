"""
The layouts that people run, for searches over many clusters: a few dozen instead of thousands.

Tensor parallelism by powers of two inside an NVLink domain, up to 16; up to 16 stages of 1F1B,
interleaved or not; context parallelism only if there are more replicas than sequences; 1 to 4
sequences at once; optimizer states sharded, or all. `advise` on the winner looks at the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np

from commsim.cluster import Cluster
from commsim.follow import Follow, unfollowed
from commsim.models import parameter_count, training_flops
from commsim.scenario import Scenario
from commsim.study.advise.judge import Judge, Judged
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.search import Known, Search
from commsim.study.advise.settings import settings_of
from commsim.study.advise.simulate import Pool, Ran

__all__ = ["LayoutQueue", "UsualJudge"]

_MOST_TP = _MOST_STAGES = 16
_MOST_AT_ONCE = 4
_SCHEDULES = ("1f1b", "interleaved_1f1b")
_SHARDS = ("ddp", "zero-1", "fsdp")


class UsualJudge(Judge):
    """A judge that looks at the usual layouts only."""

    def degrees(self) -> Iterator[Degrees]:
        """Yield the usual degrees of the cluster."""
        sequences = self._section.batch.global_
        domain = int(np.bincount(self._cluster.domains).min())
        for degrees in super().degrees():
            tp, pp, cp = degrees.tp, degrees.pp, degrees.cp
            long = cp > 1 and degrees.dp * cp <= sequences
            inside = tp & (tp - 1) == 0 and tp <= min(domain, _MOST_TP)
            if inside and pp <= _MOST_STAGES and not long:
                yield degrees

    def allowed(self, shape: Candidate) -> bool:
        """Say whether a layout is one of those."""
        hidden = shape.overlap == ("ring" if shape.degrees.tp > 1 else "none")
        return shape.micro <= _MOST_AT_ONCE and shape.schedule in _SCHEDULES and hidden

    def shardings(self, degrees: Degrees) -> list[str]:
        """Return the usual ways to share what replicas hold."""
        return [way for way in super().shardings(degrees) if way in _SHARDS]


class LayoutQueue:
    """The layouts of a scenario in the order of what they take at least, looked at lazily."""

    def __init__(
        self, scenario: Scenario, *, usual: bool, executor: Executor | None = None
    ) -> None:
        self._pool = Pool(scenario, executor)
        self._worker = worker = self._pool.local
        if usual:
            slows = scenario.file.engine.overlap_slowdown
            worker.judge = UsualJudge(worker.section, worker.cluster, worker.library, slows=slows)
        self._search = Search(worker.judge)
        self._opened = False
        self._begun: dict[Candidate, Callable[[], Ran]] = {}

    @property
    def cluster(self) -> Cluster:
        """What the layouts run on."""
        return self._worker.cluster

    @property
    def stack(self) -> str:
        """The software that every layout is judged on."""
        return str(self._worker.section.compute.stack)

    @property
    def parameters(self) -> int:
        """How many parameters the model has."""
        return parameter_count(self._worker.judge.shape)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the constants of compute was never fitted."""
        return self._worker.judge.remarks

    @property
    def causal_share(self) -> float:
        """What MFU is, of what it is here, if attention is counted under its causal mask."""
        judge = self._worker.judge
        causal, full = (
            training_flops(judge.shape, batch=1, seq=judge.seq, causal=one) for one in (True, False)
        )
        return causal / full

    def bound(self) -> float | None:
        """Return seconds that no layout can be below; None if none can run."""
        self._open()
        queue = self._search.queue
        while queue and queue[0][2] == Known.RELAXED:
            self._search.expand(*heapq.heappop(queue)[1:])
        return queue[0][0] if queue else None

    def floor(self) -> float | None:
        """Return what the next layout that fits takes at least; None if none is left."""
        judged = self._next()
        return None if judged is None else judged.floor

    def run_next(self, follow: Follow = unfollowed) -> Ran | None:
        """Simulate the layout with the lowest floor of those left; None if none is left.

        `follow` follows what is simulated in this process.
        """
        while (judged := self._next()) is not None:
            heapq.heappop(self._search.queue)
            begun = self._begun.pop(judged.candidate, None)
            ran = self._worker.run(judged.candidate, follow) if begun is None else begun()
            if ran.fits:
                return ran
        return None

    def begin(self, count: int) -> None:
        """Let an executor begin the next `count` of the layouts that are judged.

        What `run_next` returns does not change. Without an executor nothing is begun.
        """
        if not self._pool.elsewhere:
            return
        judged = (one for _, one, known in self._search.queue if known > Known.BOUND)
        for candidate in heapq.nsmallest(count, judged, key=self._floor_of):
            if candidate not in self._begun:
                self._begun[candidate] = self._pool.run(candidate)

    def _floor_of(self, candidate: Candidate) -> float:
        return self._search.judged[candidate].floor

    def settings(self, candidate: Candidate) -> dict[str, Any]:
        """Return what to write under `training` for a layout."""
        return settings_of(self._worker, candidate)

    def _open(self) -> None:
        if not self._opened:
            self._search.open(lambda: None)
            self._opened = True

    def _next(self) -> Judged | None:
        """Return the lowest of the judged layouts, judging those whose bounds are lower."""
        self._open()
        queue = self._search.queue
        while queue:
            _, candidate, known = queue[0]
            if known > Known.BOUND:
                return self._search.judged[candidate]
            heapq.heappop(queue)
            self._search.expand(candidate, known)
        return None
