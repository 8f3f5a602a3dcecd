"""What a model costs: transformer shapes, their parameters, FLOPs, bytes, times and memory."""

from commsim.models.activations import (
    RECOMPUTE,
    embedding_activation_bytes,
    head_activation_bytes,
    layer_activation_bytes,
    layer_working_bytes,
)
from commsim.models.catalogue import ModelPreset, Published, model_names, model_preset
from commsim.models.compute import ComputeModel, compute_model
from commsim.models.compute_section import ComputeSection, MeasuredTimes
from commsim.models.constants import stack_names
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
from commsim.models.section import Model, ModelSection, build_model
from commsim.models.shape import (
    Experts,
    LatentAttention,
    ModelShape,
    is_moe_layer,
    layer_kinds,
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
from commsim.models.work import Block, Work

__all__ = [
    "BACKWARD_PER_FORWARD",
    "FLOP_CONVENTIONS",
    "RECOMPUTE",
    "Block",
    "ComputeModel",
    "ComputeSection",
    "Experts",
    "LatentAttention",
    "MeasuredTimes",
    "MemoryUse",
    "Model",
    "ModelPreset",
    "ModelSection",
    "ModelShape",
    "Published",
    "Split",
    "StateBytes",
    "Tensor",
    "Work",
    "active_parameter_count",
    "attention_flops",
    "boundary_bytes",
    "build_model",
    "check_memory",
    "check_split",
    "compute_model",
    "context_ring_bytes",
    "embedding_activation_bytes",
    "embedding_tensors",
    "expert_all_to_all_bytes",
    "fits",
    "hardware_flops",
    "head_activation_bytes",
    "head_flops",
    "head_tensors",
    "hidden_bytes",
    "is_moe_layer",
    "layer_activation_bytes",
    "layer_flops",
    "layer_kinds",
    "layer_tensors",
    "layer_working_bytes",
    "local_kv_heads",
    "memory_text",
    "model_names",
    "model_preset",
    "optimizer_entries",
    "parameter_count",
    "stack_names",
    "state_bytes",
    "tensor_parallel_bytes",
    "tensor_total",
    "training_flops",
    "ulysses_bytes",
]
