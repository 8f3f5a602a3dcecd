"""What a model costs: transformer shapes, their parameters, FLOPs and bytes."""

from commsim.models.catalogue import ModelPreset, Published, model_names, model_preset
from commsim.models.flops import (
    BACKWARD_PER_FORWARD,
    boundary_bytes,
    head_flops,
    layer_flops,
    training_flops,
)
from commsim.models.parameters import (
    Tensor,
    embedding_tensors,
    head_tensors,
    layer_tensors,
    parameter_count,
    tensor_total,
)
from commsim.models.section import Model, ModelSection, build_model
from commsim.models.shape import ModelShape

__all__ = [
    "BACKWARD_PER_FORWARD",
    "Model",
    "ModelPreset",
    "ModelSection",
    "ModelShape",
    "Published",
    "Tensor",
    "boundary_bytes",
    "build_model",
    "embedding_tensors",
    "head_flops",
    "head_tensors",
    "layer_flops",
    "layer_tensors",
    "model_names",
    "model_preset",
    "parameter_count",
    "tensor_total",
    "training_flops",
]
