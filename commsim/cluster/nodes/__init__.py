"""
What a node is: its GPUs, CPUs, PCIe switches, NVLink and NICs.

`node` is what users write; `overrides` lays what they changed over a preset's; `node_spec` checks
it part by part (`gpus`, `nvlink_spec`, `pcie_spec`, `nic_spec`) and makes the `spec`, which the
rest of `cluster` lays out as links. In: sections of a scenario. Out: a `NodeSpec` per node.
"""

from commsim.cluster.nodes.dead_nics import without_nics
from commsim.cluster.nodes.gpus import GpuSpec, gpu_names, gpu_spec, gpu_text
from commsim.cluster.nodes.node import (
    C2cSection,
    CpuSection,
    GpuSection,
    NicSection,
    NodeSection,
    NvlinkSection,
    PcieSection,
    PcieSwitchSection,
    merged,
)
from commsim.cluster.nodes.node_spec import node_spec
from commsim.cluster.nodes.overrides import overridden
from commsim.cluster.nodes.place import NodePlace, field_path
from commsim.cluster.nodes.spec import MAX_GPUS, NicSpec, NodeSpec, PcieSpec, PcieSwitch, Wire

__all__ = [
    "MAX_GPUS",
    "C2cSection",
    "CpuSection",
    "GpuSection",
    "GpuSpec",
    "NicSection",
    "NicSpec",
    "NodePlace",
    "NodeSection",
    "NodeSpec",
    "NvlinkSection",
    "PcieSection",
    "PcieSpec",
    "PcieSwitch",
    "PcieSwitchSection",
    "Wire",
    "field_path",
    "gpu_names",
    "gpu_spec",
    "gpu_text",
    "merged",
    "node_spec",
    "overridden",
    "without_nics",
]
