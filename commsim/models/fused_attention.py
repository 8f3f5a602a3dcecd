"""
The speed of a fused attention (FlashAttention, cuDNN) by its shape.

rate = peak x share x narrow / ((1 + half_keys / keys) (1 + tail x longest / mean))

Heads narrower than 128 feed the tensor cores worse: `narrow` is the factor at 64. Short rows of
keys fill a kernel's pipeline badly. A kernel gives each SM tiles of 128 rows; under a causal mask
the last of a head's tiles meets twice the keys of the mean one, and at its end a kernel waits for
such a tile: longest/mean is how long it takes relative to what an SM does altogether,
2 x 128 SMs / (heads x rows). With 32 heads of 8,192 rows on 132 SMs that is 13 %, with 8 heads, as
tensor parallelism leaves, 52 %.

The form was read off kernels of one H200 that were timed by shape; `benchmarks/validate_kernels.py`
says how near it comes, there and on an H100.
"""

from __future__ import annotations

from commsim.models.constants import FusedPass

__all__ = ["WIDE_HEAD", "fused_share"]

WIDE_HEAD = 128
"""The width of head that the share of a kernel is given for."""
_NARROW_HEAD = 64
_TILE_ROWS = 128


def fused_share(
    kernel: FusedPass, *, width: int, keys: float, rows: float, sms: int, causal: bool = True
) -> float:
    """Return the share of the dense peak that a pass reaches, in 0 to 1 (this module's formula).

    `rows` are the queries of all heads and sequences together, `keys` how many a query meets at
    most, `width` the entries of a head, `sms` those of the GPU; all above 0.
    """
    longest = (2 if causal else 1) * _TILE_ROWS * sms / rows
    late = (1 + kernel.half_keys / keys) * (1 + kernel.tail * longest)
    return kernel.share * _by_width(kernel, width) / late


def _by_width(kernel: FusedPass, width: int) -> float:
    """Return what narrow heads leave: a straight line through 1 and `narrow`."""
    short = (WIDE_HEAD - width) / (WIDE_HEAD - _NARROW_HEAD)
    return min(1.0, 1.0 - (1.0 - kernel.narrow) * short)
