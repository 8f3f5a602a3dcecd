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
from commsim.models.shape import ModelShape, layer_kinds, score_width, value_width

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
    shape: ModelShape, *, batch: int, seq: int, recompute: str = "none", causal: bool = False
) -> int:
    """Return the FLOPs of one step with what `recompute` does again (for HFU)."""
    again = {
        "none": 0,
        "selective": shape.layers * attention_flops(shape, batch=batch, seq=seq, causal=causal),
        "selective_op": 2 * batch * seq * shape.layers * _dropped_entries(shape),
        "full": _layers_flops(shape, batch, seq, causal),
    }[recompute]
    return training_flops(shape, batch=batch, seq=seq, causal=causal) + again


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
