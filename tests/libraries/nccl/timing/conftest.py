"""What the tests of the timing model share: runs with every column given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from commsim.libraries.nccl.timing.constants import TRANSPORTS
from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind, NicWay, Runs

DEFAULTS: dict[str, Any] = {
    "shape": ChunkShape.RING, "size": 1 << 20, "ranks": 16, "domains": 2, "rounds": 2,
    "channels": 16,
    "peer_channels": 2, "protocol": 2, "window": float(1 << 19), "loop": float(1 << 24),
    "generation": 2, "link": LinkKind.NVLINK, "transport": TRANSPORTS.index("ib"),
    "way": NicWay.DIRECT, "hop": 0.8e-6, "reach": 1.5e-6, "longest": 1.5e-6,
    "gpus_per_process": 0, "host_launch": float("nan"), "old": False, "repeated": False,
}  # fmt: skip
WIRES: dict[str, Any] = {"port": 400e9, "nics": 8, "nic_rate": 48e9}
WHOLE = ("shape", "protocol", "generation", "link", "transport", "way")


def busy(columns: dict[str, Any], port: float, nics: float) -> dict[str, Any]:
    """Return what a textbook program asks of GPUs' ports and a node's NICs (bytes/s)."""
    n, domains, shape = columns["ranks"], columns["domains"], columns["shape"]
    each = max(n // domains, 1)
    around = columns["rounds"] * (n - 1) / n
    local, leaving = {
        ChunkShape.RING: (around, around),
        ChunkShape.TREE: (1.0 if n == 2 else 2.0, 1.0 if domains == 2 else 2.0),
        ChunkShape.NVLS: (1 + 1 / each, 0.0),
        ChunkShape.NVLS_TREE: (1 + 1 / each, 1.0 if domains == 2 else 2.0),
        ChunkShape.EXCHANGE: (each / n, each * (n - each) / n),
        ChunkShape.FAN: ((each - 1) / n, (n - each) / n),
    }.get(shape, (1.0, 1.0))  # fmt: skip
    crosses = domains > 1
    return {
        "local": local / port * (each > 1),
        "net": leaving / nics * crosses,
        "leaving": leaving * crosses,
    }


@pytest.fixture(scope="session")
def runs() -> Callable[..., Runs]:
    """Make runs: two 8-GPU H100 nodes with 400 Gb/s InfiniBand, but for what is given.

    `port` (of a GPU), `nics` and `nic_rate` are the capacities that the runs use.
    """

    def make(**given: Any) -> Runs:
        wires = WIRES | {name: given.pop(name) for name in WIRES if name in given}
        columns = DEFAULTS | given
        columns = {"crossings": np.asarray(columns["domains"]) - 1} | columns
        asked = busy(columns, wires["port"], wires["nics"] * wires["nic_rate"])
        columns = asked | columns
        count = max(np.size(value) for value in columns.values())

        def column(name: str) -> Any:
            kind = np.int64 if name in WHOLE else bool if name in ("old", "repeated") else float
            return np.broadcast_to(np.asarray(columns[name], dtype=kind), (count,)).copy()

        return Runs(**{name: column(name) for name in columns})

    return make
