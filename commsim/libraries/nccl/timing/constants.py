"""
The constants of NCCL's time: `timing.yaml` as arrays that formulas can index.

Times are in seconds and rates in bytes/s here, in us and GB/s (1e9) in the file. Every constant
was fitted by `benchmarks/fit_nccl.py`, which writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np

from commsim.arrays import Floats
from commsim.libraries.nccl.shapes import Protocol
from commsim.yaml_file import read_own_yaml

__all__ = [
    "GENERATIONS",
    "TRANSPORTS",
    "Terms",
    "default_terms",
    "read_values",
    "terms_of",
    "usual_launch",
]


GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
"""GPU generations in NCCL's order; a GPU older than Volta counts as Volta."""
_CHANNELS = (
    "volta",
    "ampere",
    "hopper",
    "hopper",
)  # Blackwell's were fitted within 4 % of Hopper's
_NVLINK = ("ampere", "ampere", "hopper", "blackwell")
_WITH_NVLS = ("hopper", "hopper", "hopper", "blackwell")  # none before Hopper has it
_FITTED_TRANSPORTS = ("ib", "roce", "slingshot", "efa_v2", "efa_v1", "tcpxo", "tcpx", "tcp")
_SOFTWARE = MappingProxyType({"tcpx": "tcp"})  # one table: its latency is taken as TCP's
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


class Terms(msgspec.Struct, frozen=True, eq=False):
    """Constants by (generation,), (protocol,), (transport,) or (link kind, protocol).

    Latencies in seconds, rates in bytes/s, efficiencies and factors plain.
    """

    launch: float
    """Seconds from the call to the first message of a kernel."""
    launch_old: float
    """What of it NCCL before 2.12 takes, which prepares less."""
    launch_one_process: float
    """One process starts the kernels of its GPUs one after another: seconds for each GPU."""
    launch_channel: Floats
    """Seconds that NCCL needs to start each channel: from 2.12 on, and before."""
    hop: Floats
    """(nvlink, pcie, shm) x protocol."""
    net: Floats
    net_protocol: Floats
    skew: float
    ring_net: Floats
    """Per transport: a hop in a ring against one in a tree."""
    root: float
    root_rate: float
    fetch: float
    """Seconds in which a GPU fetches a line of LL from host memory."""
    rendezvous: Floats
    """Per transport: seconds more for a message beyond what it sends at once."""
    link: Floats
    """Generation x (nvlink, pcie, shm) x protocol: payload share of the links' capacity."""
    channel: Floats
    """Generation x protocol: bytes/s that one channel copies."""
    tree_far: float
    """What a channel copies in a tree over more than two domains, against a ring."""
    nic: Floats
    """Transport x protocol: payload share of the physical rate."""
    tcp: float
    """bytes/s that a node's TCP sockets carry at most."""
    tree_net: float
    collnet: float
    """Payload share of a NIC's rate when the network's switches add up."""
    nvls: float
    nvls_share: Floats
    """Per generation: payload share of NVLink's rate of what a switch adds up."""
    nvls_chunk: float
    """Seconds that a channel loses with each chunk that it takes to the switch."""
    nvls_tree: float
    """What a switch gives an NVLSTree, whose blocks serve the tree too, against NVLS."""
    staged: float
    """bytes/s of a node whose messages are staged through host memory."""
    exchange_net: Floats
    """Per transport: payload share that all-to-all and sends reach, against collectives."""
    exchange_near: float
    """Seconds for each peer of an all-to-all within the domain."""
    exchange_peer: Floats
    """Per transport: seconds for each peer beyond the domain."""
    pair_channel: float
    """bytes/s of a send between domains on each of its channels."""
    fill_ring: Floats
    """Per protocol."""
    fill_ring_net: float
    """Windows that each hop of a ring between domains holds back besides."""
    fill_chain: float
    fill_tree: Floats
    fill_exchange: float
    """Chunks of a message to one peer that fill its channels before the rest follows."""
    fill_nvls: float
    fill_nvls_tree: float


