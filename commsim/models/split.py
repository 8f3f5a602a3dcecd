"""
What one rank computes of one microbatch, and the bytes it exchanges with the others.

b  sequences of the microbatch     s  tokens of a sequence, all of them
t  tensor-parallel degree          d  context-parallel degree (a rank holds s/d tokens)

Sources: Narayanan et al., SC'21 (p2p, tensor parallelism); Korthikanti et al. 2022 (sequence
parallelism); Liu et al. 2023 (ring attention); Jacobs et al. 2023 (Ulysses).
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.errors import ScenarioError
from commsim.models.parameters import local_kv_heads
from commsim.models.shape import ModelShape, score_width, value_width

__all__ = [
    "Split",
    "check_split",
    "context_ring_bytes",
    "expert_all_to_all_bytes",
    "hidden_bytes",
    "tensor_parallel_bytes",
    "ulysses_bytes",
]


@dataclass(frozen=True, slots=True)
class Split:
    """A microbatch of `micro` sequences of `seq` tokens, and how its work is divided."""

    micro: int
    seq: int
    tp: int = 1
    sequence_parallel: bool = False
    cp: int = 1
    ep: int = 1
    loss_parallel: bool = True
    """Whether the loss is computed on parts of the vocabulary, not on gathered logits."""

    @property
    def tokens(self) -> int:
        """The tokens whose layers a tensor-parallel group works on together: b s/d."""
        return self.micro * self.seq // self.cp

    @property
    def own(self) -> float:
        """The share of its tokens for which a rank does norms, dropout and residuals."""
        return 1 / self.tp if self.sequence_parallel else 1.0


def check_split(shape: ModelShape, split: Split, *, where: str = "parallel") -> None:
    """Check that heads, experts and tokens divide by the degrees.

    Raises:
        ScenarioError: naming the two figures that do not go together.
    """
    _divides(shape.heads, "heads", split.tp, "tp", f"{where}.tp")
    _divides(shape.ffn, "columns of the MLP", split.tp, "tp", f"{where}.tp")
    if shape.latent is None and max(shape.kv_heads, split.tp) % min(shape.kv_heads, split.tp):
        raise ScenarioError(
            f"{where}.tp: {shape.kv_heads} key/value heads can be neither divided among nor copied"
            f" to tp={split.tp} ranks. Give a divisor or a multiple of {shape.kv_heads}."
        )
    if split.ep > 1 and shape.experts is None:
        raise ScenarioError(f"{where}.ep: {split.ep}, but the model has no experts. Leave ep at 1.")
    if shape.experts is not None:
        _divides(shape.experts.experts, "experts", split.ep, "ep", f"{where}.ep")
    if split.cp > 1:
        _divides(split.seq, "tokens of a sequence", 2 * split.cp, "2 x cp", f"{where}.cp")
    if split.sequence_parallel:
        _divides(split.seq // split.cp, "tokens", split.tp, "tp", f"{where}.sequence_parallel")


def _divides(count: int, what: str, degree: int, axis: str, where: str) -> None:
    if count % degree:
        raise ScenarioError(f"{where}: {count} {what} do not divide by {axis} = {degree}.")


def hidden_bytes(shape: ModelShape, split: Split, *, width: int) -> int:
    """Return the bytes of a microbatch's hidden state on a rank, `width` bytes per entry."""
    whole = tensor_parallel_bytes(shape, split, width=width)
    return whole // split.tp if split.sequence_parallel else whole


def tensor_parallel_bytes(shape: ModelShape, split: Split, *, width: int) -> int:
    """Return the size of a tensor-parallel collective: the hidden state of the whole group."""
    return width * split.tokens * shape.hidden


def expert_all_to_all_bytes(shape: ModelShape, split: Split, *, width: int) -> int:
    """Return what a rank starts a dispatch (or ends a combine) with: top_k copies of its tokens.

    Raises:
        ValueError: the model has no experts.
    """
    if shape.experts is None:
        raise ValueError("a model without experts has nothing to dispatch")
    return hidden_bytes(shape, split, width=width) * shape.experts.top_k


def context_ring_bytes(shape: ModelShape, split: Split, *, width: int) -> int:
    """Return the keys and values that a rank passes on in one step of ring attention."""
    if shape.latent is not None:
        entries = (score_width(shape) + value_width(shape)) // split.tp
    else:
        entries = 2 * local_kv_heads(shape, split.tp) * shape.head_dim
    return width * split.tokens * entries


def ulysses_bytes(shape: ModelShape, split: Split, *, width: int, tensor: str) -> int:
    """Return what a rank starts one Ulysses all-to-all with; `tensor` is q, k, v or o."""
    value = value_width(shape)
    kv = value if shape.latent else local_kv_heads(shape, split.tp) * split.tp * shape.head_dim
    widths = {"q": score_width(shape), "k": kv, "v": kv, "o": value}
    return width * split.tokens * widths[tensor] // split.tp
