"""
One node of a group as NCCL sees it: what its ranks detect and search before ncclCommInit's
exchange with the other nodes.

A node here is an NVLink domain, or a part of one: where two GPUs can reach each other neither
directly nor through host memory, or the network is faster than both ways, NCCL treats them as
on different nodes.

Follows ncclTopoTrimSystem (src/graph/paths.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

import msgspec

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search import limits, search_all
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType, SearchGraph
from commsim.libraries.nccl.topology import (
    DeviceKind,
    Element,
    Paths,
    Rules,
    TopologyDevice,
    system_of,
)

__all__ = ["NodeView", "parts", "view"]


class NodeView(msgspec.Struct, frozen=True, eq=False):
    """What a node is and has found. GPUs and NETs by index; bandwidths in GB/s.

    `ranks[i]` is the rank of GPU i in the topology file, `nets[i]` the (machine, number) of NET
    i, `relays[g][n]` the GPU that hands g's data to NET n.
    """

    graphs: Mapping[str, SearchGraph]
    ranks: tuple[int, ...]
    nets: tuple[tuple[int, int], ...]
    relays: tuple[tuple[int, ...], ...]
    capability: tuple[int, int]
    cpu_arch: CpuArch
    cpu_vendor: CpuVendor
    nvswitch: bool
    max_bw: float
    total_bw: float
    net_bandwidth: float
    local_nets: int
    peer_nvlinks: int
    gdr: bool
    peer_access: bool
    notes: tuple[str, ...]


def parts(root: Element, source: str, rules: Rules, knobs: Knobs) -> list[tuple[int, ...]]:
    """Return the ranks of a domain, as NCCL divides them into nodes."""
    system = system_of(root, source, rules)
    paths = Paths(system, knobs, rules)
    gpus = list(system.gpus)
    part = list(range(len(gpus)))
    for index, gpu in enumerate(gpus):
        for before in range(index):
            if _connected(paths, gpu, gpus[before]):
                part[index] = min(part[index], part[before])
    return [
        tuple(gpu.rank for gpu, own in zip(gpus, part, strict=True) if own == number)
        for number in dict.fromkeys(part)
    ]


def _connected(paths: Paths, one: TopologyDevice, other: TopologyDevice) -> bool:
    """Say whether two GPUs connect within the node: directly, or through shared memory."""
    if paths.between(one, other).type >= PathType.DIS or _faster_by_net(paths, one, other):
        return False
    if paths.peer_to_peer(one, other):
        return True
    return not paths.knobs.shm_disable and one.host == other.host


def _faster_by_net(paths: Paths, one: TopologyDevice, other: TopologyDevice) -> bool:
    """Say whether both GPUs reach a NIC near them faster than each other."""
    if paths.knobs.net_disable_intra:
        return False
    local = paths.between(one, other).bandwidth
    return all(_net_rate(paths, gpu) > local for gpu in (one, other))


def _net_rate(paths: Paths, gpu: TopologyDevice) -> int:
    ways = [paths.direct_to_net(gpu, net) for net in paths.system.nets]
    return max((way.bandwidth for way in ways if way.type <= PathType.PXB), default=0)


def view(
    root: Element, source: str, rules: Rules, knobs: Knobs, *, ranks: Collection[int], inter: bool
) -> NodeView:
    """Return what these ranks of a domain find; `inter`: the group has others too."""
    system = system_of(root, source, rules, ranks=ranks, nets=inter)
    paths = Paths(system, knobs, rules)
    gpus, nets, notes = list(system.gpus), list(system.nets), list(system.notes)
    if inter and not nets:
        notes.append(f"{source}: no NIC, but the group goes beyond the node.")
    nvls = bool(knobs.nvls_enable) and len(gpus) >= rules.nvls_min_gpus
    collnet = bool(knobs.collnet_enable) and inter and any(net.in_network for net in nets)
    graphs = search_all(paths, inter=inter, nvls=nvls, collnet=collnet)
    max_bw, total_bw = limits(paths, inter=inter)
    return NodeView(
        graphs=graphs,
        ranks=tuple(gpu.rank for gpu in gpus),
        nets=tuple((net.host, net.number) for net in nets),
        relays=tuple(tuple(paths.relay(gpu, net).index for net in nets) for gpu in gpus),
        capability=system.capability,
        cpu_arch=system.cpus[0].arch,
        cpu_vendor=system.cpus[0].vendor,
        nvswitch=bool(system.of(DeviceKind.NVS)),
        max_bw=max_bw / 1000,
        total_bw=total_bw / 1000,
        net_bandwidth=min((_least_net(paths, gpu) for gpu in gpus), default=0) / 1000,
        local_nets=min((_filled_nets(paths, gpu) for gpu in gpus), default=0),
        peer_nvlinks=_peer_nvlinks(paths, rules),
        gdr=all(paths.gdr(gpu, net) for gpu in gpus for net in paths.near_nets(gpu)),
        peer_access=_peer_access(paths, graphs["ring"]),
        notes=tuple(notes),
    )


def _peer_access(paths: Paths, ring: SearchGraph) -> bool:
    """Say whether all neighbours on a node's rings read and write each other's memory."""
    gpus = paths.system.gpus
    pairs = {pair for channel in ring.channels for pair in pairwise(channel.intra)}
    return all(paths.peer_to_peer(gpus[a], gpus[b]) for a, b in pairs)


def _least_net(paths: Paths, gpu: TopologyDevice) -> int:
    nets = paths.near_nets(gpu)
    return min((paths.between(gpu, net).bandwidth for net in nets), default=0)


def _filled_nets(paths: Paths, gpu: TopologyDevice) -> int:
    """Return how many of its NETs a GPU can feed over its own link to the CPU."""
    cpu, count, total = paths.nearest_cpu(gpu), 0, 0
    own = paths.between(gpu, cpu).bandwidth if cpu is not None else 0
    for net in paths.near_nets(gpu):
        if count and total >= own:
            break
        total += paths.between(gpu, net).bandwidth
        count += 1
    return count


def _peer_nvlinks(paths: Paths, rules: Rules) -> int:
    """Return the NVLinks of the slowest pair of GPUs, one at least; 0 if a pair has none."""
    worth = []
    gpus = paths.system.gpus
    for one in gpus:
        for other in gpus:
            path = paths.between(one, other)
            if one is other:
                continue
            if path.type > PathType.C2C:
                return 0
            link = rules.nvlink_bandwidth(one.capability)
            worth.append(max(1, path.bandwidth // link) if path.type == PathType.NVL else 1)
    return min(worth, default=0)
