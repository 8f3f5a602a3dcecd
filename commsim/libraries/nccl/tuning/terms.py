"""What latencies and bandwidths of NCCL's tuning model share: steps, and rounding as C does."""

from __future__ import annotations

import math

import numpy as np

from commsim.libraries.nccl.shapes import Algorithm

__all__ = ["COLLNET", "GATHERING", "NVLS", "single", "steps"]

GATHERING = ("all_gather", "reduce_scatter")
COLLNET = (Algorithm.CollNetDirect, Algorithm.CollNetChain)
NVLS = (Algorithm.NVLS, Algorithm.NVLSTree)


def steps(op: str, n: int) -> int:
    """Return the steps of a ring of `n` ranks, as NCCL counts them."""
    if op == "all_reduce":
        return 2 * (n - 1)
    return n - 1 if op in GATHERING else n


def single(value: float) -> float:
    """Round to 32 bits, as storing in a C float does."""
    return float(np.float32(value)) if math.isfinite(value) else value
