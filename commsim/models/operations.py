"""
The operations of a layer on one rank: matrix products, attention, and bytes moved by the rest.

Bytes count every tensor that a fused kernel reads or writes once; U = 2 S h is the hidden state.
Per norm 2 U forward (read, write), 3 U backward; bias, dropout and residual together 3.5 U (two
read, one written, a mask of a byte) and 4.5 U; the activation function reads and writes its
widths. Norms and residuals are divided only under sequence parallelism (`Split.own`).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from commsim.models.matmul import Matmul
from commsim.models.parameters import local_kv_heads
from commsim.models.shape import (
    Experts,
    LatentAttention,
    ModelShape,
    is_moe_layer,
    score_width,
    value_width,
)
from commsim.models.split import Split

__all__ = ["LOSS_FORWARD", "BlockOps", "Core", "embedding_ops", "head_ops", "layer_ops"]

_WIDTH = 2
"""Bytes per entry of activations; fp8 training keeps them in bf16 as well."""
NORM_FORWARD, NORM_BACKWARD = 2.0, 3.0
RESIDUAL_FORWARD, RESIDUAL_BACKWARD = 3.5, 6.5
_ROUTER_SHARE, _SHARED_SHARE = 0.45, 0.2
"""Of a layer's kernels: those of the router with shared experts, and of these alone."""
_EXPERTS_SHARE = {"alltoall": 2.2, "deepep": 1.3, "deepep-fp8": 1.3}
"""Of a layer's kernels: those that bring tokens to experts and back, and the activation function.

HybridEP: a profile has 151 kernels per layer and microbatch of Qwen3-30B-A3B, both ways and beside
the graphs of its router (463,348 in 48 layers and 64 microbatches; github
NVIDIA-NeMo/Megatron-Bridge, skill on expert-parallel overlap): 48 are the products of 8 experts, 31
attention's. A plain all-to-all has about 50 more: counts, their gather and copies to the host,
permuting, sorting (token_dispatcher.py and moe_utils.py of Megatron-Core)."""
LOSS_FORWARD = 0.6
"""Share of the loss's bytes (`Stack.loss_bytes` per logit) that its forward moves."""


class Core(msgspec.Struct, frozen=True):
    """Scores, softmax and their product with the values.

    `heads` counts the heads on the rank times sequences; `width` and `value` are per head; `block`
    is how many keys a kernel meets in the mean.
    """

    heads: int
    queries: int
    keys: int
    width: int
    value: int
    dropout: bool
    block: float

    @property
    def flops(self) -> float:
        """FLOPs of both products over all positions, forward."""
        return 2.0 * self.heads * self.queries * self.keys * (self.width + self.value)

    @property
    def score_bytes(self) -> float:
        """The scores of all heads, once, in 2-byte entries."""
        return float(_WIDTH * self.heads * self.queries * self.keys)

    @property
    def vector_bytes(self) -> float:
        """Queries, keys, values and the output, once each."""
        rows = self.queries * self.width + self.keys * (self.width + self.value)
        return float(_WIDTH * self.heads * (rows + self.queries * self.value))


class BlockOps(msgspec.Struct, frozen=True):
    """A part of a layer between two communications.

    `forward_bytes` and `backward_bytes` are those of memory-bound operations; `last_bytes` is
    the part of `forward_bytes` after the last product. `share` is the part of the layer's
    kernels that the block launches; `logits` counts those that go through the loss. `dropped` are
    the products that op-level checkpointing computes again: torchtitan keeps every other one of
    q, k, v, out, gate, up, down (github pytorch/torchtitan, activation_checkpoint.py).
    `experts` counts the experts on the rank, each with kernels of its own; a block that `waits`
    cannot be issued before the host knows how many tokens came; one that is `captured` lies in a
    CUDA graph; `wide` blocks are not quantised; `fused` ones quantise in the products' epilogues
    all but what comes from outside. `norm_bytes` and `act_bytes` are the parts of `forward_bytes`
    of the norm in front and of the activation function.
    """

    name: str
    matmuls: tuple[Matmul, ...]
    forward_bytes: float
    backward_bytes: float
    share: float
    last_bytes: float = 0.0
    core: Core | None = None
    logits: float = 0.0
    weight_bytes: float = 0.0
    collectives: int = 1
    dropped: tuple[Matmul, ...] = ()
    experts: int = 0
    waits: bool = False
    captured: bool = False
    wide: bool = False
    fused: bool = False
    norm_bytes: float = 0.0
    act_bytes: float = 0.0


