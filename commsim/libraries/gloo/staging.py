"""
What ProcessGroupGloo copies between GPU and host memory: bytes in before an op, and out after it.

S is the op's size, n the members. Source: the AsyncXxxCUDAWork classes of github pytorch/pytorch
torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: inputs are copied to pinned memory when the op
is issued, outputs are copied back when it is done. send and recv have no such class.
"""

from __future__ import annotations

from collections.abc import Callable

from commsim.libraries.plan import Request
from commsim.ops import COLLECTIVES

__all__ = ["STAGED", "bytes_in", "bytes_out"]

STAGED = frozenset(COLLECTIVES) - {"barrier"}

Bytes = Callable[[Request, int], int]


def _all(request: Request, member: int) -> int:
    return request.size


def _part(request: Request, member: int) -> int:
    return request.size // len(request.ranks)


def _root(request: Request, member: int) -> int:
    return request.size if member == request.root else 0


def _row(request: Request, member: int) -> int:
    return sum(request.splits[member]) if request.splits else 0


def _column(request: Request, member: int) -> int:
    return sum(row[member] for row in request.splits or ())


_IN: dict[str, Bytes] = {
    "all_reduce": _all, "reduce": _all, "reduce_scatter": _all, "all_to_all": _all,
    "broadcast": _root, "scatter": _root, "gather": _part, "all_gather": _part,
    "all_to_all_v": _row,
}  # fmt: skip
_OUT: dict[str, Bytes] = {
    "all_reduce": _all, "reduce": _all, "reduce_scatter": _all, "all_to_all": _all,
    "broadcast": _all, "scatter": _part, "gather": _root, "all_gather": _all,
    "all_to_all_v": _column,
}  # fmt: skip


def bytes_in(request: Request, member: int) -> int:
    """Return the bytes that a member copies to host memory before an op."""
    return _IN[request.kind](request, member)


def bytes_out(request: Request, member: int) -> int:
    """Return the bytes that a member copies back to its GPU after an op."""
    return _OUT[request.kind](request, member)
