"""
Activations that a rank keeps from the forward to the backward pass of one microbatch, in bytes.

For a GPT layer (f = 4h, dropout, 2-byte entries), S = s b tokens, Korthikanti et al. 2022, table 2:

none                  S h (34 + 5 a s/h)        tensor parallel    S h (10 + 24/t + 5 a s/(h t))
selective + tp        S h (10 + 24/t)           + sequence par.    S h (34/t + 5 a s/(h t))
full                  2 S h  (2 S h/t with sequence parallelism)
selective_op          2 S (2h + (2h + k e + f)/t)   torchtitan's list of ops

The 34 are 4 of norm inputs, 2 + 2 of inputs to the first matrices, 2 of dropout masks (those ten
are whole on each rank without sequence parallelism), 6 of q, k and v, 2 of the core's output and
16 around the activation function. 5 a s/h are softmax, its dropout mask and its output; a fused
attention keeps one fp32 number per row instead. A gated MLP keeps three tensors of width f.
Dropout is taken for two-matrix MLPs; models with a gated MLP train without.

Where inputs of products are kept as cast to fp8 (Transformer Engine), they have `cast` bytes per
entry: those of the four matrices; attention keeps its output besides, for its own backward.
"""

from __future__ import annotations

from commsim.models.parameters import local_kv_heads
from commsim.models.recompute import Recompute, modules_of
from commsim.models.shape import ModelShape, is_moe_layer, score_width, value_width
from commsim.models.split import Split, hidden_bytes

__all__ = [
    "embedding_activation_bytes",
    "head_activation_bytes",
    "head_working_bytes",
    "layer_activation_bytes",
    "layer_working_bytes",
    "logit_count",
]

_KEPT_LOGIT = 4.0
"""Bytes per logit from forward to backward: the fp32 log-softmax."""
_LOG_SUM = 4
"""Bytes per row of scores that a fused attention keeps: the fp32 log of the sum."""


def layer_activation_bytes(
    shape: ModelShape,
    split: Split,
    *,
    layer: int = 0,
    recompute: Recompute = "none",
    flash: bool = False,
    width: int = 2,
    cast: float | None = None,
) -> int:
    """Return what one layer keeps for one microbatch; see the module for the formula."""
    if recompute == "full":
        return hidden_bytes(shape, split, width=width)
    if recompute == "selective_op":
        return _kept_ops(shape, split, layer, width)
    kept = _outside_core(shape, split, layer, width)
    if cast is not None:
        kept -= _saved_by_casts(shape, split, layer, width, cast)
    core = _core(shape, split, flash=flash, width=width)
    modules = modules_of(recompute)
    kept -= _dropped(shape, split, layer, width, width if cast is None else cast, modules)
    again = (recompute == "selective" or "core_attn" in modules) and not flash
    return round(kept + (0 if again else core))


def layer_working_bytes(
    shape: ModelShape,
    split: Split,
    *,
    layer: int = 0,
    recompute: Recompute = "none",
    flash: bool = False,
    width: int = 2,
    cast: float | None = None,
) -> int:
    """Return what exists besides, for one layer at a time, while it is computed again."""
    how: tuple[Recompute, Recompute] = ("none", recompute)
    whole, kept = (
        layer_activation_bytes(
            shape, split, layer=layer, recompute=one, flash=flash, width=width, cast=cast
        )
        for one in how
    )
    return whole - kept


def embedding_activation_bytes(shape: ModelShape, split: Split) -> int:
    """Return the dropout mask after the embedding; the tokens themselves are negligible."""
    return 0 if shape.gated else round(split.tokens * shape.hidden * split.own)


def head_activation_bytes(
    shape: ModelShape, split: Split, *, width: int = 2, logit_bytes: float = 4.0
) -> int:
    """Return the inputs of the final norm and of the output matrix, and the kept fp32 logits."""
    inputs = 2 * width * split.tokens * shape.hidden * split.own
    return round(inputs + min(logit_bytes, _KEPT_LOGIT) * logit_count(shape, split))


