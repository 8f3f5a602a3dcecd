"""
Parameters of a model, tensor by tensor in the order in which a module registers them.

Embeddings first, then the layers, then the final norm and the head. The order matters to
DistributedDataParallel, which fills its buckets backwards along it. Query, key and value are
one matrix, as in GPT-2 and Megatron; gate and up are two.

A GPT shape has 12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h)) + 2 h parameters: Narayanan et al.,
SC'21, equation 2, and the final norm.

With tensor parallelism of degree tp a rank holds 1/tp of the matrices: columns of those that
come first (qkv, gate, up, and their biases), rows of those that come second (out, down, whose
biases are whole on every rank); norms, the router and the latent down-projections are whole.
Key/value heads that tp does not divide are copied. Experts are divided by ep, then by etp (tp, or 1
where they are whole). The vocabulary is divided by tp, rounded up.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.models.shape import Experts, LatentAttention, ModelShape, is_moe_layer, layer_kinds

__all__ = [
    "Tensor",
    "active_parameter_count",
    "embedding_tensors",
    "head_tensors",
    "layer_tensors",
    "local_kv_heads",
    "parameter_count",
    "tensor_total",
]


class Tensor(NamedTuple):
    """One parameter tensor on a rank; `expert` if it is reduced over the experts' own group."""

    name: str
    entries: int
    expert: bool = False


def embedding_tensors(shape: ModelShape, *, tp: int = 1) -> tuple[Tensor, ...]:
    """Return the token table, learned positions and the norm after them, if there are any."""
    tensors = [Tensor("embedding.weight", -(-shape.vocab // tp) * shape.hidden)]
    if shape.learned_position_rows:
        tensors.append(Tensor("position.weight", shape.learned_position_rows * shape.hidden))
    if shape.embedding_norm:
        tensors += _norm("embedding_norm", shape)
    return tuple(tensors)


def layer_tensors(
    shape: ModelShape, *, layer: int = 0, tp: int = 1, ep: int = 1, etp: int | None = None
) -> tuple[Tensor, ...]:
    """Return the parameters of one layer on a rank: attention, then MLP, each after its norm.

    `etp` divides experts; without it, `tp` does.
    """
    attention = _latent(shape, shape.latent, tp) if shape.latent else _attention(shape, tp)
    experts = shape.experts
    moe = experts is not None and is_moe_layer(shape, layer)
    if moe and experts:
        mlp = _experts(shape, experts, tp, ep, tp if etp is None else etp)
    else:
        mlp = _mlp(shape, "mlp", shape.ffn, tp)
    return tuple(_norm("attention_norm", shape) + attention + _norm("mlp_norm", shape) + mlp)


def head_tensors(shape: ModelShape, *, tp: int = 1) -> tuple[Tensor, ...]:
    """Return the final norm, and the output matrix if it is not the token table itself."""
    tensors = _norm("final_norm", shape)
    if not shape.tied_embeddings:
        tensors.append(Tensor("head.weight", -(-shape.vocab // tp) * shape.hidden))
    return tuple(tensors)


def parameter_count(shape: ModelShape) -> int:
    """Return the trainable parameters of the whole model."""
    ends = tensor_total(embedding_tensors(shape)) + tensor_total(head_tensors(shape))
    kinds = layer_kinds(shape)
    return ends + sum(count * tensor_total(layer_tensors(shape, layer=n)) for n, count in kinds)


def active_parameter_count(shape: ModelShape) -> int:
    """Return the parameters that one token meets: top_k experts instead of all of them."""
    experts = shape.experts
    if experts is None:
        return parameter_count(shape)
    unused = experts.experts - experts.top_k
    one = tensor_total(tuple(_mlp(shape, "", experts.expert_ffn, 1)))
    with_experts = sum(count for layer, count in layer_kinds(shape) if is_moe_layer(shape, layer))
    return parameter_count(shape) - with_experts * unused * one


def tensor_total(tensors: tuple[Tensor, ...]) -> int:
    """Return the entries of all `tensors` together."""
    return sum(tensor.entries for tensor in tensors)


def local_kv_heads(shape: ModelShape, tp: int) -> int:
    """Return the key/value heads on a rank: at least one, copied if tp exceeds them."""
    return max(1, shape.kv_heads // tp)


def _attention(shape: ModelShape, tp: int) -> list[Tensor]:
    h, e = shape.hidden, shape.head_dim
    width = (shape.heads // tp + 2 * local_kv_heads(shape, tp)) * e
    tensors = _linear("attention.qkv", h, width, bias=shape.qkv_bias)
    if shape.qk_norm:
        tensors += [Tensor("attention.q_norm.weight", e), Tensor("attention.k_norm.weight", e)]
    rows = shape.heads * e // tp
    return tensors + _linear("attention.out", rows, h, bias=shape.linear_bias)


def _latent(shape: ModelShape, latent: LatentAttention, tp: int) -> list[Tensor]:
    h, heads = shape.hidden, shape.heads // tp
    nope, rope, v = latent.qk_nope_head_dim, latent.qk_rope_head_dim, latent.v_head_dim
    q, kv = latent.q_lora_rank, latent.kv_lora_rank
    return [
        Tensor("attention.q_down.weight", h * q),
        Tensor("attention.q_norm.weight", q),
        Tensor("attention.q_up.weight", q * heads * (nope + rope)),
        Tensor("attention.kv_down.weight", h * (kv + rope)),
        Tensor("attention.kv_norm.weight", kv),
        Tensor("attention.kv_up.weight", kv * heads * (nope + v)),
        Tensor("attention.out.weight", heads * v * h),
    ]


def _mlp(shape: ModelShape, name: str, ffn: int, tp: int) -> list[Tensor]:
    h, f, bias = shape.hidden, ffn // tp, shape.linear_bias
    gate = _linear(f"{name}.gate", h, f, bias=bias) if shape.gated else []
    return gate + _linear(f"{name}.up", h, f, bias=bias) + _linear(f"{name}.down", f, h, bias=bias)


def _experts(shape: ModelShape, experts: Experts, tp: int, ep: int, etp: int) -> list[Tensor]:
    tensors = [Tensor("router.weight", shape.hidden * experts.experts)]
    if experts.router_bias:
        tensors.append(Tensor("router.bias", experts.experts))
    if experts.shared_expert_ffn:
        tensors += _mlp(shape, "shared_expert", experts.shared_expert_ffn, tp)
    for number in range(experts.experts // ep):
        own = _mlp(shape, f"expert {number}", experts.expert_ffn, etp)
        tensors += [tensor._replace(expert=True) for tensor in own]
    return tensors


def _linear(name: str, width_in: int, width_out: int, *, bias: bool) -> list[Tensor]:
    weight = Tensor(f"{name}.weight", width_in * width_out)
    return [weight, Tensor(f"{name}.bias", width_out)] if bias else [weight]


def _norm(name: str, shape: ModelShape) -> list[Tensor]:
    weight = Tensor(f"{name}.weight", shape.hidden)
    return [weight, Tensor(f"{name}.bias", shape.hidden)] if shape.norm_has_bias else [weight]
