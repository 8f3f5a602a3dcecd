"""
A node as facts: every value there, checked, counted, and the defaults it took named.
"""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from commsim.cluster.nodes.gpus import GpuSpec, gpu_spec
from commsim.cluster.nodes.nic_spec import nic_spec
from commsim.cluster.nodes.node import CpuSection, GpuSection, NodeSection
from commsim.cluster.nodes.nvlink_spec import c2c_wire, nvlink_spec
from commsim.cluster.nodes.pcie_spec import pcie_spec
from commsim.cluster.nodes.place import NodePlace
from commsim.cluster.nodes.reader import Reader, defaults
from commsim.cluster.nodes.spec import CpuSpec, NodeSpec, Wire
from commsim.errors import ScenarioError
from commsim.units import format_bandwidth

__all__ = ["node_spec"]

_MAX_SOCKETS = 64  # each two are joined, so links grow with the square
_MOST_TFLOPS = 1e6  # the fastest of the table does 1.5e4 (B300, fp4)
_FAR_OFF = 20.0  # times: a node draws one to three times what its GPUs do
_WHOLE_NODE = 16
_FASTEST_NIC = 200e9  # bytes/s: 1.6 Tb/s
_STATED = "stated in the cluster's description"
_ARCH = MappingProxyType(
    {"intel": "x86_64", "amd": "x86_64", "zhaoxin": "x86_64", "arm": "arm64", "ibm": "ppc64"}
)


def node_spec(node: NodeSection, place: NodePlace, *, name: str = "") -> NodeSpec:
    """Return the facts of a node.

    Raises:
        ScenarioError: something is missing, impossible or contradicts itself; names the field.
    """
    read, name = Reader(place), name or node.name or "node"
    section = read.need(node.gpu, "gpu")
    gpus = read.count(section.count, "gpu.count")
    gpu = _gpu(read, section)
    cpu = _cpu(read, node.cpu, is_worker=gpu.device == "cpu")
    sockets = read.count(cpu.sockets, "cpu.sockets")
    if sockets > _MAX_SOCKETS:
        raise place.error("cpu.sockets", f"{sockets} are more than {_MAX_SOCKETS}.")
    nic = nic_spec(read, node.nic, gpu=gpu, gpus=gpus)
    nics = nic.count if nic else 0
    nvlink = nvlink_spec(read, node.nvlink, gpu=gpu, gpus=gpus)
    _check_watts(read, node, gpu, gpus)
    spec = NodeSpec(
        name=name,
        gpu=gpu,
        gpus=gpus,
        cpu=_cpu_spec(read, cpu),
        sockets=sockets,
        socket_link=read.wire(cpu, "cpu") if sockets > 1 else Wire(0.0, 1.0, 0),
        memory_bandwidth=float(cpu.memory_bandwidth or 0.0),
        gpu_socket=_sockets_of(read, "cpu.gpus", cpu.gpus, gpus, sockets),
        nic_socket=_sockets_of(read, "cpu.nics", cpu.nics, nics, sockets),
        pcie=pcie_spec(read, node.pcie, gpu=gpu, gpus=gpus, nics=nics, sockets=sockets),
        nvlink=nvlink.link,
        mesh=nvlink.mesh,
        switch=nvlink.port,
        switch_links=nvlink.port_links,
        domain_nodes=nvlink.domain_nodes,
        c2c=c2c_wire(read, node.c2c),
        nic=nic,
        launch=_launch(node),
        power=node.power,
        notes=(),
    )
    notes = _warnings(name, spec)
    if read.taken:
        notes.append(f"node {name}: taken by default: {', '.join(read.taken)}.")
    return msgspec.structs.replace(spec, notes=tuple(notes))


def _launch(node: NodeSection) -> int | None:
    return None if node.host is None or node.host.launch is None else int(node.host.launch)


def _check_watts(read: Reader, node: NodeSection, gpu: GpuSpec, gpus: int) -> None:
    """Refuse a power that is none, or that only kilowatts or milliwatts could be."""
    if node.power is None:
        return
    watts, usual = node.power.watts, (gpu.power_w or 0.0) * gpus
    if not watts > 0:
        raise read.place.error("power.watts", f"{watts:g} is not above zero.")
    factor = 1000 if watts * _FAR_OFF < usual else 1 / 1000
    most = (gpu.power_w or 0.0) * max(gpus, _WHOLE_NODE)  # a few of a node's GPUs may be asked for
    if usual and not usual / _FAR_OFF <= watts <= most * _FAR_OFF:
        raise read.place.error(
            "power.watts",
            f"{watts:g} W is far from what {gpus} x {gpu.name} draw ({usual:g} W). The unit is"
            f" watts: did you mean {watts * factor:g}?",
        )


def _warnings(name: str, spec: NodeSpec) -> list[str]:
    """Say which rates are beyond what is built, as bytes for bits make them, and which do not come
    through: a NIC is no faster than its slot.
    """
    if spec.nic is None:
        return []
    wire, pcie = spec.nic.wire, spec.pcie
    rate, slot, found = wire.bandwidth, pcie.bandwidth * pcie.efficiency, []
    if rate > _FASTEST_NIC:
        found.append(
            f"node {name}: nic.bandwidth is {rate * 8 / 1e9:g} Gbps, more than any NIC has: is it"
            f" {rate / 1e9:g}Gbps, bits for bytes?"
        )
    if rate * wire.efficiency > slot:
        found.append(
            f"node {name}: its PCIe slot bounds a NIC: {format_bandwidth(slot)} of payload (pcie:"
            f" {{generation: {pcie.generation}, width: {pcie.width}}}), less than nic.bandwidth,"
            f" {format_bandwidth(rate)}."
        )
    return found


