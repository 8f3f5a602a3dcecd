"""
The constants of NCCL's tuning model, by release: `versions.yaml` read into one typed table.

A release is a layer over the one before it; asking for "2.27" means the last 2.27.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from commsim.errors import ScenarioError
from commsim.libraries.nccl.shapes import PathType
from commsim.yaml_file import read_own_yaml

__all__ = ["DEFAULT_VERSION", "NvlsRow", "Tables", "tables_of", "versions"]

DEFAULT_VERSION = "2.27"
_FILE = Path(__file__).with_name("versions.yaml")

PerProtocol = tuple[float, float, float]
PerScale = tuple[float, float, float]


class NvlsRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What NVLS gets on machines that fit: `nic` GB/s of a NIC at least, under `nic_below`;
    ranks of a node from, to; `near`: the NIC no farther than over PCIe switches (PXB).
    """

    nic: float
    channels: int
    chunk: int
    tree_chunk: int
    nodes: int | None = None
    nic_below: float | None = None
    ranks_from: int = 1
    ranks_to: int | None = None
    near: bool = False


class Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One release's constants; `versions.yaml` says what each is, and its unit."""

    since: str
    source: str
    base_latency: dict[str, PerProtocol]
    latency: dict[str, dict[str, PerProtocol]]
    ll_max: dict[str, PerScale]
    ring_ll128_channel: dict[str, PerScale]
    tree_ll128_channel: dict[str, PerScale]
    tree_channel: dict[str, PerScale]
    nvlstree_channel: dict[str, PerScale]
    nvls_efficiency: dict[str, float]
    nvls_ratio: dict[str, float]
    nvlstree_ratio_falls: bool
    nvls_bandwidth: Literal["graph", "halved", "gather", "efficiency"]
    nvls_latency: Literal["base", "hops"]
    ring_ll_share: dict[str, float]
    ring_ll128_alone: float
    tree_pattern_share: float
    pat_share: float
    pat_base: float
    collnet_arity: float
    collnet_gather: Literal["none", "interpolated", "minimum"]
    allreduce_inter_steps: Literal["nodes", "less_one"]
    alone_uses_tree_latency: bool
    gathering: tuple[str, ...]
    gather_ratio: tuple[str, ...]
    ll128_capabilities: tuple[int, ...]
    ll128_intra: str
    ll128_mixed: bool
    ll128_inter: dict[str, str]
    collnet_fallback: bool
    rules: Literal["lenient", "functions"]
    ring_kept: bool
    no_algorithm: Literal["ring", "error"]
    min_traffic: int
    partition: Literal["even", "cells", "rounded"]
    max_channels: int
    nvls_channels: dict[str, tuple[int, int]]
    nvls_least_ranks: int
    grows_to_nvls: bool
    nvls_nets: tuple[NvlsRow, ...]
    nvlstree_correction: bool
    net_channels_per_peer: Literal["two", "bandwidth"]
    tree_simple_fits: bool
    nvlstree_chunk: Literal["buffer", "nvls"]
    p2p_group: Literal["node", "eight", "eight_between"]
    p2p_protocol_first: bool

    def generation(self, capability: int) -> str:
        """Return whose row a compute capability (90 for sm90) reads."""
        if capability >= 100 and "blackwell" in self.ll_max:
            return "blackwell"
        if capability >= 90:
            return "hopper"
        return "ampere" if capability >= 80 else "volta"

    def ll128_limit(self, capability: int, *, c2c: bool) -> PathType:
        """Return the farthest path to the network over which LL128 is on by default."""
        row = "else" if capability < 90 else "sm90" if c2c else "sm90_without_c2c"
        return PathType[self.ll128_inter[row]]


@functools.cache
def tables_of(version: str) -> Tables:
    """Return the constants of an NCCL release: "2.27" (its last) or "2.28.9".

    Raises:
        ScenarioError: not a release number, or one outside those of the table.
    """
    asked = _number(version)
    layers = [layer for layer in _layers() if _number(layer["since"])[: len(asked)] <= asked]
    if not layers or asked[:2] > _number(_layers()[-1]["since"])[:2]:
        raise ScenarioError(
            f"NCCL {version}: commsim knows {versions()[0]} to {versions()[-1]}. Give one of them."
        )
    merged: dict[str, Any] = functools.reduce(_merged, layers)
    return msgspec.convert(merged, Tables)


def versions() -> tuple[str, ...]:
    """Return the releases at which something changed, oldest first."""
    return tuple(layer["since"] for layer in _layers())


@functools.cache
def _layers() -> tuple[dict[str, Any], ...]:
    return tuple(read_own_yaml(_FILE))


def _merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with what `change` says: nested mappings merge, unless the change is empty."""
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value:
            merged[key] = _merged(old, value)
        else:
            merged[key] = value
    return merged


def _number(version: str) -> tuple[int, ...]:
    """Return (2, 28, 9) for "2.28.9" and for the "2.28.9+cuda13.0" of logs."""
    try:
        return tuple(int(part) for part in re.split(r"[+-]", version.strip())[0].split("."))
    except ValueError:
        raise ScenarioError(
            f"NCCL version {version!r}: not a release. Write it like 2.27 or 2.28.9."
        ) from None