def layer_ops(
    shape: ModelShape, split: Split, *, layer: int = 0, fused_experts: bool = False
) -> tuple[BlockOps, ...]:
    """Return the blocks of a layer: attention and mlp, or attention, router, what of shared experts
    runs apart, and experts.

    `fused_experts`: their activation function is computed in the products' epilogues.
    """
    attention = _attention_ops(shape, split)
    experts = shape.experts
    if experts is None or not is_moe_layer(shape, layer):
        return attention, _mlp_ops(shape, split)
    routed = _routed_ops(shape, experts, split)
    routed = _fused(shape, routed) if fused_experts else routed
    if not experts.shared_expert_ffn or not split.shared_apart:
        return attention, _router_ops(shape, experts, split, experts.shared_expert_ffn), routed
    router = replace(_router_ops(shape, experts, split, 0), share=_ROUTER_SHARE - _SHARED_SHARE)
    return attention, router, _shared_ops(shape, experts, split), routed


def embedding_ops(shape: ModelShape, split: Split) -> BlockOps:
    """Return the lookup (5 U), and the scattered sum of its gradient (7 U)."""
    U = _hidden(shape, split)
    return BlockOps("embedding", (), 5 * U, 0.0, 0.1, weight_bytes=7 * U)


def head_ops(shape: ModelShape, split: Split) -> BlockOps:
    """Return the final norm, the output matrix and the cross-entropy."""
    S, columns, U = split.tokens, -(-shape.vocab // split.tp), _hidden(shape, split)
    return BlockOps(
        "head",
        (Matmul(S, columns, shape.hidden),),
        NORM_FORWARD * U * split.own,
        NORM_BACKWARD * U * split.own,
        0.5,
        logits=float(S * (columns if split.loss_parallel else shape.vocab)),
        wide=True,  # recipes leave the output matrix in 16 bits
    )


def _hidden(shape: ModelShape, split: Split) -> float:
    return float(_WIDTH * split.tokens * shape.hidden)


def _attention_ops(shape: ModelShape, split: Split) -> BlockOps:
    S, t, U = split.tokens, split.tp, _hidden(shape, split)
    products = _latent(shape, shape.latent, split) if shape.latent else _grouped(shape, split)
    vectors = _WIDTH * S * (score_width(shape) + value_width(shape)) / t  # split, rotate, transpose
    residual = RESIDUAL_FORWARD * U * split.own
    heads, out = shape.heads // t, Matmul(S, shape.hidden, value_width(shape) // t)
    return BlockOps(
        "attention",
        (*products, out),
        NORM_FORWARD * U * split.own + residual + vectors,
        (NORM_BACKWARD + RESIDUAL_BACKWARD) * U * split.own + 2.0 * vectors,
        0.55,
        last_bytes=residual,
        norm_bytes=NORM_FORWARD * U * split.own,
        dropped=(Matmul(S, local_kv_heads(shape, t) * shape.head_dim, shape.hidden), out),
        core=Core(
            heads=split.micro * heads,
            queries=split.seq // split.cp,
            keys=split.seq,
            width=score_width(shape) // shape.heads,
            value=value_width(shape) // shape.heads,
            dropout=not shape.gated,
            block=split.seq if split.ulysses else split.seq / (2 * split.cp - 1),
        ),
    )


def _grouped(shape: ModelShape, split: Split) -> tuple[Matmul, ...]:
    heads = shape.heads // split.tp + 2 * local_kv_heads(shape, split.tp)
    return (Matmul(split.tokens, heads * shape.head_dim, shape.hidden),)


def _latent(shape: ModelShape, latent: LatentAttention, split: Split) -> tuple[Matmul, ...]:
    S, heads = split.tokens, shape.heads // split.tp
    q, kv = latent.q_lora_rank, latent.kv_lora_rank
    nope, rope = latent.qk_nope_head_dim, latent.qk_rope_head_dim
    return (
        Matmul(S, q + kv + rope, shape.hidden),
        Matmul(S, heads * (nope + rope), q),
        Matmul(S, heads * (nope + latent.v_head_dim), kv),
    )


def _mlp_products(shape: ModelShape, tokens: int, ffn: int) -> tuple[Matmul, ...]:
    first = 2 * ffn if shape.gated else ffn
    return Matmul(tokens, first, shape.hidden), Matmul(tokens, shape.hidden, ffn)


def _activation_bytes(shape: ModelShape, tokens: int, ffn: int) -> tuple[float, float]:
    """Return the bytes of the activation function: forward, backward."""
    if shape.gated:
        return _WIDTH * tokens * ffn * 3.0, _WIDTH * tokens * ffn * 5.0
    return _WIDTH * tokens * ffn * 2.0, _WIDTH * tokens * ffn * 3.0


def _mlp_ops(shape: ModelShape, split: Split) -> BlockOps:
    U, ffn = _hidden(shape, split) * split.own, shape.ffn // split.tp
    forward, backward = _activation_bytes(shape, split.tokens, ffn)
    residual = RESIDUAL_FORWARD * U
    return BlockOps(
        "mlp",
        _mlp_products(shape, split.tokens, ffn),
        NORM_FORWARD * U + forward + residual,
        (NORM_BACKWARD + RESIDUAL_BACKWARD) * U + backward,
        0.45,
        last_bytes=residual,
        norm_bytes=NORM_FORWARD * U,
        dropped=(Matmul(split.tokens, ffn, shape.hidden),) if shape.gated else (),
    )


def _router_ops(shape: ModelShape, experts: Experts, split: Split, width: int) -> BlockOps:
    """Return the router with shared experts of `width` altogether."""
    U, S, t = _hidden(shape, split) * split.own, split.tokens, split.tp
    shared = width // t
    products: tuple[Matmul, ...] = (
        Matmul(max(1, round(S * split.own)), experts.experts, shape.hidden),
    )
    if shared:
        products += _mlp_products(shape, S, shared)
    forward, backward = _activation_bytes(shape, S, shared)
    return BlockOps(
        "router",
        products,
        NORM_FORWARD * U + forward,
        NORM_BACKWARD * U + backward,
        _ROUTER_SHARE,
        collectives=0,
        wide=not shared,
        norm_bytes=NORM_FORWARD * U,
    )


def _shared_ops(shape: ModelShape, experts: Experts, split: Split) -> BlockOps:
    """Return the shared experts alone."""
    ffn = experts.shared_expert_ffn // split.tp
    forward, backward = _activation_bytes(shape, split.tokens, ffn)
    products = _mlp_products(shape, split.tokens, ffn)
    return BlockOps("shared", products, forward, backward, _SHARED_SHARE, collectives=0)


def _fused(shape: ModelShape, routed: BlockOps) -> BlockOps:
    """Return experts whose activation function reads and writes in the products' epilogues."""
    down = routed.matmuls[-1]
    forward, backward = _activation_bytes(shape, down.m * down.batch, down.k)
    return replace(
        routed,
        forward_bytes=routed.forward_bytes - forward,
        backward_bytes=routed.backward_bytes - backward,
        fused=True,
        act_bytes=0.0,
    )


def _routed_ops(shape: ModelShape, experts: Experts, split: Split) -> BlockOps:
    """Return the routed experts.

    Tokens are balanced: over the expert-parallel group each rank's experts get as many tokens
    as the rank sends, top_k of its own. Behind a plain all-to-all they are sorted by expert, and
    back in front of the other (sort_chunks_by_idxs of Megatron-Core's token_dispatcher.py).
    """
    U, t = _hidden(shape, split) * split.own, split.expert_tp
    local = max(1, experts.experts // split.ep)
    tokens = split.tokens * t // split.tp
    copies = round(tokens * experts.top_k * (split.capacity or 1.0))
    each = max(1, -(-copies // local))
    ffn = max(1, experts.expert_ffn // t)
    forward, backward = _activation_bytes(shape, copies, ffn)
    moved = 2.0 * experts.top_k * U  # gathered by expert, scattered back: read and written
    passes = 3 if split.dispatcher == "alltoall" and 1 < split.ep < experts.experts else 2
    up, down = _mlp_products(shape, each, ffn)
    return BlockOps(
        "experts",
        (up._replace(batch=local), down._replace(batch=local)),
        passes * moved + forward + RESIDUAL_FORWARD * U,
        passes * moved + backward + RESIDUAL_BACKWARD * U,
        _EXPERTS_SHARE[split.dispatcher],
        collectives=0 if split.whole_experts else 1,
        last_bytes=moved + RESIDUAL_FORWARD * U,
        dropped=(Matmul(each, ffn, shape.hidden, local),) if shape.gated else (),
        experts=local,
        waits=not split.capacity,
        act_bytes=forward,
    )
