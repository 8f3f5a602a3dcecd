"""
What a captured graph says of itself besides its ops, under `capture` in its meta: its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from commsim.arrays import Ints
from commsim.units import MOST_BYTES

__all__ = ["HOST_STREAM", "check_meta"]

HOST_STREAM = "host"
"""The stream of a captured program itself: ops that it issues wait for where it last waited."""

_Work = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]
_Length = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Memory(msgspec.Struct):
    parameters: _Bytes
    gradients: _Bytes
    optimizer: _Bytes
    other: _Bytes
    peak: _Bytes


class _Capture(msgspec.Struct):
    """`products` are (kind, m, n, k, batch, dtype, causal) by the names of ops, `launches` how many
    kernels those are that are more than one."""

    script: str
    torch: str
    model_flops: _Work
    hardware_flops: _Work
    role_of_rank: list[_Rank]
    memory: dict[str, _Memory]
    products: dict[str, tuple[str, _Length, _Length, _Length, _Length, str, bool]]
    notes: list[str]
    launches: dict[str, _Count] = {}


def check_meta(meta: Mapping[str, Any], lane_rank: Ints) -> None:
    """Check what is read of a graph's meta.

    Raises:
        ValueError: a figure of the capture is missing or wrong, or it lacks a rank of the graph.
    """
    if "capture" not in meta:
        return
    try:
        capture = msgspec.convert(meta["capture"], _Capture)
    except msgspec.ValidationError as error:
        raise ValueError(f"'capture': {error}") from None
    if lane_rank.max(initial=-1) >= len(capture.role_of_rank):
        raise ValueError("'capture' does not say the role of each rank")
    if any(str(role) not in capture.memory for role in capture.role_of_rank):
        raise ValueError("'capture' does not say the memory of each role")