def terms_of(values: Mapping[str, float]) -> Terms:
    """Return the constants `values` (names and units as in `timing.yaml`) as arrays."""
    us = {name: value * _US for name, value in values.items()}
    return Terms(
        launch=us["launch.host"],
        launch_old=values["launch.old"],
        launch_one_process=us["launch.one_process"],
        launch_channel=np.array([us["launch.channel"], us["launch.old_channel"]]),
        hop=_hops(us),
        net=_by_transport({t: us[f"net.{_SOFTWARE.get(t, t)}"] for t in _FITTED_TRANSPORTS}),
        net_protocol=np.array([us[f"net.{p}"] for p in _PROTOCOLS]),
        skew=values["net.skew"],
        ring_net=_by_transport(
            dict.fromkeys(_FITTED_TRANSPORTS, 1.0) | {"slingshot": values["net.slingshot_ring"]}
        ),
        root=us["net.root"],
        root_rate=values["rate.root"],
        fetch=us["net.LL_line"],
        rendezvous=_by_transport({"slingshot": us["net.rendezvous"]}),
        link=_link_shares(values),
        channel=_channel_rates(values),
        tree_far=values["rate.tree_far"],
        nic=_nic_shares(values),
        tcp=values["rate.tcp_node"] * _GB,
        tree_net=values["rate.tree_net"],
        collnet=values["rate.collnet"],
        nvls=us["nvls.latency"],
        nvls_share=np.array([values[f"rate.nvls_{g}"] for g in _WITH_NVLS]),
        nvls_chunk=us["nvls.chunk"],
        nvls_tree=values["rate.nvls_tree"],
        staged=values["rate.staged_node"] * _GB,
        exchange_net=_by_transport(
            dict.fromkeys(_FITTED_TRANSPORTS, 1.0) | {"slingshot": values["exchange.slingshot"]}
        ),
        exchange_near=us["exchange.near"],
        exchange_peer=_by_transport(
            dict.fromkeys(_FITTED_TRANSPORTS, us["exchange.peer"])
            | {"slingshot": us["exchange.peer_slingshot"]}
        ),
        pair_channel=values["rate.pair_channel"] * _GB,
        fill_ring=_fills(values, "ring", "lines", "lines"),
        fill_ring_net=values["fill.ring_net"],
        fill_chain=values["fill.chain"],
        fill_tree=_fills(values, "tree", "LL", "LL128"),
        fill_exchange=values["fill.exchange"],
        fill_nvls=values["fill.nvls"],
        fill_nvls_tree=values["fill.nvls_tree"],
    )


def read_values(path: Path = _FILE) -> dict[str, float]:
    """Return the constants of a file as the fit script writes it, by name, in its units."""
    data = read_own_yaml(path)
    entries = data["constants"] | data["fixed"]
    return {name: float(entry["value"]) for name, entry in entries.items()}


@cache
def default_terms() -> Terms:
    """Return the constants that come with commsim."""
    return terms_of(read_values())


def usual_launch(*, old: bool = False) -> float:
    """Return the seconds that a host takes to launch if no cluster says it; `old`: before 2.12."""
    terms = default_terms()
    return terms.launch * (terms.launch_old if old else 1.0)


def _hops(us: Mapping[str, float]) -> Floats:
    nvlink = np.array([us[f"hop.nvlink_{p}"] for p in _PROTOCOLS])
    low, high = us["hop.host_LL"], us["hop.host_Simple"]
    return np.stack((nvlink, nvlink * _PCIE_HOPS, np.array([low, (low * high) ** 0.5, high])))


def _fills(values: Mapping[str, float], shape: str, *lines: str) -> Floats:
    return np.array([values[f"fill.{shape}_{name}"] for name in (*lines, "Simple")])


def _by_transport(values: Mapping[str, float]) -> Floats:
    return np.array([values.get(_ALIKE.get(t, t), 0.0) for t in TRANSPORTS])


def _link_shares(values: Mapping[str, float]) -> Floats:
    framing = np.array([values["rate.nvlink_LL"], values["rate.nvlink_LL128"], 1.0])
    host = np.stack((values["rate.pcie"] * _FRAMING, values["rate.shm"] * _FRAMING))
    return np.stack([np.stack((values[f"rate.nvlink_{g}"] * framing, *host)) for g in _NVLINK])


def _channel_rates(values: Mapping[str, float]) -> Floats:
    shares = np.array([values["rate.channel_LL"], values["rate.channel_LL128"], 1.0])
    simple = np.array([values[f"rate.channel_{g}"] for g in _CHANNELS]) * _GB
    return np.outer(simple, shares)


def _nic_shares(values: Mapping[str, float]) -> Floats:
    shares = dict.fromkeys(_FITTED_TRANSPORTS, values["rate.nic"])
    shares |= {"ib": values["rate.nic_ib"], "tcpx": values["rate.nic_tcpx"]}
    return np.outer(_by_transport(shares), _FRAMING)
