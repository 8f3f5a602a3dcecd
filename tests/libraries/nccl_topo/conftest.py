"""What the tests of NCCL's topology share: recorded machines, and what NCCL found on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from

DATA = Path(__file__).resolve().parents[2] / "data" / "nccl"


@pytest.fixture(scope="session")
def topology() -> Callable[[str], str]:
    """The topology file of a machine by its name."""
    return lambda name: (DATA / f"{name}.xml").read_text()


@pytest.fixture(scope="session")
def record() -> Callable[[str], dict[str, Any]]:
    """What NCCL found on so many machines ("dgx_h100_2")."""
    return lambda name: json.loads((DATA / f"graphs_{name}.json").read_text())


@pytest.fixture(scope="session")
def many_nics() -> Callable[[int], Cluster]:
    """So many nodes of 8 H100 behind NVSwitch, each GPU with four 100 Gb/s NICs of its own."""
    switches = [
        {"socket": g // 4, "gpus": [g], "nics": list(range(4 * g, 4 * g + 4))} for g in range(8)
    ]
    node = {
        "gpu": {"count": 8, "spec": "H100-SXM5-80GB"},
        "nvlink": {"kind": "switch", "bandwidth": "450GB/s", "links": 18},
        "pcie": {"generation": 5, "switches": switches},
        "cpu": {"sockets": 2, "vendor": "intel", "family": 6, "model_id": 143},
        "nic": {"count": 32, "bandwidth": "100Gbps", "medium": "infiniband", "gdr": True},
    }
    return lambda nodes: cluster_from({"nodes": nodes, "node": node}, "many NICs")
