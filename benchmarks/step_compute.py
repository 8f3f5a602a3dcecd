"""
What a published step computes on its busiest rank, in seconds: microbatches, ramps, optimizer.

`fit_compute.py` asks how a step changes with the constants thousands of times. This answers for
what constants touch, with the stage compiler that the engine's graphs are made with, and no
communication: that is in the engine's prediction, to which the change is added. F, B, W are
the times of a microbatch on a stage, T their sum; T' and so on those of the longest stage.

1F1B           m T' + (sum T - T')
interleaved    m T' + (sum T - T')/v
ZB-H1, ZB-1p   m T' + (p-1) (F' + B' - W');   ZB-H2   m T' + (p-1) (F' + B' - 2W')
ZB-2p, ZB-V    max(m T', min(1F1B, (m+p-1) (F' + B') + W'))

Narayanan et al. 2021; Qi et al. 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from fitted import Fitted
from training_rows import Row

from commsim.models import (
    ComputeModel,
    ComputeSection,
    ModelShape,
    embedding_tensors,
    head_tensors,
    layer_kinds,
    layer_tensors,
    tensor_total,
)
from commsim.models.kernels import KernelModel
from commsim.units import PS_PER_SECOND
from commsim.workload.training.gathering import gathered, gathered_again, reduced
from commsim.workload.training.stage_compiler import StageCompiler
from commsim.workload.training.stages import EMBEDDING, HEAD, LAYER, Unit, make_parts

__all__ = ["Stage", "compute_seconds", "layers_per_stage", "pipeline_seconds", "row_model",
           "stage_times"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds of a microbatch on one stage: forward, input gradient, weight gradient."""

    forward: float
    backward: float
    weight: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.weight

    def __add__(self, other: Stage) -> Stage:
        return Stage(
            self.forward + other.forward,
            self.backward + other.backward,
            self.weight + other.weight,
        )

    def times(self, count: int) -> Stage:
        """Return so many of these, one after the other."""
        return Stage(count * self.forward, count * self.backward, count * self.weight)


def row_model(row: Row, fitted: Fitted) -> ComputeModel:
    """Return the compute model of a row by the constants under fit."""
    gpu = row.gpu_spec
    generation = fitted.generation_name(gpu)
    made = fitted.generations[generation].attentions
    stack = fitted.stack(row.stack).on(generation, fitted.stacks, made)
    if row.attention:
        stack = fitted.with_attention(stack, row.attention)
    kernels = KernelModel(gpu, row.precision, fitted.generations[generation], stack)
    section = ComputeSection(cuda_graph=row.cuda_graph or stack.cuda_graph)
    return ComputeModel(kernels, section, row.stack, row.gpus)


def compute_seconds(row: Row, fitted: Fitted) -> float:
    """Return the seconds that the busiest rank of a row computes in a step."""
    fitted.use_recipes()
    model = row_model(row, fitted)
    stages = stage_times(row, model)
    if row.is_layer:
        return stages[0].total
    beside = model.microbatch().seconds
    held = _local_parameters(row)
    copies = _copies(row, model, held) if row.sharded and row.dp * row.cp > 1 else 0.0
    step = pipeline_seconds(row, stages, beside + copies)
    return step + model.optimizer(held // (row.dp * row.cp if row.zero else 1)).seconds


def _copies(row: Row, model: ComputeModel, held: int) -> float:
    """Return the seconds of a microbatch's copies between parameters and flat buffers or lists."""
    shape, lists, again = _shape(row), 0, 0
    units = make_parts(shape, (range(shape.layers),), tp=row.tp, ep=row.ep, copied=False)[0]
    for unit in units if model.stack.list_copy_us else ():
        for expert in (False, True):
            lists += 2 * len(gathered(unit, model.stack, expert=expert))
            lists += len(reduced(unit, model.stack, expert=expert))
            if row.recompute == "full" and unit.kind == LAYER:
                anew = gathered_again(unit, model.stack, expert=expert)
                lists, again = lists + len(anew), again + sum(anew)
    moved = model.gather_copy(2 * held + again).seconds + model.scatter_copy(held).seconds
    return moved + lists * model.list_copies(row.dp * row.cp).seconds


def layers_per_stage(row: Row) -> list[int]:
    """Return the layers of each stage; the ends hold one fewer where only that divides."""
    layers, pp = _shape(row).layers, row.pp
    if layers % pp == 0:
        return [layers // pp] * pp
    if (layers + 2) % pp == 0:
        each = (layers + 2) // pp
        return [each - (stage in (0, pp - 1)) for stage in range(pp)]
    return [layers // pp + (stage < layers % pp) for stage in range(pp)]


def stage_times(row: Row, model: ComputeModel) -> list[Stage]:
    """Return the compute of every stage."""
    shape = _shape(row)
    compiler = StageCompiler(shape, row.split, model, model.width, row.recompute)
    kinds = [(_unit(compiler, LAYER, layer), count) for layer, count in layer_kinds(shape)]
    mean = kinds[0][0].times(0)
    for stage, count in kinds:
        mean = mean + Stage(
            stage.forward * count / shape.layers, stage.backward * count / shape.layers,
            stage.weight * count / shape.layers,
        )  # fmt: skip
    stages = [mean.times(n) for n in layers_per_stage(row)]
    if not row.is_layer:
        stages[0] = stages[0] + _unit(compiler, EMBEDDING, -1)
        stages[-1] = stages[-1] + _unit(compiler, HEAD, -1)
    return stages


def pipeline_seconds(row: Row, stages: list[Stage], beside: float = 0.0) -> float:
    """Return the seconds of all microbatches; each takes `beside` on every stage besides."""
    p, m = row.pp, row.microbatches
    times = [stage.total + beside for stage in stages]
    longest, at = max(times), times.index(max(times))
    ramp = sum(times) - longest
    if row.schedule == "interleaved_1f1b":
        ramp /= row.vpp
    if p == 1 or not row.schedule.startswith("zb"):
        return m * longest + ramp
    F, B, W = stages[at].forward, stages[at].backward, stages[at].weight
    if row.schedule in ("zb_h1", "zb_1p"):
        return min(m * longest + ramp, m * longest + (p - 1) * (F + B - W + beside))
    if row.schedule == "zb_h2":
        filled = (p - 1) * (max(0.0, F + B - 2 * W) + beside)
        return min(m * longest + ramp, m * longest + filled)
    return max(m * longest, min(m * longest + ramp, (m + p - 1) * (F + B + beside) + W))


def _unit(compiler: StageCompiler, kind: str, layer: int) -> Stage:
    """Return the times of one unit, without what a microbatch takes beside."""
    durations = list(compiler.compile((Unit(kind, layer, ()),)).durations)
    durations[0] -= round(compiler.model.microbatch().seconds * PS_PER_SECOND)
    return Stage(*(duration / PS_PER_SECOND for duration in durations))


def _shape(row: Row) -> ModelShape:
    assert row.shape is not None
    return row.shape


def _local_parameters(row: Row) -> int:
    """Return the parameters on a rank of the stage that holds most: the first or the last."""
    shape, layers = _shape(row), layers_per_stage(row)
    each = sum(
        count * tensor_total(layer_tensors(shape, layer=layer, tp=row.tp, ep=row.ep))
        for layer, count in layer_kinds(shape)
    ) // shape.layers  # fmt: skip
    ends = tensor_total(embedding_tensors(shape, tp=row.tp))
    if row.pp == 1:
        return layers[0] * each + ends + tensor_total(head_tensors(shape, tp=row.tp))
    return max(layers[0] * each + ends, max(layers) * each)
