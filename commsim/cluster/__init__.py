"""
What exists: GPUs, nodes, fabrics, and the routes between them.

`node` and `section` are what users write; `spec` checks it, `template` lays out a node,
`fabric` joins nodes, `build` numbers the links; `cluster` answers questions about routes.
"""

from commsim.cluster.bill import FabricParts
from commsim.cluster.cluster import Cluster
from commsim.cluster.describe import describe
from commsim.cluster.fabric_section import FabricSection
from commsim.cluster.files import suggestion
from commsim.cluster.gpus import GpuSpec, gpu_names, gpu_spec, gpu_text
from commsim.cluster.leaves import Nic
from commsim.cluster.measured import MeasuredSection
from commsim.cluster.node import (
    C2cSection,
    CpuSection,
    GpuSection,
    NicSection,
    NodeSection,
    NvlinkSection,
    PcieSection,
    PcieSwitchSection,
)
from commsim.cluster.presets import preset_names, preset_text
from commsim.cluster.prices import PriceSection, PricesSection
from commsim.cluster.routes import NOWHERE, Links, Route
from commsim.cluster.section import ClusterSection, build_cluster, cluster_from, load_cluster
from commsim.cluster.shifts import Shifts
from commsim.cluster.spec import NicSpec, NodeSpec, PcieSwitch
from commsim.cluster.template import Template

__all__ = [
    "NOWHERE",
    "C2cSection",
    "Cluster",
    "ClusterSection",
    "CpuSection",
    "FabricParts",
    "FabricSection",
    "GpuSection",
    "GpuSpec",
    "Links",
    "MeasuredSection",
    "Nic",
    "NicSection",
    "NicSpec",
    "NodeSection",
    "NodeSpec",
    "NvlinkSection",
    "PcieSection",
    "PcieSwitch",
    "PcieSwitchSection",
    "PriceSection",
    "PricesSection",
    "Route",
    "Shifts",
    "Template",
    "build_cluster",
    "cluster_from",
    "describe",
    "gpu_names",
    "gpu_spec",
    "gpu_text",
    "load_cluster",
    "preset_names",
    "preset_text",
    "suggestion",
]
