"""
Which layouts fit in memory, and a lower bound of the step time of those that do.

A step of many microbatches is judged by two steps of few: with each further microbatch the memory
of a device grows by a constant or not at all, and a floor by no less than before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import msgspec

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries import Library
from commsim.models import MemoryUse, Recompute, build_model, compute_model, fits
from commsim.study.advise.bound import LayoutBound
from commsim.study.advise.floor import Floor
from commsim.study.advise.layouts import (
    Candidate,
    Degrees,
    degrees_of,
    section_of,
    shapes,
    shardings,
    variants_of,
)
from commsim.study.advise.steady import short_counts
from commsim.study.advise.traffic import StepTraffic
from commsim.workload.training import (
    StageOps,
    TrainingPlan,
    TrainingSection,
    check_settings,
    plan_shared_as,
    plan_training,
)

__all__ = ["Judge", "Judged", "least_of"]


class Judged(NamedTuple):
    """A layout that can run: its memory on the fullest device, and its floor in seconds.

    `floor` is infinite if it does not fit.
    """

    candidate: Candidate
    use: MemoryUse
    stage: int
    capacity: int
    floor: float

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU holds it."""
        return fits(self.use, self.capacity)


class Judge:
    """Judges layouts of one training on one cluster."""

    def __init__(
        self, section: TrainingSection, cluster: Cluster, library: Library, *, slows: bool = True
    ) -> None:
        self._section = section
        self._slows = slows
        self._cluster = cluster
        self._library = library
        model = build_model(section.model, where="model")
        self.shape, self.seq = model.shape, model.seq_len
        self._compute = compute_model(
            cluster.gpu(0),
            precision=section.precision,
            section=section.compute,
            where="compute",
            gpus=cluster.world_size,
        )
        self.capacity = min(cluster.gpu(rank).memory_bytes for rank in range(cluster.world_size))
        self._traffic = StepTraffic(cluster, library)
        self._node = int((cluster.node_of == cluster.node_of[0]).sum())
        self._known: dict[Hashable, StageOps] = {}
        self._bound = LayoutBound(
            section,
            self.shape,
            cluster,
            library,
            self._compute,
            self._traffic,
            self._known,
            slows=slows,
        )
        self._least: dict[tuple[Degrees, Recompute], dict[str, Judged]] = {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What of the constants of compute no published step was fitted for, a sentence each."""
        return tuple(f"compute: {gap}" for gap in self._compute.not_fitted)

    @property
    def recomputes(self) -> tuple[str, ...]:
        """The kinds of recomputing that differ: a fused attention keeps nothing to recompute."""
        return ("none", "full") if self._compute.flash else ("none", "selective", "full")

    def degrees(self) -> Iterator[Degrees]:
        """Yield all degrees of the cluster."""
        experts = self.shape.experts is not None
        return degrees_of(self._cluster.world_size, experts=experts, seq=self.seq)

    def relaxed(self, degrees: Degrees) -> list[tuple[float, Candidate, int]]:
        """Return relaxed layouts of `degrees`, each with a bound and the number of its variants."""
        found = []
        for shape in shapes(degrees, self._section):
            count = sum(self.allowed(one) for one in variants_of(shape, self.recomputes))
            if count and (bound := self._bound.seconds(shape)) is not None:
                found.append((bound, shape, count))
        return found

    def variants(self, shape: Candidate) -> list[tuple[float, Candidate]]:
        """Return the layouts of a relaxed one, sharding aside, with a bound in seconds for each."""
        return [
            (bound, one)
            for one in variants_of(shape, self.recomputes)
            if self.allowed(one) and (bound := self._bound.seconds(one)) is not None
        ]

    def shapes(self, degrees: Degrees) -> list[tuple[float, Candidate]]:
        """Return what can run on `degrees`, sharding aside, with a bound in seconds for each."""
        return [found for _, shape, _ in self.relaxed(degrees) for found in self.variants(shape)]

    def allowed(self, shape: Candidate) -> bool:
        """Return whether to consider a layout; subclasses may skip some."""
        return True

    def shardings(self, degrees: Degrees) -> list[str]:
        """Return how replicas may share what they hold."""
        return shardings(degrees, node=self._node)

    def ways(self, shape: Candidate) -> list[Judged]:
        """Judge a layout under every sharding."""
        return self._judged(shape, self.shardings(shape.degrees))

    def one(self, candidate: Candidate) -> Judged | None:
        """Judge one layout; None if it cannot run."""
        found = self._judged(candidate, [candidate.shard])
        return found[0] if found else None

    def least(self, degrees: Degrees, shard: str, recompute: Recompute) -> Judged | None:
        """Judge the memory of the layout of `degrees` and `shard` that needs least; None: none can.

        That is one sequence at a time under 1F1B, of which the other schedules hold as much or
        more. Its floor is left at 0.
        """
        if (degrees, recompute) not in self._least:
            shape = least_of(degrees, "ddp", recompute)
            found = self._judged(shape, self.shardings(degrees), timed=False)
            self._least[degrees, recompute] = {one.candidate.shard: one for one in found}
        return self._least[degrees, recompute].get(shard)

    def section(self, candidate: Candidate) -> TrainingSection:
        """Return the training section of a layout."""
        return section_of(candidate, self._section)

    def _judged(self, shape: Candidate, ways: list[str], *, timed: bool = True) -> list[Judged]:
        """Judge a layout under some shardings; `timed`: with floors."""
        section = self.section(shape._replace(shard="ddp"))
        once = shape.degrees.dp * shape.micro
        microbatches, left = divmod(section.batch.global_, once)
        if left:
            return []
        counts: tuple[int, ...] = short_counts(
            shape.degrees.pp, shape.schedule, virtual=shape.virtual
        )
        if microbatches <= counts[1]:
            counts = (microbatches,)
        try:
            floors = [self._floor(section, count * once) for count in counts]
        except ScenarioError:
            return []
        ahead = (microbatches - counts[-1]) / (counts[-1] - counts[0]) if len(counts) > 1 else 0.0
        peaks = tuple(
            round(last + (last - first) * ahead)
            for first, last in zip(floors[0].peaks(), floors[-1].peaks(), strict=True)
        )
        found = (
            self._judge(shape._replace(shard=way), floors, peaks, ahead, timed=timed)
            for way in ways
        )
        return [judged for judged in found if judged is not None]

    def _floor(self, section: TrainingSection, batch: int) -> Floor:
        batch_section = msgspec.structs.replace(section.batch, global_=batch)
        section = msgspec.structs.replace(section, batch=batch_section)
        plan = plan_training(section, self._cluster, where="advise")
        return Floor(
            plan,
            self._cluster,
            self._library,
            self._compute,
            self._traffic,
            slows=self._slows,
            contended=True,
            known=self._known,
        )

    def _judge(
        self,
        candidate: Candidate,
        floors: list[Floor],
        peaks: tuple[int, ...],
        ahead: float,
        *,
        timed: bool,
    ) -> Judged | None:
        section = self.section(candidate)
        try:
            check_settings(section, where="advise")
        except ScenarioError:
            return None
        plans = [_with(floor.plan, section) for floor in floors]
        use, stage = floors[-1].memory(plans[-1], peaks)
        seconds = 0.0 if fits(use, self.capacity) else float("inf")
        if timed and not seconds:
            first, last = (
                floor.seconds(plan)
                for floor, plan in ((floors[0], plans[0]), (floors[-1], plans[-1]))
            )
            seconds = last + (last - first) * ahead
        at = stage if candidate.degrees.pp > 1 else -1
        return Judged(candidate, use, at, self.capacity, seconds)


def least_of(degrees: Degrees, shard: str, recompute: Recompute) -> Candidate:
    """Return the layout of its kind that needs least memory."""
    return Candidate(degrees, "1f1b", 1, 1, recompute, shard)


def _with(plan: TrainingPlan, section: TrainingSection) -> TrainingPlan:
    """Return the plan with another sharding; nothing else of a plan depends on it."""
    batch = msgspec.structs.replace(section.batch, global_=plan.section.batch.global_)
    return plan_shared_as(plan, msgspec.structs.replace(section, batch=batch))
