"""
What is spoken over a node's NICs, over which medium, and whether it reaches GPU memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.cluster.nodes.node import NicSection, Transport
from commsim.cluster.nodes.reader import Reader

__all__ = ["RDMA", "reaches_gpus", "transport_of"]

_IB, _ETHERNET, _SLINGSHOT = "infiniband", "ethernet", "slingshot"
_MEDIA = MappingProxyType(
    {
        "ib": (_IB,),
        "roce": (_ETHERNET,),
        "efa_v1": (_ETHERNET,),
        "efa_v2": (_ETHERNET,),
        "efa_v3": (_ETHERNET,),
        "efa_v4": (_ETHERNET,),
        "slingshot": (_SLINGSHOT,),
        "tcpx": (_ETHERNET,),
        "tcpxo": (_ETHERNET,),
        "tcp": (_IB, _ETHERNET, _SLINGSHOT),
    }
)
RDMA: Mapping[str, Transport] = MappingProxyType(
    {_IB: "ib", _ETHERNET: "roce", _SLINGSHOT: "slingshot"}
)
_USUAL = MappingProxyType({_IB: "ib", _ETHERNET: "tcp", _SLINGSHOT: "slingshot"})


def transport_of(read: Reader, section: NicSection) -> str:
    """Return what is spoken over the NICs: stated, else the usual on their medium.

    On Ethernet that is TCP, but with GPUDirect it must be RDMA. Raises ScenarioError for one that
    the medium does not carry.
    """
    medium = section.medium or ""
    if section.transport is None:
        usual = RDMA[medium] if section.gdr else _USUAL[medium]
        read.taken.append(f"nic.transport ({usual})")
        return usual
    if medium not in _MEDIA[section.transport]:
        fitting = ", ".join(name for name, media in _MEDIA.items() if medium in media)
        raise read.place.error(
            "nic.transport",
            f"{section.transport} does not run over {medium}. Known: {fitting}.",
        )
    return section.transport


def reaches_gpus(read: Reader, section: NicSection, transport: str, gpu: GpuSpec) -> bool:
    """Return whether the NICs reach GPU memory. Raises ScenarioError if they cannot."""
    can = gpu.device == "cuda" and transport != "tcp"
    if section.gdr is None:
        if can:
            read.taken.append("nic.gdr (true)")
        return can
    if section.gdr and not can:
        why = "a CPU worker has no GPU memory" if transport != "tcp" else "TCP needs host memory"
        raise read.place.error("nic.gdr", f"true is impossible: {why}. Leave it out, or say false.")
    return section.gdr
