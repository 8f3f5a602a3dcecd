"""
Bounds on the result of a search: the most channels, and the fewest hops.

Most searches of NCCL's first pass cannot improve what is found already, and only spend its budget.
They are run only if the budget that they use up changes a later result.
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import DeviceKind, Paths, TopologyDevice

__all__ = ["SearchBound"]


class SearchBound:
    """Bounds for the searches of one system; `inter`: channels go through the network."""

    def __init__(self, paths: Paths, *, inter: bool) -> None:
        system = paths.system
        self._inter = inter
        self._gpus = len(system.gpus)
        self._out = [[link.bandwidth for link in gpu.links] for gpu in system.gpus]
        self._nvlink = [
            [link.bandwidth for link in gpu.links if link.type == PathType.NVL]
            for gpu in system.gpus
        ]
        # The network enters a GPU over PCIe or C2C, never over NVLink from another GPU.
        self._from_host = [
            system.links[link.reverse].bandwidth
            for gpu in system.gpus
            for link in gpu.links
            if link.remote.kind in (DeviceKind.PCI, DeviceKind.CPU)
        ]
        self._ports: dict[tuple[int, int], int] = {}
        for net in system.nets:
            port = net.asic, net.port
            self._ports[port] = max(self._ports.get(port, 0), net.bandwidth)
        self._hop = _least(paths, system.gpus, system.of(DeviceKind.GPU))
        self._in = _least(paths, system.nets, system.of(DeviceKind.GPU))
        self._back = _least(paths, system.gpus, system.of(DeviceKind.NET))

    def can_improve(self, trial: Trial, best: Trial) -> bool:
        """Say whether a search may find something better; True if that is not known."""
        channels = self.channels(trial)
        if channels < trial.min_channels or channels == 0:
            return False
        if trial.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT):
            return True
        most, have = channels * trial.bw_intra, best.channels * best.bw_intra
        if most != have:
            return most > have
        comparable = trial.pattern == best.pattern and trial.cross_nic == best.cross_nic
        return comparable and channels * self._hops(trial.pattern) < best.hops

    def channels(self, trial: Trial) -> int:
        """Return how many channels there can be at most."""
        most = trial.max_channels
        whole = trial.bw_inter // 1000 * 1000
        if self._inter and whole:
            most = min(most, sum(rate // whole for rate in self._ports.values()))
            most = min(most, sum(rate // trial.bw_inter for rate in self._from_host))
        if self._gpus == 1 or trial.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT):
            return most
        return min(most, self._between_gpus(trial))

    def _between_gpus(self, trial: Trial) -> int:
        """Return how many channels the links out of the GPUs can take from GPU to GPU."""
        closes = trial.pattern == Pattern.RING and not self._inter
        # Paths up to NVB are NVLink alone.
        links = self._nvlink if trial.type_intra <= PathType.NVB else self._out
        leaving = [sum(rate // trial.bw_intra for rate in out) for out in links]
        return sum(leaving) // (self._gpus if closes else self._gpus - 1)

    def _hops(self, pattern: Pattern) -> int:
        """Return the fewest hops that a channel can take."""
        between = self._gpus - 1
        if not self._inter:
            return self._hop * (between + (pattern == Pattern.RING and self._gpus > 1))
        ends = 2 if pattern == Pattern.BALANCED_TREE else 1
        return self._hop * between + self._in + ends * self._back


def _least(
    paths: Paths, sources: Sequence[TopologyDevice], targets: Sequence[TopologyDevice]
) -> int:
    hops = [
        len(path.links)
        for source in sources
        for target in targets
        if source is not target and (path := paths.between(source, target)).links
    ]
    return min(hops, default=0)
