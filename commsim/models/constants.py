"""
Fitted constants: one set per GPU generation, one per software stack, from `constants.yaml`.

A generation's constants say what share of its datasheet a GPU reaches; a stack's say how many
kernels it launches, what it fuses and what its Python costs. `benchmarks/fit_compute.py` fits
them; the file says which were fitted on what, and which are taken from where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from commsim.cluster import GpuSpec
from commsim.errors import ScenarioError, did_you_mean
from commsim.sections import Section, decode
from commsim.yaml_file import read_own_yaml

__all__ = [
    "Buckets",
    "ComputeConstants",
    "Flash",
    "FlashShare",
    "FusedPass",
    "GpuConstants",
    "RecipeShare",
    "Stack",
    "Tile",
    "common_stacks",
    "default_stack",
    "generation_of",
    "gpu_constants",
    "read_constants",
    "recipe_share",
    "stack_constants",
    "stack_names",
    "stack_on",
]

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
_FILE = Path(__file__).with_name("constants.yaml")
_ON_THE_GPU = ("stream", "softmax", "loss_bytes", "accumulate_bytes", "tensor_parallel_loss")
"""What fits say of a stack's kernels on a GPU; the others are about its host."""


class Tile(Section, frozen=True, kw_only=True):
    """A tile of a matrix product and its speed relative to the best."""

    rows: int
    columns: int
    share: Share


class FusedPass(Section, frozen=True, kw_only=True):
    """What a fused attention reaches one way (`fused_attention.py`).

    `share` of the peak with long rows of keys, heads 128 wide, and more tiles than SMs by far;
    `narrow` times that with heads 64 wide (0.925 on an A100: Dao 2023, figures 4 to 6);
    `half_keys` is the length of a row at which half is lost, `tail` what of its longest tile a
    kernel waits for at its end.
    """

    share: Share
    narrow: Share = 0.925
    half_keys: NotNegative = 0.0
    tail: NotNegative = 0.0


class FlashShare(Section, frozen=True, kw_only=True):
    """Both ways of a fused attention."""

    forward: FusedPass
    backward: FusedPass


class Flash(Section, frozen=True, kw_only=True):
    """FlashAttention 1 to 3 and cuDNN's fused attention on a GPU generation."""

    fa1: FlashShare
    fa2: FlashShare
    fa3: FlashShare
    cudnn: FlashShare
    cudnn_9_7: FlashShare | None = None  # as cudnn where it is not given


class GpuConstants(Section, frozen=True, kw_only=True):
    """What a GPU generation reaches. Efficiencies are shares of dense peak and of HBM bandwidth."""

    matmul_efficiency: Share
    fp8_efficiency: Share
    matmul_k_half: NotNegative
    wave_loss: Share
    batched_efficiency: Share
    memory_efficiency: Share
    cast_efficiency: Share = 1.0
    """What of the bandwidth of copies the kernels reach that cast to fp8 or fp4."""
    launch_us: NotNegative
    tiles: tuple[Tile, ...]
    attentions: tuple[str, ...]
    """The fused attentions that are made for the generation, the newest first."""
    flash: Flash
    spread: NotNegative = 0.0
    """The standard deviation of the speeds of GPUs of one kind, as a share."""
    fitted: tuple[str, ...] = ()
    """The precisions in which published steps on this generation were fitted."""
    source: str


class RecipeShare(Section, frozen=True, kw_only=True):
    """What of the generation's fp8 efficiency the kernels of a recipe reach."""

    share: Positive
    source: str


class Buckets(Section, frozen=True, kw_only=True):
    """How many gradients a stack reduces at once: at least `entries`, and `per_replica` more
    with each replica; the `first` bucket may be smaller. In entries, or in bytes."""

    entries: NotNegative = 0
    per_replica: NotNegative = 0
    bytes: NotNegative = 0
    first_bytes: NotNegative = 0


