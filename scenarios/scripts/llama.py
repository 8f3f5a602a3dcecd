"""A Llama-like transformer in plain PyTorch, for the training scripts beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: hidden width, layers, heads, width of the MLP, vocabulary."""

    hidden: int
    layers: int
    heads: int
    ffn: int
    vocab: int


SHAPES = {
    "tiny": Shape(128, 4, 4, 512, 1000),
    "1b": Shape(2048, 16, 16, 8192, 32000),
    "7b": Shape(4096, 32, 32, 11008, 32000),
    "70b": Shape(8192, 80, 64, 28672, 128256),
}


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.hidden // shape.heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(shape.hidden, shape.hidden, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, -1, self.width).transpose(1, 2)
            for part in (self.wq, self.wk, self.wv)
        )
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.w1 = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.w3 = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.w2 = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden)
        self.attention = Attention(shape)
        self.mlp_norm = nn.RMSNorm(shape.hidden)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """All layers, or those of a pipeline stage: `first` embeds the tokens, `last` has the head."""

    def __init__(
        self, shape: Shape, layers: int | None = None, *, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden) if first else None
        self.layers = nn.ModuleList(
            Block(shape) for _ in range(shape.layers if layers is None else layers)
        )
        self.norm = nn.RMSNorm(shape.hidden) if last else None
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False) if last else None

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def random_tokens(shape: Shape, batch: int, length: int) -> Tensor:
    return torch.randint(shape.vocab, (batch, length), device="cuda")
