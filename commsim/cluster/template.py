"""
One kind of node, laid out once: its links with local ids, and the routes within it.

The devices of a node form a tree (GPU or NIC, PCIe switches, CPU socket) with the sockets
joined pairwise at its top; NVLink lies next to it. So the route between two devices is: up from
the one to where the two branches meet, and down to the other. The memory of a socket is one
link, for both reads and writes: they share its bandwidth.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.cluster.nodes import NodeSpec, PcieSpec, Wire
from commsim.cluster.routes import NOWHERE, LinkRows, Route

__all__ = ["Template"]


class _Branch(NamedTuple):
    """How a device hangs on the one above it: link ids up and down."""

    above: str
    up: int
    down: int


class Template:
    """The links of a node and the routes over them; ids count from 0 within the node."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.rows = LinkRows()
        self.kind_of: dict[str, str] = {}
        self._branch: dict[str, _Branch] = {}
        self._nearest: dict[int, tuple[int, ...]] = {}  # NICs by GPU
        self._cross: dict[tuple[str, str], int] = {}
        self._nvlink: dict[tuple[int, int], int] = {}
        self._ports: list[int] = []
        self._memory: list[int] = []
        self._add_sockets(spec)
        self._add_switches(spec.pcie)
        self._add_gpus(spec)
        self._add_nics(spec)
        self._add_nvlink(spec)
        self._add_memory(spec)

    def _vertex(self, name: str, kind: str) -> str:
        self.kind_of[name] = kind
        return name

    def _add_sockets(self, spec: NodeSpec) -> None:
        sockets = [self._vertex(f"cpu{s}", "cpu") for s in range(spec.sockets)]
        for i, a in enumerate(sockets):
            for b in sockets[i + 1 :]:
                self._cross[a, b] = self._both(a, b, "cpu", spec.socket_link)
                self._cross[b, a] = self._cross[a, b] + 1

    def _add_switches(self, pcie: PcieSpec) -> None:
        for index, switch in enumerate(pcie.switches):
            name = self._vertex(f"pcie{index}", "pcie")
            above = f"cpu{switch.socket}" if switch.under < 0 else f"pcie{switch.under}"
            self._hang(name, above, self._slot(pcie, name, above, switch.bandwidth))

    def _add_gpus(self, spec: NodeSpec) -> None:
        switch_of = {g: i for i, s in enumerate(spec.pcie.switches) for g in s.gpus}
        for gpu in range(spec.gpus):
            name = self._vertex(f"gpu{gpu}", "gpu")
            socket = f"cpu{spec.gpu_socket[gpu]}"
            if spec.gpu.device == "cpu":
                # A CPU worker hands data over through memory: no wire, so no latency of one.
                self._hang(name, socket, Wire(spec.memory_bandwidth, 1.0, 0), kind="cpu")
            elif spec.c2c is not None:
                self._hang(name, socket, spec.c2c, kind="c2c")
            else:
                above = f"pcie{switch_of[gpu]}" if gpu in switch_of else socket
                self._hang(name, above, self._slot(spec.pcie, name, above))

    def _add_nics(self, spec: NodeSpec) -> None:
        if spec.nic is None:
            return
        switch_of = {n: i for i, s in enumerate(spec.pcie.switches) for n in s.nics}
        for nic in range(spec.nic.count):
            name = self._vertex(self._nic(nic), "nic")
            above = f"pcie{switch_of[nic]}" if nic in switch_of else f"cpu{spec.nic_socket[nic]}"
            self._hang(name, above, self._slot(spec.pcie, name, above))

    def _add_nvlink(self, spec: NodeSpec) -> None:
        if spec.switch is not None:
            switch = self._vertex("nvswitch", "nvswitch")
            self._ports = [
                self._both(f"gpu{gpu}", switch, "nvlink", spec.switch) for gpu in range(spec.gpus)
            ]
        for a, row in enumerate(spec.mesh):
            for b, count in enumerate(row[:a]):
                if count and spec.nvlink is not None:
                    one = spec.nvlink
                    wire = Wire(one.bandwidth * count, one.efficiency, one.latency)
                    self._nvlink[b, a] = self._both(f"gpu{b}", f"gpu{a}", "nvlink", wire)
                    self._nvlink[a, b] = self._nvlink[b, a] + 1

    def _add_memory(self, spec: NodeSpec) -> None:
        if spec.cpu.memory is None:
            return
        for socket in range(spec.sockets):
            name = self._vertex(f"mem{socket}", "memory")
            self._memory.append(self.rows.one(f"cpu{socket}", name, "memory", spec.cpu.memory))

    def _slot(self, pcie: PcieSpec, a: str, b: str, bandwidth: float | None = None) -> Wire:
        """Return a PCIe link: half the delay of passing a device counts at each of its sides."""
        passing = {"pcie": pcie.switch_latency, "cpu": pcie.root_latency}
        halves = sum(passing.get(self.kind_of[end], 0) for end in (a, b)) // 2
        rate = pcie.bandwidth if bandwidth is None else bandwidth
        return Wire(rate, pcie.efficiency, pcie.link_latency + halves)

    def _hang(self, name: str, above: str, wire: Wire, *, kind: str = "pcie") -> None:
        up = self._both(name, above, kind, wire)
        self._branch[name] = _Branch(above, up, up + 1)

    def _both(self, a: str, b: str, kind: str, wire: Wire) -> int:
        return self.rows.both(
            a,
            b,
            kind=kind,
            bandwidth=wire.bandwidth,
            efficiency=wire.efficiency,
            latency=wire.latency,
        )

    def children(self, above: str) -> list[str]:
        """Return what hangs directly on a socket or a PCIe switch, in order of creation."""
        return [name for name, branch in self._branch.items() if branch.above == above]

    def full_name(self, vertex: str, node: int, domain: int) -> str:
        """Return what a vertex is called in the cluster: an NVSwitch may be the whole domain's."""
        return f"domain{domain}/{vertex}" if self.is_shared(vertex) else f"node{node}/{vertex}"

    def is_shared(self, vertex: str) -> bool:
        """Return whether a vertex is one for all nodes of the NVLink domain."""
        return vertex == "nvswitch" and self.spec.domain_nodes > 1

    def local_route(self, a: int, b: int) -> Route:
        """Return the route from GPU to GPU: NVLink, else PCIe, else through the host."""
        if a == b:
            return NOWHERE
        if self._ports:
            return self.to_switch(a) + self.from_switch(b)
        if (a, b) in self._nvlink:
            return self._route([self._nvlink[a, b]])
        if self.spec.pcie.p2p or self.spec.gpu.device == "cpu":
            return self.tree_route(f"gpu{a}", f"gpu{b}")
        return self.staged_route(a, b)

    def to_switch(self, gpu: int) -> Route:
        """Return the route from a GPU to the NVSwitch."""
        return self._route([self._ports[gpu]])

    def from_switch(self, gpu: int) -> Route:
        """Return the route from the NVSwitch to a GPU."""
        return self._route([self._ports[gpu] + 1])

    def staged_route(self, a: int, b: int) -> Route:
        """Return the route from GPU to GPU through the memory of the second one's socket."""
        socket = self.socket_of(b)
        return self._to_memory(f"gpu{a}", socket) + self._from_memory(socket, f"gpu{b}")

    def to_host(self, gpu: int) -> Route:
        """Return the route from a GPU to its socket's memory."""
        return self._to_memory(f"gpu{gpu}", self.socket_of(gpu))

    def from_host(self, gpu: int) -> Route:
        """Return the route from the memory of a GPU's socket to the GPU."""
        return self._from_memory(self.socket_of(gpu), f"gpu{gpu}")

    def to_nic(self, gpu: int, nic: int) -> Route:
        """Return the route from a GPU to a NIC, by PCIe."""
        return self.tree_route(f"gpu{gpu}", self._nic(nic))

    def from_nic(self, gpu: int, nic: int) -> Route:
        """Return the route from a NIC to a GPU, by PCIe."""
        return self.tree_route(self._nic(nic), f"gpu{gpu}")

    def host_to_nic(self, gpu: int, nic: int) -> Route:
        """Return the route from the memory of a GPU's socket to a NIC."""
        return self._from_memory(self.socket_of(gpu), self._nic(nic))

    def nic_to_host(self, gpu: int, nic: int) -> Route:
        """Return the route from a NIC to the memory of a GPU's socket."""
        return self._to_memory(self._nic(nic), self.socket_of(gpu))

    def host_to_host(self, a: int, b: int) -> Route:
        """Return the route from the memory of GPU a's socket to that of GPU b's: a copy, if one."""
        source, target = self.socket_of(a), self.socket_of(b)
        return self._from_memory(source, f"cpu{source}") + self._to_memory(f"cpu{source}", target)

    def socket_of(self, gpu: int) -> int:
        """Return the socket that a GPU hangs on, however many switches lie between."""
        return int(self._line(f"gpu{gpu}")[-1].removeprefix("cpu"))

    def _to_memory(self, device: str, socket: int) -> Route:
        return self.tree_route(device, f"cpu{socket}") + self._route(self._memory[socket:][:1])

    def _from_memory(self, socket: int, device: str) -> Route:
        return self._route(self._memory[socket:][:1]) + self.tree_route(f"cpu{socket}", device)

    def tree_route(self, a: str, b: str) -> Route:
        """Return the route between two devices by the PCIe tree and the sockets."""
        above_a, above_b = self._line(a), self._line(b)
        while len(above_a) > 1 and len(above_b) > 1 and above_a[-2] == above_b[-2]:
            above_a.pop()
            above_b.pop()
        links = [self._branch[name].up for name in above_a[:-1]]
        if above_a[-1] != above_b[-1]:
            links.append(self._cross[above_a[-1], above_b[-1]])
        links += [self._branch[name].down for name in reversed(above_b[:-1])]
        return self._route(links)

    def _line(self, name: str) -> list[str]:
        """Return a device and all above it, up to its socket."""
        line = [name]
        while line[-1] in self._branch:
            line.append(self._branch[line[-1]].above)
        return line

    def _route(self, links: list[int]) -> Route:
        latency = sum(self.rows.latency[link] for link in links)
        return Route(tuple(links), (1.0,) * len(links), tuple(range(len(links))), latency)

    def nics_of(self, gpu: int) -> tuple[int, ...]:
        """Return the node's NICs, nearest to a GPU first; those that the user listed lead.

        Nearest: under one PCIe switch, several, the same socket, another one. Ties go to the
        NIC dealt to the GPU (its rail), then to the lower number.
        """
        if gpu not in self._nearest:
            self._nearest[gpu] = self._by_distance(gpu)
        return self._nearest[gpu]

    def _by_distance(self, gpu: int) -> tuple[int, ...]:
        nic = self.spec.nic
        if nic is None:
            return ()
        own = frozenset(nic.own[gpu])
        above = [self._branch[self._nic(n)].above for n in range(nic.count)]
        far = {name: self._distance(gpu, name) for name in dict.fromkeys(above)}
        rest = sorted(range(nic.count), key=lambda n: (far[above[n]], n not in own, n))
        if not nic.listed:
            return tuple(rest)
        return nic.own[gpu] + tuple(n for n in rest if n not in own)

    def host_nics_of(self, gpu: int) -> tuple[int, ...]:
        """Return the node's NICs, nearest to the memory of a GPU's socket first.

        Ties go to the NIC dealt to the GPU, then to the lower number.
        """
        nic = self.spec.nic
        if nic is None:
            return ()
        own, socket = frozenset(nic.own[gpu]), f"cpu{self.socket_of(gpu)}"
        above = [self._branch[self._nic(n)].above for n in range(nic.count)]
        off = {name: self._line(name)[-1] != socket for name in dict.fromkeys(above)}
        return tuple(sorted(range(nic.count), key=lambda n: (off[above[n]], n not in own, n)))

    def _nic(self, nic: int) -> str:
        """Return the vertex of a NIC: it keeps its name where others are gone."""
        assert self.spec.nic is not None
        return f"nic{self.spec.nic.number(nic)}"

    def _distance(self, gpu: int, above: str) -> int:
        """Return how far from a GPU a NIC is that hangs on `above`, a PCIe switch or a socket."""
        a, b = self._line(f"gpu{gpu}"), self._line(above)
        if a[-1] != b[-1]:
            return 3
        common = [name for name in a if name in b and self.kind_of[name] == "pcie"]
        if not common:
            return 2
        return 0 if a[1] == above else 1