class Stack(Section, frozen=True, kw_only=True):
    """What a training framework does around the matrix products, as its users get it.

    `attention` is the fused attention it uses (fa1, fa2, fa3: FlashAttention 1 to 3; cudnn, and
    cudnn_9_7 as it was on Blackwell in early 2025) or `unfused`; `attention_on` says otherwise for
    some GPU generations.
    `stream` and `softmax` multiply the bytes that memory-bound operations and an unfused
    attention move, relative to fully fused kernels. `accumulate_bytes` are moved per
    parameter and microbatch to add gradients outside the product. `cpu_us` is the time to issue
    one kernel from Python, `collective_us` one collective, `microbatch_ms` what a microbatch
    takes on a stage besides its layers (batch fetched and broadcast, synchronisation with the
    neighbours). `loss_bytes` moved per logit by the cross-entropy, both ways.
    `tensor_parallel_loss`: extra compute time of a layer under tensor parallelism (layout
    copies, waiting for the slowest rank).

    Experts: `expert_kernels` are launched per local expert in a forward, twice as many in a
    backward, each issued in `expert_cpu_us`; `routing_us` is what the GPU waits for the host if
    it must know how many tokens come. Sharded parameters: `gather_copy_bytes` and
    `scatter_copy_bytes` are moved per parameter
    between a unit's tensors and the flat buffers of its collectives; `gathers_ahead` units are
    gathered before a backward needs them, `forward_gathers_ahead` before a forward does.
    `gather_by` says what one collective holds: a unit, or one tensor; tensors of fewer than
    `whole_below` entries are not sharded; what is needed again within `kept_within` entries is not
    gathered again. `adds_up_whole`: gradients of sharded parameters are added up whole over the
    microbatches, and reduced after the last. `list_copy_us`: collectives take lists of tensors, a
    part per rank, each copied by a kernel of its own that takes so long.

    Defaults of a scenario: `gradient_width` bytes per gradient in bf16 training, `buckets`,
    `overlap` of gradients with the backward, `tp_overlap`, `cuda_graph`, `dispatcher` of tokens to
    experts, `expert_overlap` of a forward's tokens on their way with a backward's compute.
    `experts_gather`: where tensor parallelism divides experts too, each token is gathered before it
    is routed (tokens: torchtitan), or all copies behind the all-to-all (copies: Megatron).

    `experts_in_graphs`: counts of tokens stay on the GPU, so that a graph may hold experts.
    `fused_experts`: a grouped product's epilogue computes the activation and quantises what it
    writes. `attention_fp8`: how many times as fast a fused attention's forward is in fp8, in
    quantised training; 1 if it stays in bf16.

    Memory: `saves_fp8`, inputs of quantised products are kept as cast; `parameter_width` and
    `optimizer_width` are bytes per parameter between steps (`optimizer_width` holds fp32
    copies of the parameters, if any), `logit_bytes` per logit at the peak, `allocator_slack` is
    the share that the framework's allocator holds on top of what is in use. `loss_parallel`: under
    tensor parallelism the loss is computed on parts of the vocabulary, not on gathered logits.

    `ring`: ring attention passes grouped keys and values on and adds up partial results in one
    kernel (fused: Transformer Engine), or repeats keys and values for all heads, gathers them at
    once, adds up in fp32 step by step, and passes on gradients of a step during the next (torch);
    compiled, that has fewer kernels, but each collective is waited for at once.

    `fp8_gathers`: in training with one fp8 scale per tensor, what tensor parallelism and FSDP
    gather in front of products is cast before, and has a byte per entry.

    `fitted` names the GPU generations of the published steps that it was fitted on; `family` what
    it is a release or a relative of.
    """

    family: str
    year: int
    attention: str
    attention_on: dict[str, str] = {}
    stream: Positive
    softmax: Positive
    forward_kernels: NotNegative
    backward_kernels: NotNegative
    cpu_us: NotNegative
    collective_us: NotNegative
    microbatch_ms: NotNegative
    accumulate_bytes: NotNegative
    gradient_width: int
    buckets: Buckets
    overlap: bool
    tp_overlap: str
    cuda_graph: Literal["none", "experts", "full"]
    dispatcher: Literal["alltoall", "deepep", "deepep-fp8"]
    expert_overlap: bool = False
    experts_gather: Literal["tokens", "copies"] = "tokens"
    experts_in_graphs: bool = False
    fused_experts: bool = False
    attention_fp8: Positive = 1.0
    ring: Literal["fused", "torch", "compiled"]
    saves_fp8: bool
    loss_bytes: Positive
    optimizer_bytes: Positive
    optimizer_ms: NotNegative
    tensor_parallel_loss: NotNegative
    expert_kernels: NotNegative
    expert_cpu_us: NotNegative
    routing_us: NotNegative
    gather_copy_bytes: NotNegative
    scatter_copy_bytes: NotNegative
    gathers_ahead: int
    forward_gathers_ahead: int
    gather_by: Literal["unit", "tensor"]
    whole_below: int
    kept_within: NotNegative
    adds_up_whole: bool
    list_copy_us: NotNegative
    parameter_width: int
    optimizer_width: int
    logit_bytes: NotNegative
    allocator_slack: NotNegative
    loss_parallel: bool
    fp8_gathers: bool
    early_stop: bool
    fitted: tuple[str, ...] = ()
    source: str

    def on(self, generation: str, stacks: Mapping[str, Stack], made: Sequence[str]) -> Stack:
        """Return the stack as it is on a GPU generation: with the attention that it uses there.

        Where it was not fitted there, what its kernels move is no less than what those of its
        newest relative of `stacks` that was fitted there do: what made a stack fast on one
        generation (kernels written for it, other clocks) is not known to do so on another.
        An attention that is not `made` for the generation is the relative's, or the newest that is.
        """
        name = self.relative(generation, stacks)
        kin = self if name is None else stacks[name]
        kernel = self.attention_on.get(generation, self.attention)
        if made and kernel not in (*made, "unfused"):
            kernel = made[0] if name is None else kin.attention
        slower = {one: max(getattr(self, one), getattr(kin, one)) for one in _ON_THE_GPU}
        fp8 = min(self.attention_fp8, kin.attention_fp8)
        return msgspec.structs.replace(self, attention=kernel, attention_fp8=fp8, **slower)

    def relative(self, generation: str, stacks: Mapping[str, Stack]) -> str | None:
        """Return the newest of the family that was fitted on a generation; None if it is itself
        fitted there, or none of them is."""
        if generation in self.fitted:
            return None
        kin = [
            name
            for name, other in stacks.items()
            if other.family == self.family and generation in other.fitted
        ]
        return max(kin, key=lambda name: stacks[name].year, default=None)


