"""
What the ops of torch.distributed mean: bus factors, roots, and where the data starts and ends.

Busbw is algbw times a factor that makes it comparable with the speed of the links, exactly as
nccl-tests defines both (its PERFORMANCE.md): algbw = S/t with S the largest buffer of a rank.
"""

from __future__ import annotations

__all__ = ["REDUCING", "ROOTED", "bus_factor"]

ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather"})
REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter", "barrier"})
_WHOLE = frozenset({"broadcast", "reduce", "send_recv"})


def bus_factor(op: str, n: int) -> float:
    """Return busbw / algbw for `n` members; a barrier moves nothing and has factor 0."""
    if op == "barrier" or n < 2:
        return 0.0
    if op == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if op in _WHOLE else (n - 1) / n
