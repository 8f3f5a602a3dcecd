"""
FLOPs and bytes of one microbatch. A multiply and an add are two FLOPs.

Forward, per layer:  2 b s [h (a + 2k) e + a e h + (2 or 3 gated) h f]  +  4 b s^2 a e
Head, forward:       2 b s h V
Backward:            twice the forward (one product for the input's gradient, one for the weight's)

With e = h/a, k = a, f = 4h the first line is 24 b s h^2 + 4 b s^2 h: Narayanan et al., SC'21,
appendix. Convention: full attention, as Megatron, PaLM and MPT count; with `causal` the s^2
term is halved, which is what a kernel does that skips the masked blocks. Norms, softmax,
activations and the embedding lookup are not counted.
"""

from __future__ import annotations

from commsim.models.shape import ModelShape

__all__ = [
    "BACKWARD_PER_FORWARD",
    "boundary_bytes",
    "head_flops",
    "layer_flops",
    "training_flops",
]

BACKWARD_PER_FORWARD = 2


def layer_flops(shape: ModelShape, *, batch: int, seq: int, causal: bool = False) -> int:
    """Return the forward FLOPs of one layer for `batch` sequences of `seq` tokens."""
    attention_width = shape.heads * shape.head_dim
    projections = shape.hidden * (2 * attention_width + 2 * shape.kv_heads * shape.head_dim)
    mlp = (3 if shape.gated else 2) * shape.hidden * shape.ffn
    scores = 4 * batch * seq * seq * attention_width
    return 2 * batch * seq * (projections + mlp) + (scores // 2 if causal else scores)


def head_flops(shape: ModelShape, *, batch: int, seq: int) -> int:
    """Return the forward FLOPs of the output matrix for `batch` sequences of `seq` tokens."""
    return 2 * batch * seq * shape.hidden * shape.vocab


def training_flops(shape: ModelShape, *, batch: int, seq: int, causal: bool = False) -> int:
    """Return the FLOPs of one step's forward and backward without recompute (for MFU)."""
    layers = shape.layers * layer_flops(shape, batch=batch, seq=seq, causal=causal)
    forward = layers + head_flops(shape, batch=batch, seq=seq)
    return (1 + BACKWARD_PER_FORWARD) * forward


def boundary_bytes(shape: ModelShape, *, batch: int, seq: int, width: int) -> int:
    """Return the bytes between two layers (activation or its gradient), `width` per entry."""
    return width * batch * seq * shape.hidden
