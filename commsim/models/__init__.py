"""
What a model costs: transformer shapes, their parameters, FLOPs, bytes, times and memory.

In: a `ModelShape`, a GPU, how a layer is split over ranks. Out: seconds per kernel (roofline with
the fitted constants of a software stack), bytes that a rank holds.
"""

from commsim.models.activations import (
    embedding_activation_bytes,
    head_activation_bytes,
    head_working_bytes,
    layer_activation_bytes,
    layer_working_bytes,
    logit_count,
)
from commsim.models.catalogue import (
    ModelPreset,
    Published,
    model_names,
    model_preset,
    model_presets,
    model_text,
)
from commsim.models.choose_compute import compute_model
from commsim.models.compute import ComputeModel
from commsim.models.compute_section import ComputeSection, MeasuredTimes
from commsim.models.constants import (
    Stack,
    common_stacks,
    default_stack,
    stack_constants,
    stack_names,
)
from commsim.models.flops import (
    BACKWARD_PER_FORWARD,
    FLOP_CONVENTIONS,
    attention_flops,
    boundary_bytes,
    hardware_flops,
    head_flops,
    layer_flops,
    training_flops,
)
from commsim.models.issue import default_host_overhead, issued
from commsim.models.memory import (
    MemoryUse,
    StateBytes,
    check_memory,
    fits,
    memory_text,
    optimizer_entries,
    state_bytes,
)
from commsim.models.parameters import (
    Tensor,
    active_parameter_count,
    embedding_tensors,
    head_tensors,
    layer_tensors,
    local_kv_heads,
    parameter_count,
    tensor_total,
)
from commsim.models.precision import PRECISION_NAMES, Recipe, peak_name, recipe_of
from commsim.models.recompute import RECOMPUTE, RECOMPUTE_MODULES, Module, Recompute, modules_of
from commsim.models.roofline import precision_of, resolve_durations, shapes_of
from commsim.models.section import Model, ModelSection, build_model
from commsim.models.shape import (
    Experts,
    LatentAttention,
    ModelShape,
    is_moe_layer,
    layer_kinds,
    score_width,
    value_width,
)
from commsim.models.split import (
    Split,
    check_split,
    context_ring_bytes,
    expert_all_to_all_bytes,
    hidden_bytes,
    tensor_parallel_bytes,
    ulysses_bytes,
)
from commsim.models.work import NOTHING, Block, GpuWork

__all__ = [
    "BACKWARD_PER_FORWARD",
    "FLOP_CONVENTIONS",
    "NOTHING",
    "PRECISION_NAMES",
    "RECOMPUTE",
    "RECOMPUTE_MODULES",
    "Block",
    "ComputeModel",
    "ComputeSection",
    "Experts",
    "GpuWork",
    "LatentAttention",
    "MeasuredTimes",
    "MemoryUse",
    "Model",
    "ModelPreset",
    "ModelSection",
    "ModelShape",
    "Module",
    "Published",
    "Recipe",
    "Recompute",
    "Split",
    "Stack",
    "StateBytes",
    "Tensor",
    "active_parameter_count",
    "attention_flops",
    "boundary_bytes",
    "build_model",
    "check_memory",
    "check_split",
    "common_stacks",
    "compute_model",
    "context_ring_bytes",
    "default_host_overhead",
    "default_stack",
    "embedding_activation_bytes",
    "embedding_tensors",
    "expert_all_to_all_bytes",
    "fits",
    "hardware_flops",
    "head_activation_bytes",
    "head_flops",
    "head_tensors",
    "head_working_bytes",
    "hidden_bytes",
    "is_moe_layer",
    "issued",
    "layer_activation_bytes",
    "layer_flops",
    "layer_kinds",
    "layer_tensors",
    "layer_working_bytes",
    "local_kv_heads",
    "logit_count",
    "memory_text",
    "model_names",
    "model_preset",
    "model_presets",
    "model_text",
    "modules_of",
    "optimizer_entries",
    "parameter_count",
    "peak_name",
    "precision_of",
    "recipe_of",
    "resolve_durations",
    "score_width",
    "shapes_of",
    "stack_constants",
    "stack_names",
    "state_bytes",
    "tensor_parallel_bytes",
    "tensor_total",
    "training_flops",
    "ulysses_bytes",
    "value_width",
]
