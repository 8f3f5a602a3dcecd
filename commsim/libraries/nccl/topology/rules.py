"""
NCCL's constants for topology and search as one version of NCCL has them.

They stand in `topology.yaml` with their sources. Bandwidths are in MB/s (1e6 B/s) from here on:
NCCL rounds its GB/s to thousandths at every step, so whole numbers follow it exactly.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import msgspec

from commsim.errors import ScenarioError
from commsim.yaml_file import read_own_yaml

__all__ = ["Rules", "mbs", "rules_of"]

_TABLE = Path(__file__).with_name("topology.yaml")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
T = TypeVar("T")
_OLDEST = (2, 18, 0)
_LAST = 99


class Rules(msgspec.Struct, frozen=True):
    """What one version of NCCL does; bandwidths in MB/s.

    `speeds(capability, inter=)` gives the channel bandwidths to try, from high to low.
    """

    version: str
    nvlink: tuple[tuple[int, int], ...]
    """(first compute capability, one link)."""
    pci_lane: Mapping[str, int]
    pci_lane_default: int
    cpu_link: Mapping[str, int]
    intel_link: tuple[tuple[int, int], ...]
    """(first model number of family 6, bandwidth)."""
    max_channels: int
    speeds_intra: tuple[tuple[int, tuple[int, ...]], ...]
    speeds_inter: tuple[tuple[int, tuple[int, ...]], ...]
    c2c_to_nic: bool
    pxn_over_c2c: bool
    reach: Literal["sys", "paths", "paths_from_hopper"]
    number_among_sharers: bool
    nvls_min_gpus: int
    merges_ports: bool

    def nvlink_bandwidth(self, capability: int) -> int:
        """Return what NCCL counts for one NVLink of a GPU (compute capability x 10)."""
        return _last(self.nvlink, capability)

    def speeds(self, capability: int, *, inter: bool) -> tuple[int, ...]:
        """Return the bandwidths that a search tries for a channel, from high to low."""
        return _last(self.speeds_inter if inter else self.speeds_intra, capability)


def mbs(gigabytes: float) -> int:
    """Return GB/s in whole MB/s, as NCCL's own rounding has it."""
    return round(gigabytes * 1000)


@functools.cache
def rules_of(version: str) -> Rules:
    """Return the rules of an NCCL version ("2.27", "2.30.7").

    Raises:
        ScenarioError: not a version, or one older than 2.18.
    """
    number = _number(version, last=_LAST)
    if number < _OLDEST:
        raise ScenarioError(
            f"NCCL version {version!r} is older than 2.18, the oldest that commsim knows."
        )
    table = _table()
    cpu = {name: mbs(gbs) for name, gbs in table["cpu_link"].items() if name != "intel"}
    return Rules(
        version=version,
        nvlink=tuple((row["capability"], mbs(row["gbs"])) for row in table["nvlink"]),
        pci_lane=MappingProxyType(table["pci_lane"]),
        pci_lane_default=table["pci_lane_default"],
        cpu_link=MappingProxyType(cpu),
        intel_link=tuple(
            (row["model"], mbs(row["gbs"])) for row in _since(table["cpu_link"]["intel"], number)
        ),
        max_channels=_since(table["max_channels"], number),
        speeds_intra=_speeds(table["speeds_intra"], number),
        speeds_inter=_speeds(table["speeds_inter"], number),
        c2c_to_nic=_since(table["c2c_to_nic"], number),
        pxn_over_c2c=_since(table["pxn_over_c2c"], number),
        reach=_since(table["reach"], number),
        number_among_sharers=_since(table["number_among_sharers"], number),
        nvls_min_gpus=_since(table["nvls_min_gpus"], number),
        merges_ports=_since(table["merges_ports"], number),
    )


def _number(version: str, *, last: int = 0) -> tuple[int, int, int]:
    """Return a version's numbers, `last` for a third one that is not there."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ScenarioError(
            f"{version!r} is not an NCCL version. Write it like '2.27' or '2.27.3'."
        )
    return int(found[1]), int(found[2]), int(found[3] or last)


def _since(rows: Sequence[Mapping[str, Any]], number: tuple[int, int, int]) -> Any:
    """Return the value of the last row that `number` has; None if all are newer."""
    have = [row["value"] for row in rows if _number(row["since"]) <= number]
    return have[-1] if have else None


def _speeds(
    rows: Sequence[Mapping[str, Any]], number: tuple[int, int, int]
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    found = [(row["capability"], _since(row["steps"], number)) for row in rows]
    return tuple((first, tuple(mbs(s) for s in steps)) for first, steps in found if steps)


def _last(rows: Sequence[tuple[int, T]], key: int) -> T:
    """Return the value of the last row whose first key is not above `key`."""
    return [value for first, value in rows if first <= key][-1]


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read_own_yaml(_TABLE)
    return table
