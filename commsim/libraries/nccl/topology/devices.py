"""
Which GPU a PCI device id is, and how fast its NVLinks are: the table `devices.yaml`, read.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from commsim.yaml_file import read_own_yaml

__all__ = ["device_of", "gpu_name", "nvlink_rate"]

_TABLE = Path(__file__).with_name("devices.yaml")
_UNKNOWN = "0x0000"


def gpu_name(device: int, capability: int) -> tuple[str, bool]:
    """Return the GPU with a PCI device id, and whether it was known by it.

    Otherwise it is the usual one of its compute capability (x 10).
    """
    known = _table()["ids"].get(f"{device:#06x}")
    if known is not None:
        return known, True
    return _last(_table()["by_capability"], capability)["gpu"], False


def device_of(gpu: str) -> str:
    """Return the PCI device id of a GPU of commsim's table, "0x0000" if none is listed."""
    found = (device for device, name in _table()["ids"].items() if name == gpu)
    return next(found, _UNKNOWN)


def nvlink_rate(capability: int) -> float:
    """Return bytes/s of one NVLink in one direction."""
    return float(_last(_table()["nvlink"], capability)["gbs"]) * 1e9


def _last(rows: list[dict[str, Any]], capability: int) -> dict[str, Any]:
    return [row for row in rows if row["capability"] <= capability][-1]


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read_own_yaml(_TABLE)
    return table
