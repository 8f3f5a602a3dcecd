"""
Fitted constants: one set per GPU generation, one per software stack, from `constants.yaml`.

A generation's constants say what share of its datasheet a GPU reaches; a stack's say how many
kernels it launches, what it fuses and what its Python costs. `benchmarks/fit_compute.py` fits
them; the file says which were fitted on what, and which are taken from where.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec
import yaml

from commsim.cluster import GpuSpec
from commsim.errors import ScenarioError, did_you_mean
from commsim.sections import Section, decode

__all__ = [
    "Constants",
    "Flash",
    "FlashShare",
    "GpuConstants",
    "Stack",
    "Tile",
    "gpu_constants",
    "read_constants",
    "stack_constants",
    "stack_names",
]

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_FILE = "constants.yaml"


class Tile(Section, frozen=True, kw_only=True):
    """A tile of a matrix product and its speed relative to the best."""

    rows: int
    columns: int
    share: Share


class FlashShare(Section, frozen=True, kw_only=True):
    """Shares of the peak that a fused attention reaches at head width 128."""

    forward: Share
    backward: Share


class Flash(Section, frozen=True, kw_only=True):
    """The three generations of FlashAttention kernels on a GPU generation."""

    fa1: FlashShare
    fa2: FlashShare
    fa3: FlashShare


class GpuConstants(Section, frozen=True, kw_only=True):
    """What a GPU generation reaches. Efficiencies are shares of dense peak and of HBM bandwidth."""

    matmul_efficiency: Share
    fp8_efficiency: Share
    matmul_k_half: NotNegative
    wave_loss: Share
    batched_efficiency: Share
    memory_efficiency: Share
    launch_us: NotNegative
    tiles: tuple[Tile, ...]
    flash: Flash
    source: str


class Stack(Section, frozen=True, kw_only=True):
    """What a training framework does around the matrix products.

    `stream` and `softmax` multiply the bytes that memory-bound operations and an unfused
    attention move, relative to fully fused kernels. `attention` is the fused attention it uses
    (fa1, fa2, fa3: FlashAttention 1 to 3) or `unfused`. `accumulate_bytes` are moved per
    parameter and microbatch to add gradients outside the product. `cpu_us` is the time to issue
    one kernel from Python, `collective_us` one collective, `microbatch_ms` what a microbatch
    takes on a stage beside its layers (batch fetched and broadcast, synchronisation with the
    neighbours). `gradient_width`: bytes per gradient reduced in bf16 training;
    `loss_bytes` moved per logit by the cross-entropy, both ways.
    `tensor_parallel_loss`: extra compute time of a layer under tensor parallelism (layout
    copies, waiting for the slowest rank); `pipeline_loss`: likewise beside pipeline messages,
    for use where no engine slows compute beside communication.
    """

    attention: str
    stream: Positive
    softmax: Positive
    forward_kernels: NotNegative
    backward_kernels: NotNegative
    cpu_us: NotNegative
    collective_us: NotNegative
    microbatch_ms: NotNegative
    accumulate_bytes: NotNegative
    gradient_width: int
    loss_bytes: Positive
    optimizer_bytes: Positive
    optimizer_ms: NotNegative
    tensor_parallel_loss: NotNegative
    pipeline_loss: NotNegative
    early_stop: bool
    source: str


class Constants(Section, frozen=True, kw_only=True):
    """All of the file."""

    generations: dict[str, GpuConstants]
    capabilities: dict[str, str]
    stacks: dict[str, Stack]
    default_stack: str


def gpu_constants(gpu: GpuSpec, *, where: str = "compute", flat: bool = False) -> GpuConstants:
    """Return the constants of the generation that `gpu` is of.

    `flat`: only the optimizer needs them, so that any will do where the generation is unknown.

    Raises:
        ScenarioError: nothing is known of its generation.
    """
    file = read_constants()
    generation = file.capabilities.get(gpu.compute_capability.split(".")[0])
    if generation is None and flat:
        return next(iter(file.generations.values()))
    if generation is None:
        raise ScenarioError(
            f"{where}: how fast a {gpu.name} computes is not known here. Give compute.efficiency,"
            " the share of its peak that layers reach, or measured times."
        )
    return file.generations[generation]


def stack_constants(name: str | None = None, *, where: str = "compute.stack") -> Stack:
    """Return the constants of a software stack; the default one without a name.

    Raises:
        ScenarioError: an unknown name.
    """
    file = read_constants()
    name = file.default_stack if name is None else name
    if name not in file.stacks:
        raise ScenarioError(
            f"{where}: no software stack {name!r}.{did_you_mean(name, file.stacks)}"
            f" Known: {', '.join(file.stacks)}."
        )
    return file.stacks[name]


def stack_names() -> tuple[str, ...]:
    """Return the names of the software stacks."""
    return tuple(read_constants().stacks)


@cache
def read_constants() -> Constants:
    """Return all constants of the file."""
    text = files("commsim.models").joinpath(_FILE).read_text(encoding="utf-8")
    data: Any = yaml.safe_load(text)
    return decode(data, Constants, _FILE)
