"""
How NCCL gets from device to device: type, bandwidth and links of each path it may use.

A breadth-first search from every CPU, GPU, NET and NVSwitch (better bandwidth first, then fewer
hops), then NCCL's corrections: peer-to-peer only up to a level, else through host memory;
C2C to the NIC; NICs reached through another GPU (PXN); and through the host if GPUDirect
RDMA does not work. Paths are directed.

Follows ncclTopoSetPaths, ncclTopoComputePaths, ncclTopoCheckP2p and ncclTopoCheckGdr
(src/graph/paths.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import CpuArch, CpuVendor, PathType
from commsim.libraries.nccl.topology.rules import Rules
from commsim.libraries.nccl.topology.system import (
    LOCAL_BANDWIDTH,
    DeviceKind,
    Link,
    System,
    TopologyDevice,
)

__all__ = ["NO_PATH", "Path", "Paths"]


class Path(msgspec.Struct, frozen=True):
    """One way: the ids of its links in order, its type, and the least bandwidth in MB/s."""

    type: PathType
    bandwidth: int
    links: tuple[int, ...]


NO_PATH = Path(PathType.DIS, 0, ())
_TARGETS = (DeviceKind.CPU, DeviceKind.GPU, DeviceKind.NET, DeviceKind.NVS)


class Paths:
    """All paths of a system under an environment; `between` gives one."""

    def __init__(self, system: System, knobs: Knobs, rules: Rules) -> None:
        self.system = system
        self.knobs = knobs
        self.rules = rules
        self._ends = [link.remote for link in system.links]
        self._near: dict[tuple[int, DeviceKind], list[TopologyDevice]] = {}
        self._to: dict[DeviceKind, list[list[Path]]] = {
            kind: [self._search(device) for device in system.of(kind)] for kind in _TARGETS
        }
        self._leave_peer_to_peer()
        self._direct = [list(row) for row in self._to[DeviceKind.NET]]
        self._take_c2c()
        self._reach_nets()

    def between(self, source: TopologyDevice, target: TopologyDevice) -> Path:
        """Return the path from a device to a CPU, GPU, NET or NVSwitch."""
        return self._to[target.kind][target.index][source.number_of_all]

    def direct_to_net(self, gpu: TopologyDevice, net: TopologyDevice) -> Path:
        """Return the path from a GPU to a NET before PXN and the host take its place."""
        return self._direct[net.index][gpu.number_of_all]

    def _set(self, source: TopologyDevice, target: TopologyDevice, path: Path) -> None:
        self._to[target.kind][target.index][source.number_of_all] = path
        self._near.clear()

    def ends(self, path: Path) -> list[TopologyDevice]:
        """Return the devices that a path comes through, its target last."""
        return [self._ends[link] for link in path.links]

    def _search(self, base: TopologyDevice) -> list[Path]:
        """Return the path from every device to `base`."""
        found = [NO_PATH] * sum(1 for _ in self.system.all())
        found[base.number_of_all] = Path(PathType.LOC, LOCAL_BANDWIDTH, ())
        front = [base]
        while front:
            following: dict[int, TopologyDevice] = {}
            for device in front:
                path = found[device.number_of_all]
                for link in device.links:
                    if self._widens(base, device, link, path, found):
                        following[link.remote.number_of_all] = link.remote
            front = list(following.values())
        return found

    def _widens(
        self,
        base: TopologyDevice,
        device: TopologyDevice,
        link: Link,
        path: Path,
        found: list[Path],
    ) -> bool:
        """Lead `link.remote` to `base` over this link, if that is better than what it has."""
        remote = link.remote
        # Paths do not cross GPUs, but for one over NVLink from GPU to GPU.
        if (
            device.kind == DeviceKind.GPU
            and device is not base
            and (
                self.knobs.nvb_disable
                or link.type != PathType.NVL
                or remote.kind != DeviceKind.GPU
                or len(path.links) > 1
            )
        ):
            return False
        known = found[remote.number_of_all]
        bandwidth = min(path.bandwidth, link.bandwidth)
        if (
            known.bandwidth and len(known.links) <= len(path.links)
        ) or known.bandwidth >= bandwidth:
            return False
        if link.reverse < 0:
            return False
        kind = _step_type(device, link, path)
        found[remote.number_of_all] = Path(
            max(path.type, kind), bandwidth, (link.reverse, *path.links)
        )
        return True

    def nearest_cpu(self, device: TopologyDevice) -> TopologyDevice | None:
        """Return the CPU with the fewest hops from a device."""
        hops = [(len(self.between(device, cpu).links), cpu) for cpu in self.system.cpus]
        reached = [(count, cpu) for count, cpu in hops if count]
        return min(reached, key=lambda pair: pair[0])[1] if reached else None

    def peer_to_peer(self, one: TopologyDevice, other: TopologyDevice) -> bool:
        """Say whether two GPUs may read each other's memory: near enough, by NCCL_P2P_LEVEL."""
        return self.between(one, other).type <= self._level()

    def _level(self) -> PathType:
        if self.knobs.p2p_disable:
            return PathType.LOC
        if self.knobs.p2p_level is not None:
            return self.knobs.p2p_level
        cpu = self.system.cpus[0]
        amd = cpu.arch == CpuArch.X86 and cpu.vendor == CpuVendor.AMD
        return PathType.SYS if amd and len(self.system.gpus) <= 2 else PathType.PXB

    def _leave_peer_to_peer(self) -> None:
        """Lead GPUs that are too far apart through the receiver's CPU (shared memory)."""
        gpus = self.system.gpus
        for target in gpus:
            for source in gpus:
                if self.peer_to_peer(source, target) or source.host != target.host:
                    continue
                cpu = self.nearest_cpu(target)
                if cpu is not None:
                    self._detour(source, cpu, target)

    def _detour(self, source: TopologyDevice, over: TopologyDevice, target: TopologyDevice) -> None:
        """Replace a path by one through a CPU, or through a GPU (PXN)."""
        first, second = self.between(source, over), self.between(over, target)
        kind = _merged(first.type, second.type, c2c=self.rules.c2c_to_nic)
        if over.kind == DeviceKind.GPU:
            kind = PathType.PXN
        rate = min(first.bandwidth, second.bandwidth)
        self._set(source, target, Path(kind, rate, first.links + second.links))

    def _take_c2c(self) -> None:
        """Call the way over C2C and the CPU to a GPU's nearest NICs by its own type."""
        if not self.rules.c2c_to_nic:
            return
        for gpu in self.system.gpus:
            cpu = self.nearest_cpu(gpu)
            for net in self.near(gpu, DeviceKind.NET) if cpu else ():
                if cpu is None:
                    continue
                ways = self.between(gpu, cpu).type, self.between(net, cpu).type
                if _merged(*ways, c2c=True) == PathType.P2C:
                    for a, b in ((gpu, net), (net, gpu)):
                        path = self.between(a, b)
                        kind = min(PathType.P2C, path.type)
                        self._set(a, b, Path(kind, path.bandwidth, path.links))

    def _reach_nets(self) -> None:
        """Use PXN if it helps, and the host if GPUDirect does not work."""
        for net in self.system.nets:
            for gpu in self.system.gpus:
                if not self.knobs.pxn_disable:
                    self._try_pxn(gpu, net)
                if self.between(gpu, net).type < PathType.PHB and not self.gdr(gpu, net):
                    cpu = self.nearest_cpu(gpu)
                    if cpu is not None:
                        self._detour(net, cpu, gpu)
                        self._detour(gpu, cpu, net)

    def _try_pxn(self, gpu: TopologyDevice, net: TopologyDevice) -> None:
        peer = self.near_gpu(net)
        if peer is None or peer is gpu or peer.host != gpu.host:
            return
        own, other = self.between(gpu, net), self.between(peer, net)
        if (
            other.type <= self.pxn_level
            and self.between(peer, gpu).type <= PathType.NVL
            and (other.bandwidth > own.bandwidth or own.type > PathType.PXN)
            and self.gdr(peer, net, read=True)
        ):
            self._detour(gpu, peer, net)

    @property
    def pxn_level(self) -> PathType:
        """How far the relaying GPU of PXN may be from its NIC."""
        asked = self.knobs.pxn_c2c
        c2c = self.rules.pxn_over_c2c if asked is None else asked
        return PathType.P2C if c2c else PathType.PXB

    def gdr(self, gpu: TopologyDevice, net: TopologyDevice, *, read: bool = False) -> bool:
        """Say whether a NIC moves a GPU's memory itself (GPUDirect RDMA); `read`: sends."""
        if not (net.gdr and gpu.gdr) or (read and not self._gdr_reads(gpu)):
            return False
        level = self.knobs.net_gdr_level
        if level is None:
            c2c = self.rules.c2c_to_nic and self.knobs.net_gdr_c2c is not False
            level = PathType.P2C if c2c else PathType.PXB
        path = self.between(gpu, net)
        if path.type == PathType.PXN:
            path = self.between(self.relay(gpu, net), net)
        return path.type <= level

    def _gdr_reads(self, gpu: TopologyDevice) -> bool:
        """Say whether NICs read a GPU's memory; before Ampere only if NVLink spares PCIe."""
        if self.knobs.net_gdr_read is not None:
            return self.knobs.net_gdr_read
        if gpu.capability >= 80 or len(self.system.gpus) == 1:
            return True
        return any(
            self.between(gpu, other).type == PathType.NVL
            for other in self.system.gpus
            if other is not gpu
        )

    def relay(self, gpu: TopologyDevice, net: TopologyDevice) -> TopologyDevice:
        """Return the GPU that hands data to a NET: the GPU itself, or PXN's."""
        path = self.between(gpu, net)
        if path.type != PathType.PXN:
            return gpu
        return next(end for end in self.ends(path) if end.kind == DeviceKind.GPU)

    def near(self, device: TopologyDevice, kind: DeviceKind) -> list[TopologyDevice]:
        """Return the devices of a kind with the widest paths from one, then the best type."""
        key = (device.number_of_all, kind)
        if key not in self._near:
            self._near[key] = self._nearest(device, kind)
        return self._near[key]

    def _nearest(self, device: TopologyDevice, kind: DeviceKind) -> list[TopologyDevice]:
        best: tuple[int, PathType] = (0, PathType.DIS)
        found: list[TopologyDevice] = []
        for other in self.system.of(kind):
            path = self.between(device, other)
            if path.bandwidth > best[0] or (path.bandwidth == best[0] and path.type < best[1]):
                best, found = (path.bandwidth, path.type), []
            if (path.bandwidth, path.type) == best:
                found.append(other)
        return found

    def near_net(self, gpu: TopologyDevice, channel: int) -> TopologyDevice | None:
        """Return the NET that a GPU uses for a channel.

        The nearest NETs are dealt to the GPUs that share them; a GPU starts at its own number,
        its bits mirrored if the count is a power of two, and takes turns by channel.
        """
        nets = self.near(gpu, DeviceKind.NET)
        if not nets:
            return None
        sharers = len(self.near(nets[0], DeviceKind.GPU))
        start = gpu.number % sharers if self.rules.number_among_sharers else gpu.number
        if len(nets) & (len(nets) - 1) == 0:
            start = _mirrored(start, len(nets))
        turn = channel % self._nets_per_gpu(len(nets), sharers)
        return nets[(start + turn) % len(nets)]

    @property
    def net_limit(self) -> int | None:
        """How many NETs NCCL_NETDEVS_POLICY allows a GPU; None if it does not say."""
        policy = self.knobs.netdevs_policy.upper()
        return int(policy[4:]) if policy.startswith("MAX:") else None

    def _nets_per_gpu(self, nets: int, sharers: int) -> int:
        if self.knobs.netdevs_policy.upper() == "ALL":
            return nets
        if self.net_limit is not None:
            return min(self.net_limit, nets)
        return -(-nets // sharers)

    def near_gpu(self, net: TopologyDevice) -> TopologyDevice | None:
        """Return the GPU that NCCL holds a NET for: the first near one that would choose it."""
        near = self.near(net, DeviceKind.GPU)
        turns = max(len(self.system.nets), 1)
        for channel in range(min(self.rules.max_channels, turns)):
            for gpu in near:
                if self.near_net(gpu, channel) is net:
                    return gpu
        return None

    def near_nets(self, gpu: TopologyDevice) -> list[TopologyDevice]:
        """Return the NETs that a GPU uses, in the order of its channels, each once."""
        turns: list[TopologyDevice] = []
        for channel in range(self.rules.max_channels):
            net = self.near_net(gpu, channel)
            if net is None or (turns and net is turns[0]):
                break
            turns.append(net)
        return turns

    def extremes(
        self, sources: Sequence[TopologyDevice], kind: DeviceKind
    ) -> tuple[PathType, PathType]:
        """Return the least and the greatest type of the paths to all (other) devices of a kind."""
        types = [
            self.between(source, target).type
            for source in sources
            for target in self.system.of(kind)
            if target is not source
        ]
        return min([PathType.SYS, *types]), max([PathType.LOC, *types])


def _step_type(device: TopologyDevice, link: Link, path: Path) -> PathType:
    """Return the type that one more link from `device` gives to a path."""
    kinds = device.kind, link.remote.kind
    if link.type == PathType.NET:
        return PathType.LOC
    if kinds == (DeviceKind.PCI, DeviceKind.PCI):
        return PathType.PXB
    if link.type == PathType.PIX and DeviceKind.CPU in kinds:
        return PathType.PHB
    over_gpu = device.kind == DeviceKind.GPU and link.type == path.type == PathType.NVL
    return PathType.NVB if over_gpu and path.links else link.type


def _merged(one: PathType, other: PathType, *, c2c: bool) -> PathType:
    """Return the type of two paths joined: the worse, but C2C and PCIe have one of their own."""
    if c2c and {one, other} == {PathType.C2C, PathType.PHB}:
        return PathType.P2C
    return max(one, other)


def _mirrored(value: int, power: int) -> int:
    """Return the low bits of a number in reverse; `power` is a power of two."""
    bits = power.bit_length() - 1
    return int(f"{value % power:0{bits}b}"[::-1] or "0", 2) if bits else 0
