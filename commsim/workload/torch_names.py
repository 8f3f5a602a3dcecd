"""
The words of torch.distributed for collectives, and what each of them is.

A word names a collective, which end its root is called by, and the fields that it has besides
`bytes`. `bytes` is S of nccl-tests: the buffer; what a rank ends with (all_gather); what a rank
starts with (reduce_scatter, all_to_all); all of the root's buffers (gather, scatter). The object
words pickle: first the sizes go round, then the bytes, padded to the largest.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from commsim.errors import ScenarioError, did_you_mean
from commsim.ops import ELEMENT_TYPES, REDUCE_OPS, element_type

__all__ = [
    "OBJECT_CALLS", "WORDS", "ObjectStep", "Word", "check_dtype",
    "check_redop",
]  # fmt: skip


class Word(msgspec.Struct, frozen=True):
    """A collective by one of its names: `ends` are what its root may be called."""

    op: str
    ends: tuple[str, ...] = ()
    reduces: bool = False
    splits: bool = False


_SOURCE = ("src", "group_src", "root")
_TARGET = ("dst", "group_dst", "root")

WORDS: dict[str, Word] = {
    "all_reduce": Word("all_reduce", reduces=True),
    "reduce": Word("reduce", _TARGET, reduces=True),
    "broadcast": Word("broadcast", _SOURCE),
    "scatter": Word("scatter", _SOURCE),
    "gather": Word("gather", _TARGET),
    "all_gather": Word("all_gather"),
    "all_gather_into_tensor": Word("all_gather"),
    "reduce_scatter": Word("reduce_scatter", reduces=True),
    "reduce_scatter_tensor": Word("reduce_scatter", reduces=True),
    "all_to_all": Word("all_to_all", splits=True),
    "all_to_all_single": Word("all_to_all", splits=True),
    "all_to_all_v": Word("all_to_all_v", splits=True),
    "barrier": Word("barrier"),
}


class ObjectStep(msgspec.Struct, frozen=True):
    """One collective of an object word: `size(n, bytes)` of n members and a pickled object."""

    op: str
    size: Callable[[int, int], int]


_LONG = 8  # bytes of a size

OBJECT_CALLS: dict[str, tuple[tuple[str, ...], tuple[ObjectStep, ...]]] = {
    "broadcast_object_list": (
        _SOURCE,
        (
            ObjectStep("broadcast", lambda n, size: _LONG),
            ObjectStep("broadcast", lambda n, size: size),
        ),
    ),
    "all_gather_object": (
        (),
        (
            ObjectStep("all_gather", lambda n, size: n * _LONG),
            ObjectStep("all_gather", lambda n, size: n * size),
        ),
    ),
    "gather_object": (
        _TARGET,
        (
            ObjectStep("all_gather", lambda n, size: n * _LONG),
            ObjectStep("gather", lambda n, size: n * size),
        ),
    ),
    "scatter_object_list": (
        _SOURCE,
        (
            ObjectStep("broadcast", lambda n, size: _LONG),
            ObjectStep("scatter", lambda n, size: n * size),
            ObjectStep("scatter", lambda n, size: n * _LONG),
        ),
    ),
}
"""Word: what its root may be called, and the collectives that it runs one after another."""


def check_redop(redop: str, word: str, *, reduces: bool, where: str, field: str = "op") -> None:
    """Raise ScenarioError for a reduce op that there is not, or if nothing is reduced."""
    if redop and not reduces:
        raise ScenarioError(f"{where}.{field}: {word} reduces nothing. Leave it out.")
    if redop and redop not in REDUCE_OPS:
        raise ScenarioError(
            f"{where}.{field}: no reduce op {redop!r}.{did_you_mean(redop, REDUCE_OPS)}"
            f" Known: {', '.join(REDUCE_OPS)}."
        )


def check_dtype(dtype: str, size: int, where: str) -> None:
    """Raise ScenarioError for an unknown type, or bytes that are no whole number of elements."""
    if not dtype:
        return
    known = element_type(dtype)
    if known is None:
        raise ScenarioError(
            f"{where}.dtype: unknown type {dtype!r}.{did_you_mean(dtype, ELEMENT_TYPES)}"
            f" Known: {', '.join(ELEMENT_TYPES)}."
        )
    if size % known.bytes:
        raise ScenarioError(
            f"{where}.bytes: {size} bytes are no whole number of {dtype}, which has"
            f" {known.bytes} bytes."
        )
