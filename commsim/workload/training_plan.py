"""
What a training step consists of, before it becomes ops: stages, their units, and buckets.

A unit is the embedding, one layer, or the head (final norm and output matrix). Layers are split
over the stages; the embedding is on the first, the head on the last. A stage reduces its own
gradients in its own buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.models import (
    Model,
    Tensor,
    build_model,
    embedding_tensors,
    head_flops,
    head_tensors,
    layer_flops,
    layer_tensors,
    tensor_total,
)
from commsim.workload.buckets import assign_buckets
from commsim.workload.layout import Layout, check_world, make_layout
from commsim.workload.schedules import Schedule, make_schedule
from commsim.workload.training_section import WIDTH, TrainingSection, check_built

__all__ = ["Bucket", "Stage", "TrainingPlan", "Unit", "plan_training"]


class Unit(NamedTuple):
    """A piece of the model: its forward FLOPs per microbatch and its parameters.

    `layer` is its number, -1 for the embedding and the head. A unit without FLOPs (the
    embedding's lookup) has no op of its own.
    """

    name: str
    layer: int
    flops: int
    tensors: tuple[Tensor, ...]


class Bucket(NamedTuple):
    """Gradients reduced together: their bytes, and the last unit (by index) to make them ready."""

    size: int
    unit: int


@dataclass(frozen=True, slots=True)
class Stage:
    """The units of a stage in forward order, and its gradient buckets in the order of reduction."""

    units: tuple[Unit, ...]
    buckets: tuple[Bucket, ...]

    @property
    def parameters(self) -> int:
        """The parameters that each rank of this stage holds."""
        return sum(tensor_total(unit.tensors) for unit in self.units)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training section, checked and worked out for a cluster."""

    model: Model
    layout: Layout
    schedule: Schedule
    stages: tuple[Stage, ...]
    microbatches: int
    micro: int
    width: int
    precision: str
    efficiency: float
    tied_bytes: int
    """Gradient bytes of a token table that the first and last stage both hold, else 0."""


def plan_training(section: TrainingSection, cluster: Cluster, *, where: str) -> TrainingPlan:
    """Check `section` against `cluster` and work out stages, microbatches and buckets.

    Raises:
        ScenarioError: something not built yet, degrees that do not make the cluster's size, a
            batch or layers that do not divide, a precision that a GPU lacks.
    """
    check_built(section, where=where)
    parallel, batch = section.parallel, section.batch
    degrees = {axis: getattr(parallel, axis) for axis in ("tp", "cp", "dp", "pp")}
    layout = make_layout(degrees, parallel.order, where=f"{where}.parallel")
    check_world(layout, cluster.world_size, where=f"{where}.parallel")
    microbatches = _microbatches(section, where)
    schedule = make_schedule(
        parallel.schedule, parallel.pp, microbatches, where=f"{where}.parallel.schedule"
    )
    model = build_model(section.model, where=f"{where}.model")
    layers = _split_layers(section, model.shape.layers, where)
    width = WIDTH[section.precision]
    data = section.data_parallel
    stages = tuple(
        Stage(units, _buckets(units, width, first=data.first_bucket, cap=data.bucket))
        for units in _units(model, layers, batch.micro)
    )
    shared = model.shape.tied_embeddings and parallel.pp > 1
    return TrainingPlan(
        model=model,
        layout=layout,
        schedule=schedule,
        stages=stages,
        microbatches=microbatches,
        micro=batch.micro,
        width=width,
        precision=section.precision,
        efficiency=section.compute.efficiency or 0.0,
        tied_bytes=model.shape.vocab * model.shape.hidden * width if shared else 0,
    )


def _microbatches(section: TrainingSection, where: str) -> int:
    dp, batch = section.parallel.dp, section.batch
    count, left = divmod(batch.global_, dp * batch.micro)
    if left:
        raise ScenarioError(
            f"{where}.batch: global {batch.global_} does not divide by dp={dp} x"
            f" micro={batch.micro} = {dp * batch.micro} sequences. Give a multiple of"
            f" {dp * batch.micro}."
        )
    return count


def _split_layers(section: TrainingSection, layers: int, where: str) -> tuple[range, ...]:
    """Return the layers of each stage."""
    pp, listed = section.parallel.pp, section.parallel.layers_per_stage
    where = f"{where}.parallel"
    if listed is None and layers % pp:
        raise ScenarioError(
            f"{where}.pp: {layers} layers do not divide into {pp} stages. Give a divisor of"
            f" {layers}, or layers_per_stage."
        )
    counts = listed if listed is not None else (layers // pp,) * pp
    if len(counts) != pp or sum(counts) != layers:
        raise ScenarioError(
            f"{where}.layers_per_stage: {' + '.join(str(n) for n in counts)} = {sum(counts)} layers"
            f" on {len(counts)} stages, the model has {layers} layers and pp is {pp}."
        )
    starts = [sum(counts[:stage]) for stage in range(pp)]
    return tuple(range(start, start + n) for start, n in zip(starts, counts, strict=True))


def _units(model: Model, layers: tuple[range, ...], micro: int) -> list[tuple[Unit, ...]]:
    """Return the units of each stage in forward order."""
    shape, seq = model.shape, model.seq_len
    tensors, flops = layer_tensors(shape), layer_flops(shape, batch=micro, seq=seq)
    stages = [[Unit(f"layer {n}", n, flops, tensors) for n in own] for own in layers]
    stages[0].insert(0, Unit("embedding", -1, 0, embedding_tensors(shape)))
    head = head_tensors(shape)
    if shape.tied_embeddings and len(layers) > 1:
        head = (*head, Tensor("head.weight (copy)", shape.vocab * shape.hidden))
    stages[-1].append(Unit("head", -1, head_flops(shape, batch=micro, seq=seq), head))
    return [tuple(units) for units in stages]


def _buckets(units: tuple[Unit, ...], width: int, *, first: int, cap: int) -> tuple[Bucket, ...]:
    ready = [
        (index, tensor.entries * width)
        for index in reversed(range(len(units)))
        for tensor in reversed(units[index].tensors)
    ]
    sizes = [size for _, size in ready]
    return tuple(
        Bucket(sum(sizes[at] for at in held), ready[held[-1]][0])
        for held in assign_buckets(sizes, first=first, cap=cap)
    )