def head_working_bytes(shape: ModelShape, split: Split, *, logit_bytes: float) -> int:
    """Return what the loss's backward holds beside: further copies of logits, their gradients."""
    return round(max(0.0, logit_bytes - _KEPT_LOGIT) * logit_count(shape, split))


def logit_count(shape: ModelShape, split: Split) -> int:
    """Return the logits on a rank: all of its tokens', or its part of the vocabulary's."""
    return split.tokens * -(-shape.vocab // (split.tp if split.loss_parallel else 1))


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


def _dropped(
    shape: ModelShape,
    split: Split,
    layer: int,
    width: int,
    cast: float,
    modules: frozenset[str],
) -> float:
    """Return the bytes that modules run again need not keep; `cast` per entry a product took in."""
    S, t, experts = split.tokens, split.tp, shape.experts
    own, dropped = S * split.own * shape.hidden, 0.0
    moe = experts is not None and is_moe_layer(shape, layer)
    if "layernorm" in modules:
        dropped += own * (cast + (width if moe else cast))
    if "mla_up_proj" in modules and shape.latent is not None:
        dropped += width * S * (2 * score_width(shape) + value_width(shape)) / t
    if not moe and "mlp" in modules:
        dropped += S / t * shape.ffn * (width * (2 if shape.gated else 1) + cast)
    if experts is None or not moe:
        return dropped
    between = experts.top_k * experts.expert_ffn * S / t
    if "moe" in modules:
        into = experts.top_k * own
        shared = experts.shared_expert_ffn * S / t
        return (
            dropped + cast * into + (width * (2 if shape.gated else 1) + cast) * (between + shared)
        )
    return dropped + (cast * between if "moe_act" in modules else 0.0)


def _saved_by_casts(shape: ModelShape, split: Split, layer: int, width: int, cast: float) -> float:
    """Return the bytes that inputs of products do not take when they are kept as cast."""
    S, t, experts = split.tokens, split.tp, shape.experts
    own = S * split.own * shape.hidden
    if experts is not None and is_moe_layer(shape, layer):
        routed = experts.top_k * (experts.expert_ffn / t + shape.hidden * split.own)
        inputs = own + S * (routed + experts.shared_expert_ffn / t)
    else:
        inputs = 2 * own + S * shape.ffn / t
    return (width - cast) * inputs - cast * S * value_width(shape) / t


def _kept_ops(shape: ModelShape, split: Split, layer: int, width: int) -> int:
    """Return what torchtitan's op-level checkpointing keeps: a layer's input, and the outputs of
    every other product (q, v, up, down), of attention, and of what was reduced."""
    S, t = split.tokens, split.tp
    whole: float = 2 * shape.hidden * split.own  # the input, and the output of the MLP
    kv = local_kv_heads(shape, t) * t * shape.head_dim
    divided: float = score_width(shape) + kv + value_width(shape)
    experts = shape.experts
    if experts is not None and is_moe_layer(shape, layer):
        divided += experts.top_k * (experts.expert_ffn + 2 * shape.hidden * t * split.own)
        divided += experts.shared_expert_ffn
    else:
        divided += shape.ffn
    return round(width * S * (whole + divided / t) + _core(shape, split, flash=True, width=width))


def _mlp_width(shape: ModelShape, split: Split, layer: int) -> float:
    """Return the entries per token kept around the activation function, and of routed tokens.

    Of those the input of their expert: its output is weighted before the last matrix
    (weighted_bias_swiglu of Megatron-Core; torchtitan weighs the input), so nothing keeps it.
    """
    tensors = 3 if shape.gated else 2
    experts = shape.experts
    if experts is None or not is_moe_layer(shape, layer):
        return tensors * shape.ffn
    routed = tensors * experts.expert_ffn + shape.hidden * (split.tp * split.own)
    return experts.top_k * routed + tensors * experts.shared_expert_ffn


def _core(shape: ModelShape, split: Split, *, flash: bool, width: int) -> float:
    rows = split.tokens * shape.heads / split.tp
    if flash:
        return _LOG_SUM * rows
    masks = 0 if shape.gated else 1
    tensors = 1 if shape.gated else 2  # without dropout its output is the softmax itself
    return rows * split.seq * (tensors * width + masks)
