"""
What exists: GPUs, nodes, fabrics, and the routes between them.

`section` is what users write; `nodes` checks what it says of a node, `template` lays one out,
`fabrics` joins nodes, `build` numbers the links; `cluster` answers questions about routes.
"""

from commsim.cluster.build import nodes_scaled
from commsim.cluster.cluster import Cluster
from commsim.cluster.describe import describe
from commsim.cluster.fabrics import FabricParts, FabricSection, Nic
from commsim.cluster.files import suggestion
from commsim.cluster.link_ends import LinkEnds
from commsim.cluster.measured import MeasuredSection
from commsim.cluster.nodes import (
    C2cSection,
    CpuSection,
    GpuSection,
    GpuSpec,
    NicSection,
    NicSpec,
    NodeSection,
    NodeSpec,
    NvlinkSection,
    PcieSection,
    PcieSwitch,
    PcieSwitchSection,
    gpu_names,
    gpu_spec,
    gpu_text,
)
from commsim.cluster.presets import preset_names, preset_text
from commsim.cluster.prices import PriceSection, PricesSection
from commsim.cluster.routes import NOWHERE, Links, Route
from commsim.cluster.scale import ScaleSection
from commsim.cluster.section import ClusterSection, build_cluster, cluster_from, load_cluster
from commsim.cluster.shifts import Shifts
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
    "LinkEnds",
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
    "ScaleSection",
    "Shifts",
    "Template",
    "build_cluster",
    "cluster_from",
    "describe",
    "gpu_names",
    "gpu_spec",
    "gpu_text",
    "load_cluster",
    "nodes_scaled",
    "preset_names",
    "preset_text",
    "suggestion",
]
