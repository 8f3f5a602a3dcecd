"""
A training step in closed form: stage times from commsim's compute model, textbook formulas around.

It stands in for the engine where thousands of steps are wanted, as in `fit_compute.py`, and
beside it in `validate_training.py`. Formulas: docs of the pipeline schedules (Narayanan et al.
2021; Qi et al. 2023), ring collectives by their bytes, the node's NICs shared by the groups that
use them. F, B, W are the times of a microbatch on a stage, T their sum, c that of one message.

1F1B           m (Tmax + 2c (p-1)/p) + (sum T - Tmax) + 2 (p-1) c
interleaved    m (Tmax + 2c v (p-1)/p) + (sum T - Tmax + 2 (p-1) c)/v
ZB-H1, ZB-1p   m (T + 2c) + (p-1) (F + B - W);   ZB-H2   m (T + 2c) + (p-1) (F + B - 2W)
ZB-2p, ZB-V    max(m (T + 2c), min(1F1B, (m+p-1) (F + B + 2c) + W))
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from stack_communication import stack_communication
from training_rows import Row

from commsim.cluster.gpus import gpu_spec
from commsim.models import (
    RECOMPUTE,
    Block,
    ComputeModel,
    ComputeSection,
    ModelShape,
    embedding_tensors,
    head_tensors,
    hidden_bytes,
    layer_tensors,
    tensor_parallel_bytes,
    tensor_total,
)
from commsim.models.constants import GpuConstants, Stack

__all__ = ["Links", "Stage", "StepParts", "make_model", "stage_times", "step_parts", "step_time"]


@dataclass(frozen=True, slots=True)
class Links:
    """What collectives and messages reach: shares of link bandwidth, latencies in microseconds."""

    nvlink: float = 0.92
    network: float = 0.81
    p2p: float = 0.46
    p2p_us: float = 150.0
    ring_us: float = 29.0
    overlap_cost: float = 0.48
    hidden_share: float = 0.85


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds of a microbatch on one stage: forward, input gradient, weight gradient."""

    forward: float
    backward: float
    weight: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.weight


@dataclass(frozen=True, slots=True)
class StepParts:
    """The seconds of a step by what they are spent on."""

    pipeline: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.pipeline + self.gradients + self.optimizer


def make_model(row: Row, constants: GpuConstants, stack: Stack) -> ComputeModel:
    """Return the compute model of a row, its attention as the row says."""
    attention = stack.attention
    if not row.flash:
        attention = "unfused"
    elif attention == "unfused":
        attention = "fa2"
    gpu = gpu_spec(row.gpu)
    if row.slower is not None:
        bandwidth, share = row.slower
        tflops = {name: value * share for name, value in gpu.tflops.items()}
        gpu = replace(gpu, memory_bandwidth=bandwidth, tflops=tflops)
    return ComputeModel(
        gpu, row.precision, constants, msgspec.structs.replace(stack, attention=attention),
        ComputeSection(),
    )  # fmt: skip


def step_time(row: Row, constants: GpuConstants, stack: Stack, links: Links) -> float:
    """Return the predicted seconds of a row's step."""
    return step_parts(row, constants, stack, links).total


def step_parts(row: Row, constants: GpuConstants, stack: Stack, links: Links) -> StepParts:
    """Return the predicted seconds of a row's step by part."""
    model = make_model(row, constants, stack)
    if row.zero == 3 or row.schedule == "fsdp":
        return _sharded_step(row, model, links)
    stages = stage_times(row, model, links)
    pipeline = _pipeline(row, model, stages, links)
    return StepParts(pipeline, _gradients(row, model, stages, links), _optimizer(row, model))


def _shape(row: Row) -> ModelShape:
    assert row.shape is not None
    return row.shape


