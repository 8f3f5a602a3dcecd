"""
From a node's NIC section to facts: whose NIC is whose, and on which rail.
"""

from __future__ import annotations

from commsim.cluster.nodes.gpus import GpuSpec
from commsim.cluster.nodes.node import NicSection
from commsim.cluster.nodes.reader import Reader, defaults
from commsim.cluster.nodes.spec import NicSpec
from commsim.cluster.nodes.transports import reaches_gpus, transport_of

__all__ = ["nic_spec"]

_MOST_PORTS = 4  # that NCCL merges: NCCL_NET_MAX_DEVS_PER_NIC


def nic_spec(read: Reader, own: NicSection | None, *, gpu: GpuSpec, gpus: int) -> NicSpec | None:
    """Return the NICs of a node. Raises ScenarioError for impossible ones."""
    if own is None:
        return None
    section = read.filled(own, defaults().nic, "nic", ("efficiency", "latency", "medium"))
    count = read.count(section.count, "nic.count")
    transport = transport_of(read, section)
    return NicSpec(
        count=count,
        wire=read.wire(section, "nic"),
        medium=section.medium or "",
        transport=transport,
        gdr=reaches_gpus(read, section, transport, gpu),
        model=section.model or "",
        rails=_rails(read, section, count),
        own=_listed(read, section, gpus, count) or _dealt(read, gpus, count),
        listed=section.gpu_to_nic is not None,
        ports=_ports(read, section),
    )


def _ports(read: Reader, section: NicSection) -> int:
    ports = 1 if section.ports is None else section.ports
    if not 1 <= ports <= _MOST_PORTS:
        raise read.place.error("nic.ports", f"{ports}: a NIC has 1 to {_MOST_PORTS} ports.")
    return ports


def _rails(read: Reader, section: NicSection, count: int) -> tuple[int, ...]:
    if section.rails is None:
        return tuple(range(count))
    if len(section.rails) != count or min(section.rails) < 0:
        raise read.place.error(
            "nic.rails", f"{list(section.rails)} must give each of {count} NICs a rail from 0 on."
        )
    return section.rails


def _listed(
    read: Reader, section: NicSection, gpus: int, count: int
) -> tuple[tuple[int, ...], ...] | None:
    """Return the NICs that the user lists for each GPU, None if nothing is listed."""
    if section.gpu_to_nic is None:
        return None
    lists = tuple(nics if isinstance(nics, tuple) else (nics,) for nics in section.gpu_to_nic)
    if len(lists) != gpus:
        raise read.place.error(
            "nic.gpu_to_nic", f"has {len(lists)} entries for {gpus} GPUs. Give one per GPU."
        )
    for gpu, nics in enumerate(lists):
        if not nics or len(dict.fromkeys(nics)) < len(nics) or not set(nics) <= set(range(count)):
            raise read.place.error(
                "nic.gpu_to_nic",
                f"GPU {gpu} gets {list(nics)}: give one NIC, or several different ones, from 0 to"
                f" {count - 1}.",
            )
    return lists


def _dealt(read: Reader, gpus: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Return the NICs dealt to the GPUs evenly and in order."""
    if gpus % count and count % gpus:
        divisors = ", ".join(str(d) for d in range(1, gpus + 1) if gpus % d == 0)
        raise read.place.error(
            "nic.count",
            f"{count} NICs do not divide {gpus} GPUs evenly."
            f" Give a divisor of {gpus} ({divisors}), or list gpu_to_nic explicitly.",
        )
    if count <= gpus:
        return tuple((gpu * count // gpus,) for gpu in range(gpus))
    each = count // gpus
    return tuple(tuple(range(gpu * each, (gpu + 1) * each)) for gpu in range(gpus))
