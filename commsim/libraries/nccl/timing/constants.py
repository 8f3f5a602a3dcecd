"""
The constants of NCCL's time: `timing.yaml` as arrays that formulas can index.

Times are in seconds and rates in bytes/s here, in us and GB/s (1e9) in the file. Every constant
was fitted by `benchmarks/fit_nccl.py`, which writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
import yaml

from commsim.arrays import Floats
from commsim.libraries.nccl.shapes import Protocol

__all__ = ["GENERATIONS", "TRANSPORTS", "Terms", "default_terms", "read_values", "terms_of"]


GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
"""GPU generations in NCCL's order; a GPU older than Volta counts as Volta."""
_WITH_NVLS = ("hopper", "hopper", "hopper", "blackwell")  # none before Hopper has it
_FITTED_TRANSPORTS = ("ib", "roce", "slingshot", "efa_v2", "efa_v1", "tcpxo", "tcpx", "tcp")
_ALIKE = MappingProxyType({"efa_v3": "efa_v2", "efa_v4": "efa_v2"})
TRANSPORTS = (*_FITTED_TRANSPORTS, *_ALIKE)
"""What carries messages between nodes; nothing was measured on EFA v3 and v4: they take v2's."""
_PROTOCOLS = tuple(protocol.name for protocol in Protocol)
_FRAMING = np.array([1 / 2, 15 / 16, 1.0])
"""Payload share of LL (8 of 16 bytes), LL128 (120 of 128) and Simple: NCCL's own framing."""
_PCIE_HOPS = np.array([1 / 0.6, 2.5 / 1.9, 5.7 / 3.4])
"""A hop over PCIe against one over NVLink, as in NCCL's own latency table (ring)."""
_FILE = Path(__file__).with_name("timing.yaml")
_US, _GB = 1e-6, 1e9


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Constants by (generation,), (protocol,), (transport,) or (link kind, protocol).

    Latencies in seconds, rates in bytes/s, efficiencies and factors plain.
    """

    launch: Floats
    launch_one_process: float
    """One process starts the kernels of its GPUs one after another: seconds for each GPU."""
    launch_channel: float
    """Seconds that NCCL before 2.12 needs to start each channel."""
    hop: Floats
    """(nvlink, pcie, shm) x protocol."""
    net: Floats
    net_protocol: Floats
    skew: float
    ring_net: Floats
    """Per transport: a hop in a ring against one in a tree."""
    root: float
    root_rate: float
    rendezvous: Floats
    """Per transport: seconds more for a message beyond what it sends at once."""
    link: Floats
    """(nvlink, pcie, shm) x protocol: payload share of the physical rate."""
    channel: Floats
    """Generation x protocol: bytes/s that one channel copies."""
    tree: float
    """What a channel and an NVLink carry in a tree, against a ring."""
    nic: Floats
    """Transport x protocol: payload share of the physical rate."""
    tcp: float
    """bytes/s that a node's TCP sockets carry at most."""
    tree_net: float
    nvls: float
    nvls_bus: Floats
    staged: float
    """bytes/s of a node whose messages are staged through host memory."""
    exchange_net: Floats
    """Per transport: payload share that all-to-all and sends reach, against collectives."""
    exchange_peer: float
    pair_net: float
    fill_ring: float
    fill_tree: Floats
    fill_nvls: float
    fill_nvls_tree: float


def terms_of(values: Mapping[str, float]) -> Terms:
    """Return the constants `values` (names and units as in `timing.yaml`) as arrays."""
    us = {name: value * _US for name, value in values.items()}
    return Terms(
        launch=np.array([us[f"launch.{g}"] for g in GENERATIONS]),
        launch_one_process=us["launch.one_process"],
        launch_channel=us["launch.old_channel"],
        hop=_hops(us),
        net=_by_transport({t: us[f"net.{t}"] for t in _FITTED_TRANSPORTS}),
        net_protocol=np.array([us[f"net.{p}"] for p in _PROTOCOLS]),
        skew=values["net.skew"],
        ring_net=_by_transport(
            dict.fromkeys(_FITTED_TRANSPORTS, 1.0) | {"slingshot": values["net.slingshot_ring"]}
        ),
        root=us["net.root"],
        root_rate=values["rate.root"],
        rendezvous=_by_transport({"slingshot": us["net.rendezvous"]}),
        link=_link_shares(values),
        channel=_channel_rates(values),
        tree=values["rate.tree"],
        nic=_nic_shares(values),
        tcp=values["rate.tcp_node"] * _GB,
        tree_net=values["rate.tree_net"],
        nvls=us["nvls.latency"],
        nvls_bus=np.array([values[f"rate.nvls_{g}"] for g in _WITH_NVLS]),
        staged=values["rate.staged_node"] * _GB,
        exchange_net=_by_transport(
            dict.fromkeys(_FITTED_TRANSPORTS, 1.0) | {"slingshot": values["exchange.slingshot"]}
        ),
        exchange_peer=us["exchange.peer"],
        pair_net=values["exchange.pair"],
        fill_ring=values["fill.ring"],
        fill_tree=np.array([values[f"fill.tree_{p}"] for p in _PROTOCOLS]),
        fill_nvls=values["fill.nvls"],
        fill_nvls_tree=values["fill.nvls_tree"],
    )


def read_values(path: Path = _FILE) -> dict[str, float]:
    """Return the constants of a file as the fit script writes it, by name, in its units."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries = data["constants"] | data["fixed"]
    return {name: float(entry["value"]) for name, entry in entries.items()}


@cache
def default_terms() -> Terms:
    """Return the constants that come with commsim."""
    return terms_of(read_values())


def _hops(us: Mapping[str, float]) -> Floats:
    nvlink = np.array([us[f"hop.nvlink_{p}"] for p in _PROTOCOLS])
    low, high = us["hop.host_LL"], us["hop.host_Simple"]
    return np.stack((nvlink, nvlink * _PCIE_HOPS, np.array([low, (low * high) ** 0.5, high])))


def _by_transport(values: Mapping[str, float]) -> Floats:
    return np.array([values.get(_ALIKE.get(t, t), 0.0) for t in TRANSPORTS])


def _link_shares(values: Mapping[str, float]) -> Floats:
    nvlink = np.array([values[f"rate.nvlink_{p}"] for p in _PROTOCOLS])
    return np.stack((nvlink, values["rate.pcie"] * _FRAMING, values["rate.shm"] * _FRAMING))


def _channel_rates(values: Mapping[str, float]) -> Floats:
    shares = np.array([values["rate.channel_LL"], values["rate.channel_LL128"], 1.0])
    simple = np.array([values[f"rate.channel_{g}"] for g in GENERATIONS]) * _GB
    return np.outer(simple, shares)


def _nic_shares(values: Mapping[str, float]) -> Floats:
    shares = dict.fromkeys(_FITTED_TRANSPORTS, values["rate.nic"])
    shares |= {"ib": values["rate.nic_ib"], "tcpx": values["rate.nic_tcpx"]}
    return np.outer(_by_transport(shares), _FRAMING)