def _cpu(read: Reader, own: CpuSection | None, *, is_worker: bool) -> CpuSection:
    """Return the CPU section with the defaults that this node needs."""
    section = read.filled(own or CpuSection(), defaults().cpu, "cpu", ("sockets",))
    wanted: tuple[str, ...] = ("memory_bandwidth",) if is_worker else ()
    if section.vendor is None:
        wanted += ("arch", "vendor", "family", "model_id")
    if section.dram_bandwidth is not None:
        wanted += ("dram_efficiency",)
    if (section.sockets or 1) > 1:
        wanted += ("bandwidth", "efficiency", "latency")
    return read.filled(section, defaults().cpu, "cpu", wanted)


def _cpu_spec(read: Reader, cpu: CpuSection) -> CpuSpec:
    """Return what the CPUs are. NCCL tells those of x86 apart by family and model."""
    arch = _ARCH[cpu.vendor or ""]
    if cpu.arch is not None and cpu.arch != arch:
        raise read.place.error("cpu.arch", f"{cpu.arch} does not fit vendor {cpu.vendor}: {arch}.")
    is_x86 = arch == "x86_64"
    memory = None
    if cpu.dram_bandwidth is not None:
        share = read.share(cpu.dram_efficiency, "cpu.dram_efficiency")
        # What it takes to reach memory counts with the root complex.
        memory = Wire(float(cpu.dram_bandwidth), share, 0)
    elif cpu.dram_efficiency is not None:
        raise read.place.error("cpu.dram_efficiency", "means nothing without dram_bandwidth.")
    return CpuSpec(
        model=cpu.model or "",
        arch=arch,
        vendor=cpu.vendor or "",
        family=read.need(cpu.family, "cpu.family") if is_x86 else cpu.family or 0,
        model_id=read.need(cpu.model_id, "cpu.model_id") if is_x86 else cpu.model_id or 0,
        memory=memory,
    )


def _sockets_of(
    read: Reader, field: str, listed: tuple[tuple[int, ...], ...] | None, count: int, sockets: int
) -> tuple[int, ...]:
    """Return the socket of each GPU (or NIC): as listed, else dealt evenly in order."""
    dealt = {i: i * sockets // count for i in range(count)}
    if listed is None:
        return tuple(dealt.values())
    if len(listed) != sockets:
        raise read.place.error(field, f"has {len(listed)} lists for {sockets} sockets.")
    named = sorted(i for members in listed for i in members)
    if len(dict.fromkeys(named)) < len(named) or any(i not in dealt for i in named):
        raise read.place.error(field, f"{named}: each of 0 to {count - 1} may stand only once.")
    found = {i: socket for socket, members in enumerate(listed) for i in members}
    return tuple((dealt | found).values())


def _gpu(read: Reader, section: GpuSection) -> GpuSpec:
    for precision, rate in section.tflops.items():
        if not rate > 0:
            raise read.place.error("gpu.tflops", f"{precision}: {rate:g} is not above zero.")
        if rate > _MOST_TFLOPS:
            raise read.place.error(
                "gpu.tflops",
                f"{precision}: {rate:g} TFLOP/s is more than any GPU does: the unit is 1e12 FLOP/s."
                f" Did you mean {rate / 1e12:g}?",
            )
    if section.memory is not None and section.memory < 1:
        raise read.place.error("gpu.memory", f"{section.memory} bytes hold nothing.")
    if section.sm_count is not None and section.sm_count < 0:
        raise read.place.error("gpu.sm_count", f"{section.sm_count} is below zero.")
    if section.spec is None:
        return _own_gpu(read, section)
    try:
        spec = gpu_spec(section.spec)
    except ScenarioError as error:
        raise read.place.error("gpu.spec", str(error)) from None
    return _adapted(spec, section)


def _own_gpu(read: Reader, section: GpuSection) -> GpuSpec:
    """Return a GPU that is in no table; its memory, at least, must be given."""
    if section.memory is None:
        raise read.place.error(
            "gpu", "give a `spec` (`commsim presets gpus` lists them), or at least `memory`."
        )
    return GpuSpec(
        name="own",
        memory_bytes=int(section.memory),
        memory_bandwidth=float(section.memory_bandwidth or 0.0),
        tflops=MappingProxyType(dict(section.tflops)),
        sm_count=section.sm_count or 0,
        compute_capability=section.compute_capability or "",
        source=MappingProxyType(dict(section.sources)),
    )


def _adapted(spec: GpuSpec, section: GpuSection) -> GpuSpec:
    """Return the table's GPU with what the section states otherwise."""
    tflops = MappingProxyType(dict(spec.tflops) | section.tflops) if section.tflops else None
    stated = {
        "memory_bytes": None if section.memory is None else int(section.memory),
        "memory_bandwidth": section.memory_bandwidth,
        "tflops": tflops,
        "sm_count": section.sm_count,
        "compute_capability": section.compute_capability,
    }
    changes = {name: value for name, value in stated.items() if value is not None}
    if not changes:
        return spec
    source = dict(spec.source) | dict.fromkeys(changes, _STATED) | section.sources
    return msgspec.structs.replace(spec, **changes, source=MappingProxyType(source))
