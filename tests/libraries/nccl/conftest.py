"""NCCL's own record of machines: what it found, chose and predicted (see SOURCE.md)."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from typing import Any

import pytest
from helpers.paths import TESTS

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.libraries.nccl.communicator.record import recorded_communicator
from commsim.libraries.nccl.shapes import Communicator

DATA = TESTS / "data" / "nccl_choice"
FOUND = TESTS / "data" / "nccl"


@pytest.fixture(scope="session")
def nccl_records() -> dict[str, dict[str, Any]]:
    """The settings and graphs of each case, by name."""
    records: dict[str, dict[str, Any]] = json.loads((DATA / "records.json").read_text())
    return records


@pytest.fixture(scope="session")
def recorded(nccl_records: dict[str, dict[str, Any]]) -> Callable[[str], Communicator]:
    """Make the communicator of a case."""
    return lambda name: recorded_communicator(nccl_records[name], where=name)


@pytest.fixture(scope="session")
def rows() -> Callable[[str], list[dict[str, str]]]:
    """Read the rows of a table of the record."""

    def read(name: str) -> list[dict[str, str]]:
        with (DATA / name).open(newline="") as file:
            return list(csv.DictReader(file))

    return read


@pytest.fixture(scope="session")
def topology() -> Callable[[str], str]:
    """The topology file of a machine by its name."""
    return lambda name: (FOUND / f"{name}.xml").read_text()


@pytest.fixture(scope="session")
def record() -> Callable[[str], dict[str, Any]]:
    """What NCCL found on so many machines ("dgx_h100_2")."""
    return lambda name: json.loads((FOUND / f"graphs_{name}.json").read_text())


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
