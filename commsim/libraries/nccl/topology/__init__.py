"""
NCCL's view of a node or NVLink domain: devices, links, and the paths between them.

In: a cluster's nodes (`from_cluster`) or an NCCL topology file (`xml_file`). Out: a `System` with
NCCL's own bandwidths (`build`, by the release's `rules`), the type and width of every path
(`paths`), rows for people (`view`), and a cluster made from a topology file (`to_cluster`).
"""

from commsim.libraries.nccl.topology.build import system_of
from commsim.libraries.nccl.topology.from_cluster import (
    UNKNOWN_CAPABILITY,
    cluster_xml,
    devices_per_nic,
    domain_xml,
)
from commsim.libraries.nccl.topology.paths import Path, Paths
from commsim.libraries.nccl.topology.rules import Rules, mbs, rules_of
from commsim.libraries.nccl.topology.system import (
    LOCAL_BANDWIDTH,
    DeviceKind,
    System,
    TopologyDevice,
)
from commsim.libraries.nccl.topology.to_cluster import cluster_from_xml
from commsim.libraries.nccl.topology.view import path_tables, view_text
from commsim.libraries.nccl.topology.xml_file import Element, read_xml, write_xml

__all__ = [
    "LOCAL_BANDWIDTH",
    "UNKNOWN_CAPABILITY",
    "DeviceKind",
    "Element",
    "Path",
    "Paths",
    "Rules",
    "System",
    "TopologyDevice",
    "cluster_from_xml",
    "cluster_xml",
    "devices_per_nic",
    "domain_xml",
    "mbs",
    "path_tables",
    "read_xml",
    "rules_of",
    "system_of",
    "view_text",
    "write_xml",
]