def layers_per_stage(row: Row) -> list[int]:
    """Return the layers of each stage; the ends hold one fewer where only that divides."""
    layers, pp = _shape(row).layers, row.pp
    if layers % pp == 0:
        return [layers // pp] * pp
    if (layers + 2) % pp == 0:
        each = (layers + 2) // pp
        return [each - (stage in (0, pp - 1)) for stage in range(pp)]
    return [layers // pp + (stage < layers % pp) for stage in range(pp)]


def layer_blocks(row: Row, model: ComputeModel, reduce: float) -> tuple[Block, ...]:
    """Return the blocks of a layer; "selective_op" (torchtitan) runs half of its forward again."""
    known = row.recompute in RECOMPUTE
    how = row.recompute if known else "none"
    blocks = model.layer(_shape(row), row.split, recompute=how, collective=reduce)
    if known:
        return blocks
    return tuple(
        replace(block, recompute=block.forward.lasting(block.forward.seconds / 2))
        for block in blocks
    )


def stage_times(row: Row, model: ComputeModel, links: Links) -> list[Stage]:
    """Return the times of every stage, tensor-parallel collectives included."""
    shape, split = _shape(row), row.split
    reduce = _tensor_parallel(row, model, links)
    blocks = layer_blocks(row, model, reduce)
    again = sum(block.recompute.seconds for block in blocks)
    forward = sum(block.forward.seconds for block in blocks)
    backward = sum(block.backward.seconds for block in blocks)
    weight = sum(block.weight.seconds for block in blocks)
    forward += 2 * reduce
    backward += again + 2 * reduce
    if row.recompute == "full":
        backward += (1 if model.stack.early_stop else 2) * reduce
    stages = [Stage(n * forward, n * backward, n * weight) for n in layers_per_stage(row)]
    if shape.vocab > 1:
        stages[0] = _plus(stages[0], model.embedding(shape, split), reduce)
        stages[-1] = _plus(stages[-1], model.head(shape, split), 0.0)
    return stages


def _plus(stage: Stage, block: object, reduce: float) -> Stage:
    return Stage(
        stage.forward + block.forward.seconds + reduce,  # type: ignore[attr-defined]
        stage.backward + block.backward.seconds,  # type: ignore[attr-defined]
        stage.weight + block.weight.seconds,  # type: ignore[attr-defined]
    )


def _tensor_parallel(row: Row, model: ComputeModel, links: Links) -> float:
    """Return the seconds of one all-reduce of the hidden state over the tensor-parallel group."""
    if row.tp == 1:
        return 0.0
    size = tensor_parallel_bytes(_shape(row), row.split, width=2)
    rate, latency = model.gpu.nvlink_bandwidth * links.nvlink, links.ring_us
    if row.tp > row.node:
        rate, latency = min(rate, row.network * links.network), 3 * latency
    return latency * 1e-6 + 2 * (row.tp - 1) / row.tp * size / rate


def _pipeline(row: Row, model: ComputeModel, stages: list[Stage], links: Links) -> float:
    """Return the seconds of all microbatches; in the steady part messages slow the compute."""
    p, m, v = row.pp, row.microbatches, row.vpp
    if _shape(row).vocab == 1:  # a published layer, not a step
        return stages[0].total
    beside = model.microbatch().seconds
    times = [stage.total + beside for stage in stages]
    longest = max(times)
    if p == 1:
        return m * longest
    c, slower = _message(row, model, links), 1 + model.stack.pipeline_loss
    steady = m * (longest * slower + 2 * c * (p - 1) / p)
    ramp = sum(times) - longest + 2 * (p - 1) * c
    if row.schedule == "interleaved_1f1b":
        return steady + m * (v - 1) * (beside + 2 * c * (p - 1) / p) + ramp / v
    if not row.schedule.startswith("zb"):
        return steady + ramp
    return _zero_bubble(row, stages, steady, steady + ramp, 2 * c + beside)


def _zero_bubble(row: Row, stages: list[Stage], steady: float, one: float, beside: float) -> float:
    """Return the span of a schedule that fills its bubble with weight gradients."""
    p, m = row.pp, row.microbatches
    longest = max(stages, key=lambda stage: stage.total)
    F, B, W = longest.forward, longest.backward, longest.weight
    if row.schedule in ("zb_h1", "zb_1p"):
        return min(one, steady + (p - 1) * (F + B - W + beside))
    if row.schedule == "zb_h2":
        return min(one, steady + (p - 1) * (max(0.0, F + B - 2 * W) + beside))
    ramp = (m + p - 1) * (F + B + beside) + W
    return max(steady, min(one, ramp))


def _message(row: Row, model: ComputeModel, links: Links) -> float:
    """Return the seconds of one message between stages: over the network, the NICs shared."""
    size = hidden_bytes(_shape(row), row.split, width=2)
    if scattered(row):
        size //= row.tp
    if row.tp * row.pp <= row.node:  # all stages in one node
        return size / (model.gpu.nvlink_bandwidth * links.nvlink) + links.p2p_us * 1e-6
    return size / (row.network / row.node * links.p2p) + links.p2p_us * 1e-6


def scattered(row: Row) -> bool:
    """Return whether each rank of a tensor-parallel group sends its part of a boundary."""
    return row.pp > 1 and row.tp > 1 and not row.sequence_parallel


def _local_parameters(row: Row) -> int:
    """Return the parameters on a rank of the stage that holds most: the first or the last."""
    shape = _shape(row)
    layers = layers_per_stage(row)
    each = tensor_total(layer_tensors(shape, tp=row.tp, ep=row.ep))
    ends = tensor_total(embedding_tensors(shape, tp=row.tp)) if shape.vocab > 1 else 0
    if row.pp == 1:
        return layers[0] * each + ends + tensor_total(head_tensors(shape, tp=row.tp))
    return max(layers[0] * each + ends, max(layers) * each)


def _gradient_rate(row: Row, model: ComputeModel, links: Links) -> float:
    """Return the bytes/s of a data-parallel ring on one rank, the node's NICs shared."""
    inside = max(1, row.node // row.tp) if row.tp < row.node else 1
    if row.dp <= inside:
        return model.gpu.nvlink_bandwidth * links.nvlink
    return row.network * links.network * inside / row.node


def _gradients(row: Row, model: ComputeModel, stages: list[Stage], links: Links) -> float:
    """Return the exposed seconds of reducing gradients (and of the table that two stages share)."""
    if row.dp == 1:
        return 0.0
    N, P, g = row.dp, _local_parameters(row), model.gradient_width
    volume = (N - 1) / N * P * ((g + 2) if row.zero else 2 * g)
    whole = volume / _gradient_rate(row, model, links)
    if not overlapped(row):
        return whole
    last = stages[0].backward + stages[0].weight
    hidden = min(whole, links.hidden_share * last)
    return whole - hidden + links.overlap_cost * hidden


def overlapped(row: Row) -> bool:
    """Return whether gradients are reduced beside the backward."""
    return stack_communication(row.stack).overlap


def _optimizer(row: Row, model: ComputeModel) -> float:
    parameters = _local_parameters(row)
    return model.optimizer(parameters // (row.dp if row.zero else 1)).seconds


def _sharded_step(row: Row, model: ComputeModel, links: Links) -> StepParts:
    """Return the step of ZeRO-3 or FSDP: every layer gathered for each pass of each microbatch."""
    shape, split, N = _shape(row), row.split, row.dp
    reduce = _tensor_parallel(row, model, links)
    blocks = layer_blocks(row, model, reduce)
    forward = sum(block.forward.seconds for block in blocks) + 2 * reduce
    backward = sum(block.full_backward.seconds for block in blocks) + 2 * reduce
    entries = tensor_total(layer_tensors(shape, tp=row.tp))
    rate = _gradient_rate(row, model, links)
    gather = 2 * entries * (N - 1) / N / rate
    scatter = _scatter_width(row) * entries * (N - 1) / N / rate
    layer = _beside(forward, gather, links) + _beside(backward, gather + scatter, links)
    root = tensor_total(embedding_tensors(shape, tp=row.tp)) + tensor_total(head_tensors(shape))
    ends = (4 + _scatter_width(row)) * root * (N - 1) / N / rate
    for block in (model.embedding(shape, split), model.head(shape, split)):
        ends += block.forward.seconds + block.full_backward.seconds
    every = shape.layers * layer + ends
    total = shape.layers * entries + root
    return StepParts(row.microbatches * every, 0.0, model.optimizer(total // N).seconds)


def _scatter_width(row: Row) -> int:
    """Return the bytes per gradient: fp32 reductions in torchtitan and Composer's DEFAULT mode."""
    return 4 if "mp_mode DEFAULT" in row.note or row.stack == "torchtitan" else 2


def _beside(compute: float, communication: float, links: Links) -> float:
    shorter = min(compute, communication)
    return max(compute, communication) + links.overlap_cost * shorter
