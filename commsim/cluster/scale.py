"""
Factors on what a cluster has: what if its NICs were twice as fast, its memory half as fast?

    cluster: {preset: dgx-h100, nodes: 8, scale: {nic: 2, nvlink_latency: 0.5}}

Everything else stays: a factor is a question, `overrides` describe hardware that exists.
"""

from __future__ import annotations

from types import MappingProxyType

from msgspec.structs import replace

from commsim.cluster.nodes import NodeSpec, Wire, field_path
from commsim.errors import ScenarioError
from commsim.sections import Section

__all__ = ["ScaleSection", "check_scale", "scaled"]

_MOST = 1e6


class ScaleSection(Section, frozen=True):
    """Factors; 1 leaves things as they are. Those of latencies and `compute` are of their kind.

    Bandwidths: `nic` (of each NIC, and with it of the fabric above), `uplinks` (between the
    switches alone: 0.5 is twice the oversubscription), `nvlink`, `pcie` (slots, switches, C2C),
    `host_memory` (and the link between sockets), `hbm`. `compute`: FLOP/s. `gpu_memory`: bytes.
    `network_latency`, `nvlink_latency`: times, so 0.5 is better.
    """

    nic: float = 1.0
    uplinks: float = 1.0
    nvlink: float = 1.0
    pcie: float = 1.0
    host_memory: float = 1.0
    hbm: float = 1.0
    compute: float = 1.0
    gpu_memory: float = 1.0
    network_latency: float = 1.0
    nvlink_latency: float = 1.0


def check_scale(scale: ScaleSection, where: str, path: str) -> None:
    """Refuse factors that are none. Raises ScenarioError."""
    for name in scale.__struct_fields__:
        value = getattr(scale, name)
        if not 1 / _MOST <= value <= _MOST:
            raise ScenarioError(
                f"{where}: {field_path(path, 'scale')}.{name}: {value:g} is no factor. Give a"
                " number above zero, like 2 for twice."
            )


def scaled(spec: NodeSpec, scale: ScaleSection) -> NodeSpec:
    """Return a node with the factors applied."""
    nic, cpu, gpu, pcie = spec.nic, spec.cpu, spec.gpu, spec.pcie
    if nic is not None:
        nic = replace(nic, wire=_wire(nic.wire, scale.nic, scale.network_latency))
    if cpu.memory is not None:
        cpu = replace(cpu, memory=_wire(cpu.memory, scale.host_memory))
    switches = tuple(replace(one, bandwidth=one.bandwidth * scale.pcie) for one in pcie.switches)
    return replace(
        spec,
        nic=nic,
        cpu=cpu,
        gpu=replace(
            gpu,
            tflops=MappingProxyType({p: f * scale.compute for p, f in gpu.tflops.items()}),
            memory_bandwidth=gpu.memory_bandwidth * scale.hbm,
            memory_bytes=round(gpu.memory_bytes * scale.gpu_memory),
        ),
        pcie=replace(pcie, bandwidth=pcie.bandwidth * scale.pcie, switches=switches),
        memory_bandwidth=spec.memory_bandwidth * scale.host_memory,
        socket_link=_wire(spec.socket_link, scale.host_memory),
        nvlink=_maybe(spec.nvlink, scale.nvlink, scale.nvlink_latency),
        switch=_maybe(spec.switch, scale.nvlink, scale.nvlink_latency),
        c2c=_maybe(spec.c2c, scale.pcie),
    )


def _maybe(wire: Wire | None, bandwidth: float, latency: float = 1.0) -> Wire | None:
    return None if wire is None else _wire(wire, bandwidth, latency)


def _wire(wire: Wire, bandwidth: float, latency: float = 1.0) -> Wire:
    return replace(
        wire, bandwidth=wire.bandwidth * bandwidth, latency=round(wire.latency * latency)
    )
