"""
Which layouts fit: every product of degrees judged for memory, with a floor under its step time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries import Library
from commsim.models import MemoryUse, build_model, compute_model
from commsim.study.advise.floor import Floor
from commsim.study.advise.layouts import Candidate, Degrees, section_of, shapes, shardings
from commsim.study.advise.traffic import Traffic
from commsim.workload.training import TrainingPlan, TrainingSection, check_settings, plan_training

__all__ = ["Judge", "Judged"]


class Judged(NamedTuple):
    """A layout that can run: its memory on the fullest device, and its floor in seconds.

    `floor` is infinite where it does not fit.
    """

    candidate: Candidate
    use: MemoryUse
    stage: int
    capacity: int
    floor: float

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU holds it."""
        return self.use.total <= self.capacity


class Judge:
    """Judges layouts of one training on one cluster."""

    def __init__(
        self, section: TrainingSection, cluster: Cluster, library: Library, *, slows: bool = True
    ) -> None:
        self._section = section
        self._slows = slows
        self._cluster = cluster
        self._library = library
        shape = build_model(section.model, where="model").shape
        self.experts = shape.experts is not None
        self.layers = shape.layers
        self._compute = compute_model(
            cluster.gpu(0), precision=section.precision, section=section.compute, where="compute"
        )
        self._capacity = min(cluster.gpu(rank).memory_bytes for rank in range(cluster.world_size))
        self._traffic = Traffic(cluster, library)
        self._node = int((cluster.node_of == cluster.node_of[0]).sum())

    @property
    def recomputes(self) -> tuple[str, ...]:
        """The kinds of recomputing that differ: a fused attention keeps nothing to recompute."""
        return ("none", "full") if self._compute.flash else ("none", "selective", "full")

    def degrees(self, degrees: Degrees) -> list[Judged]:
        """Judge all that can run on `degrees`, in order."""
        ways = shardings(degrees, node=self._node)
        found: list[Judged] = []
        for shape in shapes(degrees, self._section, recomputes=self.recomputes):
            found += self._ways(shape, ways)
        return found

    def one(self, candidate: Candidate) -> Judged | None:
        """Judge one layout; None where it cannot run."""
        found = self._ways(candidate, [candidate.shard])
        return found[0] if found else None

    def thriftiest(self, degrees: Degrees) -> Judged | None:
        """Judge the layout that needs least memory on `degrees`; None where it cannot run."""
        shard = "fsdp" if degrees.dp * degrees.cp > 1 else "ddp"
        return self.one(Candidate(degrees, "1f1b", 1, 1, "full", shard))

    def section(self, candidate: Candidate) -> TrainingSection:
        """Return the training section of a layout."""
        return section_of(candidate, self._section)

    def _ways(self, shape: Candidate, ways: list[str]) -> list[Judged]:
        try:
            plan = plan_training(
                self.section(shape._replace(shard="ddp")), self._cluster, where="advise"
            )
        except ScenarioError:
            return []
        floor = Floor(
            plan, self._cluster, self._library, self._compute, self._traffic, slows=self._slows
        )
        return [
            judged
            for way in ways
            if (judged := self._judge(shape._replace(shard=way), plan, floor)) is not None
        ]

    def _judge(self, candidate: Candidate, plan: TrainingPlan, floor: Floor) -> Judged | None:
        section = self.section(candidate)
        try:
            check_settings(section, where="advise")
        except ScenarioError:
            return None
        own = _with(plan, section)
        use, stage = floor.memory(own)
        fits = use.total <= self._capacity
        seconds = floor.seconds(own) if fits else float("inf")
        at = stage if candidate.degrees.pp > 1 else -1
        return Judged(candidate, use, at, self._capacity, seconds)


def _with(plan: TrainingPlan, section: TrainingSection) -> TrainingPlan:
    """Return a plan of another way to share: nothing else of it depends on that."""
    return replace(plan, section=section)
