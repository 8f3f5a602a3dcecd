"""
A cheap lower bound of a layout's step time under any sharding.

p  stages        m  microbatches        F, B  forward and backward of a part, with its exposed
I, W  input and weight gradient of a part     collectives

A device starts when the first microbatch reaches it, works for all its parts, and the step ends
when the last gradient has gone back up: the sum of F of the stages before it + m (F + B) of its own
+ the sum of B of the stages before it, which is (m + p - 1)(F + B) if stages are even. If weight
gradients are actions of their own, those that zb_h1 delays fill the time after the last input
gradient. Units of a kind are timed once for all layouts that divide a layer in the same way.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import accumulate

import msgspec

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, UnitError
from commsim.libraries import Library
from commsim.models import ComputeModel, ModelShape, is_moe_layer
from commsim.study.advise.floor import Floor
from commsim.study.advise.layouts import Candidate, Degrees, section_of
from commsim.study.advise.traffic import StepTraffic
from commsim.units import PS_PER_SECOND
from commsim.workload import Work
from commsim.workload.training import (
    EMBEDDING,
    HEAD,
    LAYER,
    StageOps,
    TrainingSection,
    Unit,
    divide_layers,
    plan_training,
)

__all__ = ["LayoutBound"]

Row = dict[Hashable, int]
"""Picoseconds by kind of unit: the embedding, the head, a layer with experts or without."""


class LayoutBound:
    """Lower bounds for the layouts of one training on one cluster; sharding is left out."""

    def __init__(
        self,
        section: TrainingSection,
        shape: ModelShape,
        cluster: Cluster,
        library: Library,
        model: ComputeModel,
        traffic: StepTraffic,
        known: dict[Hashable, StageOps],
        *,
        slows: bool,
    ) -> None:
        self._section, self._shape = section, shape
        self._cluster, self._library, self._slows = cluster, library, slows
        self._model, self._traffic, self._known = model, traffic, known
        self._rows: dict[Hashable, dict[Work, Row] | None] = {}
        self._parts: dict[tuple[int, int], list[Row] | None] = {}
        order = section.parallel.order
        self._neighbours = order.index("tp") < 2 and order.index("cp") < 2

    def seconds(self, shape: Candidate) -> float | None:
        """Return the bound of a layout; None if its degrees do not fit the model."""
        rows, parts = self._times(shape), self._kinds(shape)
        if rows is None or parts is None:
            return None
        forward, backward, first, weight = (
            [sum(count * rows[work][kind] for kind, count in part.items()) for part in parts]
            for work in (Work.F, Work.B, Work.I, Work.W)
        )
        pp = shape.degrees.pp
        m = self._section.batch.global_ // (shape.degrees.dp * shape.micro)
        before = list(accumulate(forward, initial=0))
        if shape.schedule != "zb_h1":
            after = list(accumulate(backward, initial=0))
            ends = [
                before[i] + m * sum(forward[i::pp] + backward[i::pp]) + after[i] for i in range(pp)
            ]
        else:
            after = list(accumulate(first, initial=0))
            ends = [
                before[i]
                + max(
                    m * (forward[i] + first[i] + weight[i]),
                    m * (forward[i] + first[i]) + max(m - 1 - i, 0) * weight[i] + after[i],
                )
                for i in range(pp)
            ]
        return max(ends) / PS_PER_SECOND

    def _kinds(self, shape: Candidate) -> list[Row] | None:
        """Return how many units of each kind each part of a layout has; None if a part has none."""
        pp, virtual = shape.degrees.pp, shape.virtual
        if (pp, virtual) not in self._parts:
            self._parts[pp, virtual] = self._counted(pp, virtual)
        return self._parts[pp, virtual]

    def _counted(self, pp: int, virtual: int) -> list[Row] | None:
        listed = None
        try:
            layers = divide_layers(self._shape.layers, pp, virtual, listed, where="advise")
        except ScenarioError:
            return None
        parts: list[Row] = []
        for own in layers:
            counts: Row = {}
            for layer in own:
                kind = is_moe_layer(self._shape, layer)
                counts[kind] = counts.get(kind, 0) + 1
            parts.append(counts)
        parts[0][EMBEDDING] = parts[-1][HEAD] = 1
        return parts

    def _times(self, shape: Candidate) -> dict[Work, Row] | None:
        """Return the times of units if a layer is divided as in `shape`."""
        _, tp, _, cp, ep = shape.degrees
        key = (tp, cp, ep, shape.micro, shape.recompute, shape.overlap,
               () if self._neighbours else shape.degrees)  # fmt: skip
        if key not in self._rows:
            try:
                self._rows[key] = self._timed(shape)
            except UnitError:  # work longer than the clock holds is not the layout's fault
                raise
            except ScenarioError:
                self._rows[key] = None
        return self._rows[key]

    def _timed(self, shape: Candidate) -> dict[Work, Row]:
        """Return the times of units, computed for a layout of one stage."""
        dp, tp, pp, cp, ep = shape.degrees
        whole = shape._replace(
            degrees=Degrees(dp * pp, tp, 1, cp, ep), schedule="1f1b", virtual=1, shard="ddp"
        )
        section = section_of(whole, self._section)
        batch = msgspec.structs.replace(section.batch, global_=dp * pp * shape.micro)
        plan = plan_training(
            msgspec.structs.replace(section, batch=batch), self._cluster, where="advise"
        )
        floor = Floor(
            plan,
            self._cluster,
            self._library,
            self._model,
            self._traffic,
            slows=self._slows,
            contended=False,
            known=self._known,
        )
        found: dict[Work, Row] = {}
        for work, units in floor.units().items():
            row: Row = {EMBEDDING: 0, HEAD: 0}
            for unit, took in units:
                kind = self._kind(unit)
                row[kind] = min(row.get(kind) or took, took)
            found[work] = {False: 0, True: 0, **row}
        return found

    def _kind(self, unit: Unit) -> Hashable:
        return is_moe_layer(self._shape, unit.layer) if unit.kind == LAYER else unit.kind
