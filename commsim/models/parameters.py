"""
Parameters of a model, tensor by tensor in the order in which a module registers them.

Embeddings first, then the layers, then the final norm and the head. The order matters to
DistributedDataParallel, which fills its buckets backwards along it. Query, key and value are
one matrix, as in GPT-2 and Megatron; gate and up are two.

A GPT shape has 12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h)) + 2 h parameters: Narayanan et al.,
SC'21, equation 2, and the final norm.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.models.shape import ModelShape

__all__ = [
    "Tensor",
    "embedding_tensors",
    "head_tensors",
    "layer_tensors",
    "parameter_count",
    "tensor_total",
]


class Tensor(NamedTuple):
    """One parameter tensor."""

    name: str
    entries: int


def embedding_tensors(shape: ModelShape) -> tuple[Tensor, ...]:
    """Return the token table, learned positions and the norm after them, where there are any."""
    tensors = [Tensor("embedding.weight", shape.vocab * shape.hidden)]
    if shape.learned_position_rows:
        tensors.append(Tensor("position.weight", shape.learned_position_rows * shape.hidden))
    if shape.embedding_norm:
        tensors += _norm("embedding_norm", shape)
    return tuple(tensors)


def layer_tensors(shape: ModelShape) -> tuple[Tensor, ...]:
    """Return the parameters of one layer: attention, then MLP, each behind its norm."""
    return tuple(
        _norm("attention_norm", shape) + _attention(shape) + _norm("mlp_norm", shape) + _mlp(shape)
    )


def head_tensors(shape: ModelShape) -> tuple[Tensor, ...]:
    """Return the final norm, and the output matrix where it is not the token table itself."""
    tensors = _norm("final_norm", shape)
    if not shape.tied_embeddings:
        tensors.append(Tensor("head.weight", shape.vocab * shape.hidden))
    return tuple(tensors)


def parameter_count(shape: ModelShape) -> int:
    """Return the trainable parameters of the whole model."""
    ends = tensor_total(embedding_tensors(shape)) + tensor_total(head_tensors(shape))
    return ends + shape.layers * tensor_total(layer_tensors(shape))


def tensor_total(tensors: tuple[Tensor, ...]) -> int:
    """Return the entries of all `tensors` together."""
    return sum(tensor.entries for tensor in tensors)


def _attention(shape: ModelShape) -> list[Tensor]:
    h, e = shape.hidden, shape.head_dim
    width = (shape.heads + 2 * shape.kv_heads) * e
    tensors = _linear("attention.qkv", h, width, bias=shape.qkv_bias)
    if shape.qk_norm:
        tensors += [Tensor("attention.q_norm.weight", e), Tensor("attention.k_norm.weight", e)]
    return tensors + _linear("attention.out", shape.heads * e, h, bias=shape.linear_bias)


def _mlp(shape: ModelShape) -> list[Tensor]:
    h, f, bias = shape.hidden, shape.ffn, shape.linear_bias
    gate = _linear("mlp.gate", h, f, bias=bias) if shape.gated else []
    return gate + _linear("mlp.up", h, f, bias=bias) + _linear("mlp.down", f, h, bias=bias)


def _linear(name: str, width_in: int, width_out: int, *, bias: bool) -> list[Tensor]:
    weight = Tensor(f"{name}.weight", width_in * width_out)
    return [weight, Tensor(f"{name}.bias", width_out)] if bias else [weight]


def _norm(name: str, shape: ModelShape) -> list[Tensor]:
    weight = Tensor(f"{name}.weight", shape.hidden)
    return [weight, Tensor(f"{name}.bias", shape.hidden)] if shape.norm_has_bias else [weight]
