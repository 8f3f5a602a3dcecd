"""What the tests of the timing model share: runs with every column given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from commsim.libraries.nccl.timing.constants import TRANSPORTS
from commsim.libraries.nccl.timing.runs import LinkKind, Runs, Shape, Way

DEFAULTS: dict[str, Any] = {
    "shape": Shape.RING, "size": 1 << 20, "ranks": 16, "domains": 2, "rounds": 2, "channels": 16,
    "protocol": 2, "generation": 2, "link": LinkKind.NVLINK, "port": 450e9, "nics": 8,
    "nic_rate": 50e9, "transport": TRANSPORTS.index("ib"), "way": Way.DIRECT,
    "gpus_per_process": 0, "old": False, "repeated": False,
}  # fmt: skip
WHOLE = ("shape", "protocol", "generation", "link", "transport", "way")


@pytest.fixture(scope="session")
def runs() -> Callable[..., Runs]:
    """Make runs: two 8-GPU H100 nodes with 400 Gb/s InfiniBand, but for what is given."""

    def make(**given: Any) -> Runs:
        columns = DEFAULTS | given
        count = max(np.size(value) for value in columns.values())

        def column(name: str) -> Any:
            kind = np.int64 if name in WHOLE else bool if name in ("old", "repeated") else float
            return np.broadcast_to(np.asarray(columns[name], dtype=kind), (count,)).copy()

        return Runs(**{name: column(name) for name in DEFAULTS})

    return make
