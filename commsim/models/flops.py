"""
FLOPs and bytes of one microbatch. A multiply and an add are two FLOPs.

Forward, per layer:  2 b s (entries of the matrices that a token meets)  +  2 b s^2 a (e_qk + e_v)
Head, forward:       2 b s h V
Backward:            twice the forward (one product for the input's gradient, one for the weight's)

With e = h/a, k = a, f = 4h the first line is 24 b s h^2 + 4 b s^2 h: Narayanan et al., SC'21,
appendix. Convention: full attention, as Megatron, PaLM and MPT count; with `causal` the s^2
term is halved, which is what a kernel does that skips the masked blocks. Norms, softmax,
activations and the embedding lookup are not counted; a router is a matrix like any other.

MFU counts model FLOPs: forward and backward once. HFU counts what recomputing adds:
selective the attention products again, selective_op every other product of a layer (torchtitan),
full the whole layer's forward again.
"""

from __future__ import annotations

from commsim.models.parameters import layer_tensors
from commsim.models.recompute import Recompute, modules_of
from commsim.models.shape import ModelShape, is_moe_layer, layer_kinds, score_width, value_width

__all__ = [
    "BACKWARD_PER_FORWARD",
    "FLOP_CONVENTIONS",
    "attention_flops",
    "boundary_bytes",
    "hardware_flops",
    "head_flops",
    "layer_flops",
    "training_flops",
]

BACKWARD_PER_FORWARD = 2
FLOP_CONVENTIONS = {False: "full attention (not causal)", True: "causal attention"}


def layer_flops(
    shape: ModelShape, *, batch: int, seq: int, layer: int = 0, causal: bool = False
) -> int:
    """Return the forward FLOPs of one layer for `batch` sequences of `seq` tokens."""
    matrices = 2 * batch * seq * _matrix_entries(shape, layer)
    return matrices + attention_flops(shape, batch=batch, seq=seq, causal=causal)


def attention_flops(shape: ModelShape, *, batch: int, seq: int, causal: bool = False) -> int:
    """Return the forward FLOPs of the products with the scores: q k^T and scores times v."""
    scores = 2 * batch * seq * seq * (score_width(shape) + value_width(shape))
    return scores // 2 if causal else scores


def head_flops(shape: ModelShape, *, batch: int, seq: int) -> int:
    """Return the forward FLOPs of the output matrix for `batch` sequences of `seq` tokens."""
    return 2 * batch * seq * shape.hidden * shape.vocab


def training_flops(shape: ModelShape, *, batch: int, seq: int, causal: bool = False) -> int:
    """Return the FLOPs of one step's forward and backward without recompute (for MFU)."""
    forward = _layers_flops(shape, batch, seq, causal) + head_flops(shape, batch=batch, seq=seq)
    return (1 + BACKWARD_PER_FORWARD) * forward


def hardware_flops(
    shape: ModelShape, *, batch: int, seq: int, recompute: Recompute = "none", causal: bool = False
) -> int:
    """Return the FLOPs of one step with what `recompute` does again (for HFU)."""
    if not isinstance(recompute, str):
        again = _again(shape, batch, seq, causal, modules_of(recompute))
        return training_flops(shape, batch=batch, seq=seq, causal=causal) + again
    again = {
        "none": 0,
        "selective": shape.layers * attention_flops(shape, batch=batch, seq=seq, causal=causal),
        "selective_op": 2 * batch * seq * shape.layers * _dropped_entries(shape),
        "full": _layers_flops(shape, batch, seq, causal),
    }[recompute]
    return training_flops(shape, batch=batch, seq=seq, causal=causal) + again


def _again(shape: ModelShape, batch: int, seq: int, causal: bool, modules: frozenset[str]) -> int:
    """Return the FLOPs of what modules run again: core, products out of latents, whole MLPs."""
    found, tokens = 0, 2 * batch * seq
    for layer, count in layer_kinds(shape):
        moe = is_moe_layer(shape, layer)
        entries = _matrix_entries(shape, layer) - _attention_entries(shape, layer)
        if ("moe" if moe else "mlp") in modules:
            found += count * tokens * entries
        if "mla_up_proj" in modules and shape.latent is not None:
            up = shape.latent.q_lora_rank * score_width(shape)
            nope = shape.heads * shape.latent.qk_nope_head_dim
            up += shape.latent.kv_lora_rank * (nope + value_width(shape))
            found += count * tokens * up
        if "core_attn" in modules:
            found += count * attention_flops(shape, batch=batch, seq=seq, causal=causal)
    return found


def _attention_entries(shape: ModelShape, layer: int) -> int:
    """Return the entries of the matrices of attention."""
    return sum(
        tensor.entries
        for tensor in layer_tensors(shape, layer=layer)
        if tensor.name.endswith(".weight")
        and "attention" in tensor.name
        and "norm" not in tensor.name
    )


def boundary_bytes(shape: ModelShape, *, batch: int, seq: int, width: int) -> int:
    """Return the bytes between two layers (activation or its gradient), `width` per entry."""
    return width * batch * seq * shape.hidden


def _layers_flops(shape: ModelShape, batch: int, seq: int, causal: bool) -> int:
    return sum(
        count * layer_flops(shape, batch=batch, seq=seq, layer=layer, causal=causal)
        for layer, count in layer_kinds(shape)
    )


def _dropped_entries(shape: ModelShape) -> int:
    """Return the entries of the matrices whose products op-level checkpointing does not keep."""
    key = shape.hidden * shape.kv_heads * shape.head_dim
    up = shape.hidden * shape.ffn if shape.gated else 0
    return key + shape.hidden * value_width(shape) + up


def _matrix_entries(shape: ModelShape, layer: int) -> int:
    """Return the entries of the matrices that one token meets in a layer."""
    matrices = [
        tensor
        for tensor in layer_tensors(shape, layer=layer)
        if tensor.name.endswith(".weight") and "norm" not in tensor.name
    ]
    dense = sum(tensor.entries for tensor in matrices if not tensor.expert)
    if shape.experts is None:
        return dense
    routed = sum(tensor.entries for tensor in matrices if tensor.expert)
    return dense + routed * shape.experts.top_k // shape.experts.experts
