"""
What one rank computes of one microbatch, and the bytes it exchanges with the others.

b  sequences of the microbatch     s  tokens of a sequence, all of them
t  tensor-parallel degree          d  context-parallel degree (a rank holds s/d tokens)

Sources: Narayanan et al., SC'21 (p2p, tensor parallelism); Korthikanti et al. 2022 (sequence
parallelism); Liu et al. 2023 (ring attention); Jacobs et al. 2023 (Ulysses).
"""

from __future__ import annotations

import msgspec

from commsim.errors import ScenarioError
from commsim.models.parameters import local_kv_heads
from commsim.models.shape import Experts, ModelShape, score_width, value_width

__all__ = [
    "Split",
    "check_split",
    "context_ring_bytes",
    "expert_all_to_all_bytes",
    "hidden_bytes",
    "tensor_parallel_bytes",
    "token_copies",
    "ulysses_bytes",
]


class Split(msgspec.Struct, frozen=True):
    """A microbatch of `micro` sequences of `seq` tokens, and how its work is divided."""

    micro: int
    seq: int
    tp: int = 1
    sequence_parallel: bool = False
    cp: int = 1
    ep: int = 1
    loss_parallel: bool = True
    """Whether the loss is computed on parts of the vocabulary, not on gathered logits."""
    capacity: float = 0.0
    """What an expert takes over the mean of its tokens, filled up; 0: all tokens that come."""
    dispatcher: str = "alltoall"
    """How tokens reach their experts: `alltoall` sends every copy, `deepep` a token once."""
    ep_nodes: int = 1
    """The nodes (NVLink domains) that an expert-parallel group lies on."""
    ulysses: bool = False
    """Whether a rank meets all keys for some of its heads, not blocks of them in a ring."""
    whole_experts: bool = False
    """Whether tensor parallelism leaves experts whole, to which each rank sends its own tokens."""
    shared_apart: bool = False
    """Whether shared experts are a block of their own, which runs while tokens travel."""

    @property
    def tokens(self) -> int:
        """The tokens whose layers a tensor-parallel group works on together: b s/d."""
        return self.micro * self.seq // self.cp

    @property
    def expert_tp(self) -> int:
        """The ranks that an expert is divided among."""
        return 1 if self.whole_experts else self.tp

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


def expert_all_to_all_bytes(
    shape: ModelShape, split: Split, *, width: int, dispatch: bool = False
) -> int:
    """Return what a rank starts a dispatch (or ends a combine) with, as an even all-to-all.

    Every copy of a token is sent (top_k of them, with a capacity so many times that), or a token
    once to each rank or node that it has an expert on (`token_copies`). `dispatch` of deepep-fp8
    has a byte per entry.

    Raises:
        ValueError: the model has no experts.
    """
    if shape.experts is None:
        raise ValueError("a model without experts has nothing to dispatch")
    if split.dispatcher == "alltoall":
        copies = shape.experts.top_k * (split.capacity or 1.0)
    else:
        copies = token_copies(shape.experts, split)
    if dispatch and split.dispatcher == "deepep-fp8":
        width = 1
    return round(hidden_bytes(shape, split, width=width) * copies)


def token_copies(experts: Experts, split: Split) -> float:
    """Return how often a token is sent by DeepEP, as copies of an even all-to-all.

    Inside a node once to each rank that has one of its experts. Over nodes once to each of those,
    from where NVLink passes it on beside; an even all-to-all of so many copies puts on the network
    what leaves the node. Node-limited routing (DeepSeek-V3 report, section 2.1.2) chooses
    experts in `top_groups` of `groups`.
    """
    chosen = experts.experts
    if experts.top_groups:
        chosen = max(experts.top_k, experts.experts * experts.top_groups // experts.groups)
    reached = chosen / experts.experts
    if split.ep_nodes == 1:
        return _parts_met(chosen, max(1.0, split.ep * reached), experts.top_k)
    return _parts_met(chosen, max(1.0, split.ep_nodes * reached), experts.top_k)


def _parts_met(experts: int, parts: float, top_k: int) -> float:
    """Return in how many of `parts` equal parts `top_k` of the experts lie, on average."""
    own, missed = experts / parts, 1.0
    for drawn in range(top_k):
        missed *= max(0.0, (experts - own - drawn) / (experts - drawn))
    return parts * (1 - missed)


def context_ring_bytes(
    shape: ModelShape, split: Split, *, width: int, repeated: bool = False
) -> int:
    """Return the keys and values that a rank passes on in one step of ring attention.

    `repeated`: grouped ones are copied for every head before.
    """
    if shape.latent is not None or repeated:
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
