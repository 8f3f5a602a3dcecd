"""
What a recipe says, in a scenario's words, before the cluster is known.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["BEYOND", "Draft"]

BEYOND = 10**12
"""No recipe counts this far."""


class Draft(msgspec.Struct):
    """Parts of a training section; 0 and {} if the recipe is silent. Readers fill it in.

    `training` holds what stands besides the sections: precision, recompute, compute.
    """

    source: str
    model: dict[str, Any] = msgspec.field(default_factory=dict)
    parallel: dict[str, Any] = msgspec.field(default_factory=dict)
    data_parallel: dict[str, Any] = msgspec.field(default_factory=dict)
    training: dict[str, Any] = msgspec.field(default_factory=dict)
    seq_len: int = 0
    micro: int = 0
    global_batch: int = 0
    local_batch: int = 0
    replicas: int = 0
    nodes: int = 0
    unmapped: list[str] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
