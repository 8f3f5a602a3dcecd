"""
Gradient buckets of DistributedDataParallel.

Gradients are taken in the order in which they become ready, the reverse of registration. A
bucket closes as soon as it holds at least its cap, so it can exceed it; the first bucket has a
cap of its own (1 MiB in PyTorch, so that communication starts early), and what is left is the
last bucket. Buckets are reduced in the order of their index, never of their readiness.
Source: torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["assign_buckets"]


def assign_buckets(sizes: Sequence[int], *, first: int, cap: int) -> tuple[tuple[int, ...], ...]:
    """Return the buckets as positions in `sizes` (bytes of each gradient, in ready order)."""
    buckets: list[tuple[int, ...]] = []
    held: list[int] = []
    total = 0
    for position, size in enumerate(sizes):
        held.append(position)
        total += size
        if total >= (cap if buckets else first):
            buckets.append(tuple(held))
            held, total = [], 0
    return (*buckets, tuple(held)) if held else tuple(buckets)
