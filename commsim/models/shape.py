"""
The shape of a dense transformer: the few figures that everything else is derived from.

Letters used by this room, as in the literature:

L  layers            h  hidden width        a  attention heads     k  key/value heads
e  width of a head   f  MLP width           V  vocabulary          s  sequence length
b  microbatch, in sequences
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from commsim.sections import Section

__all__ = ["Count", "ModelShape"]

Count = Annotated[int, msgspec.Meta(ge=1)]


class ModelShape(Section, frozen=True, kw_only=True):
    """A GPT- or Llama-style decoder.

    `gated` is the MLP with three matrices (SwiGLU), else two. `learned_position_rows` is the
    height of a learned position table, 0 for rotary positions. The last five say which
    layers carry a bias or a norm of their own.
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
    learned_position_rows: Annotated[int, msgspec.Meta(ge=0)] = 0
    norm_has_bias: bool = True
    linear_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = False
    embedding_norm: bool = False

    def __post_init__(self) -> None:
        """Refuse key/value heads that do not divide the heads."""
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} kv_heads do not divide {self.heads} heads")
