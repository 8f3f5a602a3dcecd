"""
What `measure_kernels.py` times: matrix products, attention, what moves bytes, and whole layers.

Shapes of published models (hidden width, heads, heads of keys, width of the MLP, gated), each
split by tensor parallelism, at several sizes of a microbatch. No torch here: the validation reads
the same table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

__all__ = ["MODELS", "Case", "Shape", "attention_cases", "bytes_cases", "layer_cases", "products"]


class Shape(NamedTuple):
    """A transformer layer: heads are 128 wide but those of GPT-2."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool


MODELS = {
    "gpt2-124m": Shape(768, 12, 12, 64, 3072, gated=False),
    "gpt2-1.5b": Shape(1600, 25, 25, 64, 6400, gated=False),
    "llama3-8b": Shape(4096, 32, 8, 128, 14336, gated=True),
    "llama2-13b": Shape(5120, 40, 40, 128, 13824, gated=True),
    "llama3-70b": Shape(8192, 64, 8, 128, 28672, gated=True),
    "gpt3-175b": Shape(12288, 96, 96, 128, 49152, gated=False),
    "llama3.1-405b": Shape(16384, 128, 8, 128, 53248, gated=True),
}


class Case(NamedTuple):
    """One thing that is timed. `m, n, k` are a product's; attention has queries, keys, width."""

    kind: str
    model: str
    name: str
    m: int
    n: int
    k: int = 0
    batch: int = 1
    variant: str = ""
    phase: str = "forward"
    tp: int = 1
    micro: int = 1


def products() -> Iterator[Case]:
    """The four products of a layer, forward and both gradients, in bf16 and fp8."""
    for model, shape in MODELS.items():
        for tp in (1, 2, 4, 8):
            if shape.heads % tp or shape.hidden < 4096 and tp > 1:
                continue
            for tokens in (2048, 4096, 8192, 16384):
                if tokens * shape.ffn // tp > 4e8:
                    continue
                for name, n, k in _layer_products(shape, tp):
                    for phase, a, b, c in (
                        ("forward", tokens, n, k),
                        ("input", tokens, k, n),
                        ("weight", k, n, tokens),
                    ):
                        for variant in ("bf16", "fp8"):
                            yield Case("product", model, name, a, b, c, 1, variant, phase, tp)


def _layer_products(shape: Shape, tp: int) -> list[tuple[str, int, int]]:
    qkv = (shape.heads // tp + 2 * max(1, shape.kv_heads // tp)) * shape.head_dim
    ffn = shape.ffn // tp
    return [
        ("qkv", qkv, shape.hidden),
        ("out", shape.hidden, shape.heads // tp * shape.head_dim),
        ("up", (1 + shape.gated) * ffn, shape.hidden),
        ("down", shape.hidden, ffn),
    ]


def attention_cases() -> Iterator[Case]:
    """Causal attention by torch's fused kernels: m queries, n keys, k wide, batch x heads."""
    for width, length, heads, variant, phase in product(
        (64, 128),
        (512, 1024, 2048, 3072, 4096, 8192, 16384, 32768),
        (4, 8, 16, 32),
        ("fa2", "cudnn"),
        ("forward", "backward"),
    ):
        batch = heads * max(1, 8192 // length)
        yield Case("attention", "", "core", length, length, width, batch, variant, phase)


def bytes_cases() -> Iterator[Case]:
    """What moves bytes, by torch's own kernels: [m, n] tensors, or n entries."""
    for tokens, hidden in ((4096, 4096), (8192, 8192), (4096, 12288)):
        for name in ("rms_norm", "layer_norm", "silu_gate", "gelu", "add", "dropout_add"):
            for phase in ("forward", "backward"):
                yield Case("bytes", "", name, tokens, hidden, phase=phase)
    for tokens, vocab in ((4096, 32000), (4096, 128256)):
        for phase in ("forward", "backward"):
            yield Case("bytes", "", "cross_entropy", tokens, vocab, phase=phase)
    for tokens, hidden in ((8192, 4096), (8192, 16384)):
        yield Case("bytes", "", "cast_fp8", tokens, hidden)
        yield Case("bytes", "", "copy", tokens, hidden)
    for entries in (10**8, 10**9):
        for variant in ("fused", "foreach"):
            yield Case("bytes", "", "adamw", 1, entries, 0, 1, variant)


def layer_cases() -> Iterator[Case]:
    """Whole layers on one rank, without communication: m tokens of a sequence of n."""
    for model, tp, length, micros in (
        ("gpt2-124m", 1, 1024, (1, 8, 32)),
        ("gpt2-1.5b", 1, 1024, (1, 4, 16)),
        ("llama3-8b", 1, 2048, (1, 4)),
        ("llama3-8b", 1, 4096, (1, 2)),
        ("llama3-8b", 1, 8192, (1, 2)),
        ("llama3-8b", 2, 4096, (1, 2)),
        ("llama3-8b", 4, 4096, (1, 2)),
        ("llama2-13b", 1, 4096, (1, 2)),
        ("llama3-70b", 4, 4096, (1, 2)),
        ("llama3-70b", 8, 4096, (1, 2)),
        ("llama3-70b", 8, 8192, (1,)),
        ("gpt3-175b", 4, 2048, (1, 2)),
        ("gpt3-175b", 8, 2048, (1, 2, 4)),
        ("llama3.1-405b", 8, 8192, (1,)),
    ):
        for micro in micros:
            for phase in ("forward", "backward"):
                yield Case(
                    "layer", model, "layer", length * micro, length, phase=phase, tp=tp, micro=micro
                )
