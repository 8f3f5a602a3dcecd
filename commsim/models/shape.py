"""
The shape of a transformer: the few figures that everything else is derived from.

Letters used by this room, as in the literature:

L  layers            h  hidden width        a  attention heads     k  key/value heads
e  width of a head   f  MLP width           V  vocabulary          s  sequence length
E  experts           K  experts per token   b  microbatch, in sequences
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from commsim.sections import Section

__all__ = [
    "Count",
    "Experts",
    "LatentAttention",
    "ModelShape",
    "is_moe_layer",
    "layer_kinds",
    "score_width",
    "value_width",
]

Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Experts(Section, frozen=True, kw_only=True):
    """The mixture of experts of a layer.

    Each token goes through `top_k` of `experts` MLPs of width `expert_ffn`, and through shared
    experts of `shared_expert_ffn` altogether. Layer i is such a layer when
    i >= first_dense_layers and (i + 1) % every == 0; the others have the dense MLP of width `ffn`.
    Node-limited routing: experts lie in `groups`, and a token's in `top_groups` of them (0: any).
    """

    experts: Count
    top_k: Count
    expert_ffn: Count
    shared_expert_ffn: Natural = 0
    first_dense_layers: Natural = 0
    every: Count = 1
    router_bias: bool = False
    groups: Count = 1
    top_groups: Natural = 0

    def __post_init__(self) -> None:
        """Refuse to choose more experts, or groups of them, than there are."""
        if self.top_groups > self.groups:
            raise ValueError(f"top_groups {self.top_groups} is more than the {self.groups} groups")
        if self.top_k > self.experts:
            raise ValueError(f"top_k {self.top_k} is more than the {self.experts} experts")


class LatentAttention(Section, frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek-V2): queries, keys and values from small latents."""

    q_lora_rank: Count
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class ModelShape(Section, frozen=True, kw_only=True):
    """A GPT- or Llama-style decoder.

    `gated` is the MLP with three matrices (SwiGLU), else two. `learned_position_rows` is the
    height of a learned position table, 0 for rotary positions. `norm_has_bias` to
    `embedding_norm` say which layers carry a bias or a norm of their own. With `latent`,
    kv_heads and head_dim are not used.
    """

    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    vocab: Count
    max_seq: Count
    gated: bool = False
    tied_embeddings: bool = True
    learned_position_rows: Natural = 0
    norm_has_bias: bool = True
    linear_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = False
    embedding_norm: bool = False
    experts: Experts | None = None
    latent: LatentAttention | None = None

    def __post_init__(self) -> None:
        """Refuse key/value heads that do not divide the heads."""
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} kv_heads do not divide {self.heads} heads")


def is_moe_layer(shape: ModelShape, layer: int) -> bool:
    """Return whether layer number `layer` (from 0) has experts."""
    experts = shape.experts
    if experts is None:
        return False
    return layer >= experts.first_dense_layers and (layer + 1) % experts.every == 0


def layer_kinds(shape: ModelShape) -> tuple[tuple[int, int], ...]:
    """Return the first layer of each kind (dense, with experts) and how many there are of it."""
    kinds = [is_moe_layer(shape, layer) for layer in range(shape.layers)]
    return tuple((kinds.index(kind), kinds.count(kind)) for kind in (False, True) if kind in kinds)


def score_width(shape: ModelShape) -> int:
    """Return the width of all heads' queries together: what a token's scores are summed over."""
    if shape.latent is None:
        return shape.heads * shape.head_dim
    return shape.heads * (shape.latent.qk_nope_head_dim + shape.latent.qk_rope_head_dim)


def value_width(shape: ModelShape) -> int:
    """Return the width of all heads' outputs together."""
    return shape.heads * (shape.latent.v_head_dim if shape.latent else shape.head_dim)
