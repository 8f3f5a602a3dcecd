"""
Activations that a rank keeps from the forward to the backward pass of one microbatch, in bytes.

For a GPT layer (f = 4h, dropout, 2-byte entries), S = s b tokens, Korthikanti et al. 2022, table 2:

none                  S h (34 + 5 a s/h)        tensor parallel    S h (10 + 24/t + 5 a s/(h t))
selective + tp        S h (10 + 24/t)           + sequence par.    S h (34/t + 5 a s/(h t))
full                  2 S h  (2 S h/t with sequence parallelism)

The 34 are 4 of norm inputs, 2 + 2 of inputs to the first matrices, 2 of dropout masks (those ten
are whole on each rank without sequence parallelism), 6 of q, k and v, 2 of the core's output and
16 around the activation function. 5 a s/h are softmax, its dropout mask and its output; a fused
attention keeps one fp32 number per row instead. A gated MLP keeps three tensors of width f.
Dropout is taken for two-matrix MLPs; models with a gated MLP train without.
"""

from __future__ import annotations

from commsim.models.parameters import local_kv_heads
from commsim.models.shape import ModelShape, is_moe_layer, score_width, value_width
from commsim.models.split import Split, hidden_bytes

__all__ = [
    "RECOMPUTE",
    "embedding_activation_bytes",
    "head_activation_bytes",
    "layer_activation_bytes",
    "layer_working_bytes",
]

RECOMPUTE = ("none", "selective", "full")
_LOG_SUM = 4
"""Bytes per row of scores that a fused attention keeps: the fp32 log of the sum."""


def layer_activation_bytes(
    shape: ModelShape,
    split: Split,
    *,
    layer: int = 0,
    recompute: str = "none",
    flash: bool = False,
    width: int = 2,
) -> int:
    """Return what one layer keeps for one microbatch; see the module for the formula."""
    if recompute == "full":
        return hidden_bytes(shape, split, width=width)
    kept = _outside_core(shape, split, layer, width)
    core = _core(shape, split, flash=flash, width=width)
    again = recompute == "selective" and not flash
    return round(kept + (0 if again else core))


def layer_working_bytes(
    shape: ModelShape,
    split: Split,
    *,
    layer: int = 0,
    recompute: str = "none",
    flash: bool = False,
    width: int = 2,
) -> int:
    """Return what exists besides, for one layer at a time, while it is computed again."""
    whole = layer_activation_bytes(shape, split, layer=layer, flash=flash, width=width)
    kept = layer_activation_bytes(
        shape, split, layer=layer, recompute=recompute, flash=flash, width=width
    )
    return whole - kept


def embedding_activation_bytes(shape: ModelShape, split: Split) -> int:
    """Return the dropout mask behind the embedding; the tokens themselves are negligible."""
    return 0 if shape.gated else round(split.tokens * shape.hidden * split.own)


def head_activation_bytes(shape: ModelShape, split: Split, *, width: int = 2) -> int:
    """Return the inputs of the final norm and of the output matrix, and the fp32 logits."""
    inputs = 2 * width * split.tokens * shape.hidden * split.own
    logits = 4 * split.tokens * -(-shape.vocab // split.tp)
    return round(inputs) + logits


def _outside_core(shape: ModelShape, split: Split, layer: int, width: int) -> float:
    """Return everything but the softmax: norms, matrices' inputs, masks, activation function."""
    S, t = split.tokens, split.tp
    masks = 0 if shape.gated else 2 * shape.hidden
    whole = (4 * width * shape.hidden + masks) * S * split.own
    if shape.latent is not None:
        kv = score_width(shape) + value_width(shape)
        latents = shape.latent.q_lora_rank + shape.latent.kv_lora_rank
        whole += 2 * width * S * latents * split.own
    else:
        kv = 2 * local_kv_heads(shape, t) * t * shape.head_dim
    attention = score_width(shape) + kv + value_width(shape)
    return whole + width * S * (attention + _mlp_width(shape, split, layer)) / t


def _mlp_width(shape: ModelShape, split: Split, layer: int) -> float:
    """Return the entries per token kept around the activation function, and of routed tokens."""
    tensors = 3 if shape.gated else 2
    experts = shape.experts
    if experts is None or not is_moe_layer(shape, layer):
        return tensors * shape.ffn
    routed = tensors * experts.expert_ffn + 2 * shape.hidden * (split.tp * split.own)
    return experts.top_k * routed + tensors * experts.shared_expert_ffn


def _core(shape: ModelShape, split: Split, *, flash: bool, width: int) -> float:
    rows = split.tokens * shape.heads / split.tp
    if flash:
        return _LOG_SUM * rows
    masks = 0 if shape.gated else 1
    tensors = 1 if shape.gated else 2  # without dropout its output is the softmax itself
    return rows * split.seq * (tensors * width + masks)