class Captured(Section, frozen=True, kw_only=True):
    """What torch does in a captured step: its attention kernel, by GPU generation, and `host_us`,
    how long Python takes to issue an op."""

    attention: str
    attention_on: dict[str, str] = {}
    host_us: NotNegative
    source: str


class ComputeConstants(Section, frozen=True, kw_only=True):
    """All of the file."""

    generations: dict[str, GpuConstants]
    capabilities: dict[str, str]
    fitted_gpus: dict[str, tuple[str, ...]]
    recipes: dict[str, RecipeShare]
    stacks: dict[str, Stack]
    stack_of: dict[str, str]
    captured: Captured


def gpu_constants(gpu: GpuSpec, *, where: str = "compute", flat: bool = False) -> GpuConstants:
    """Return the constants of the generation that `gpu` is of.

    `flat`: only the optimizer needs them, so that any will do if the generation is unknown.

    Raises:
        ScenarioError: nothing is known of its generation, or of a part that kernels are bound by.
    """
    file, generation = read_constants(), generation_of(gpu)
    if generation is None and not flat:
        raise ScenarioError(
            f"{where}: how fast a {gpu.name} computes is not known here. Give compute.efficiency,"
            " the share of its peak that layers reach, or measured times."
        )
    for part in ("memory_bandwidth",) if flat else ("memory_bandwidth", "sm_count"):
        if not getattr(gpu, part):
            raise ScenarioError(
                f"{where}: how fast a {gpu.name} computes depends on its {part}, which is not"
                f" given. Give gpu.{part} in the cluster."
            )
    if generation is None:
        return next(iter(file.generations.values()))
    return file.generations[generation]


def generation_of(gpu: GpuSpec) -> str | None:
    """Return the generation that a GPU is of; None for one that nothing is known of."""
    return read_constants().capabilities.get(gpu.compute_capability.split(".")[0])


def default_stack(kind: str) -> str:
    """Return the stack that people mostly use for a kind of data parallelism."""
    return read_constants().stack_of[kind]


def common_stacks(gpu: GpuSpec) -> tuple[str, ...]:
    """Return the stacks that are taken for some kind of data parallelism and were fitted on a GPU's
    generation."""
    file, generation = read_constants(), generation_of(gpu)
    names = dict.fromkeys(file.stack_of.values())
    return tuple(name for name in names if generation in file.stacks[name].fitted)


def recipe_share(name: str) -> float:
    """Return what of the fp8 efficiency a recipe's kernels reach."""
    return read_constants().recipes[name].share


def stack_constants(name: str, *, where: str = "compute.stack") -> Stack:
    """Return the constants of a software stack.

    Raises:
        ScenarioError: an unknown name.
    """
    file = read_constants()
    if name not in file.stacks:
        raise ScenarioError(
            f"{where}: no software stack {name!r}.{did_you_mean(name, file.stacks)}"
            f" Known: {', '.join(file.stacks)}."
        )
    return file.stacks[name]


def stack_on(name: str, gpu: GpuSpec, *, where: str = "compute.stack") -> Stack:
    """Return the constants of a software stack as it is on a GPU (`Stack.on`).

    Raises:
        ScenarioError: an unknown name.
    """
    file, generation = read_constants(), generation_of(gpu)
    stack = stack_constants(name, where=where)
    if generation is None:
        return stack
    return stack.on(generation, file.stacks, file.generations[generation].attentions)


def stack_names() -> tuple[str, ...]:
    """Return the names of the software stacks."""
    return tuple(read_constants().stacks)


@cache
def read_constants() -> ComputeConstants:
    """Return all constants of the file."""
    return decode(read_own_yaml(_FILE), ComputeConstants, _FILE.name)
