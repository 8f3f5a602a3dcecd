"""
Stragglers: ranks that work in step are as slow as the slowest of their GPUs.

GPUs of one kind differ in speed, by silicon, cooling and power: in the mean of large clusters by
8 % (Sinha et al., "Not All GPUs Are Created Equal", SC'22). Between the whiskers of a box plot, as
there, that is a standard deviation of 1.5 % of normal speeds. The slowest of n is expected at their
quantile (n - 3/8)/(n + 1/4) (Blom 1958): 1.4 standard deviations out of 8, 2.6 of 128, 3.0 of 512.
"""

from __future__ import annotations

from functools import cache

__all__ = ["slowest"]


@cache
def slowest(gpus: int, spread: float) -> float:
    """Return how many times as long as the mean the slowest of `gpus` takes."""
    from statistics import NormalDist  # here, since few runs ask for it and it imports random

    return 1 + spread * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
