"""
Read NCCL's own record of a communicator: the graphs, rings and trees it found on a machine.

The record is a JSON object as a build of NCCL's graph code writes it (`meta_SYSTEM_NODES.json`):
version, ranks and nodes, compute capability, CPU, channels, and the graphs by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from commsim.errors import ScenarioError
from commsim.input_files import readable
from commsim.libraries.nccl.shapes import (
    Channel,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    SearchGraph,
    Trees,
)
from commsim.libraries.nccl.topology import mbs, rules_of

__all__ = ["read_record", "recorded_communicator"]


def read_record(path: Path) -> dict[str, Any]:
    """Return the record in a file.

    Raises:
        ScenarioError: the file is missing or not a JSON object.
    """
    try:
        record = msgspec.json.decode(readable(path).read_bytes())
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read ({error.strerror}).") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not JSON ({error}).") from None
    if not isinstance(record, dict):
        raise ScenarioError(f"{path}: not a record of NCCL: an object with nRanks and graphs.")
    return record


def recorded_communicator(record: Mapping[str, Any], *, where: str = "record") -> Communicator:
    """Return the communicator that a record describes.

    Raises:
        ScenarioError: a field is missing or has an unknown value; `where` says in which record.
    """
    try:
        return _communicator(record)
    except KeyError as error:
        raise ScenarioError(f"{where}: {error.args[0]!r} is missing or unknown.") from None
    except (TypeError, ValueError, IndexError) as error:
        raise ScenarioError(f"{where}: not a record of NCCL ({error}).") from None


def _communicator(record: Mapping[str, Any]) -> Communicator:
    ranks, nodes = int(record["nRanks"]), int(record["nNodes"])
    local = int(record.get("localRanks", ranks // nodes))
    capability = int(record["minCompCap"])
    graphs = {name: _graph(graph) for name, graph in record["graphs"].items()}
    return Communicator(
        version=str(record["nccl"]),
        node_of=tuple(min(rank // local, nodes - 1) for rank in range(ranks)),
        local_ranks=(*[local] * (nodes - 1), ranks - local * (nodes - 1)),
        min_compute_capability=capability,
        max_compute_capability=int(record.get("maxCompCap", capability)),
        cpu_arch=CpuArch(record["cpuArch"]),
        cpu_vendor=CpuVendor(record["cpuVendor"]),
        nvswitch=bool(record["nvswitch"]),
        max_bw=float(record["maxBw"]),
        total_bw=float(record["totalBw"]),
        graphs=graphs,
        channels=int(record["nChannels"]),
        rings=np.array(record.get("rings", ()), dtype=np.int32).reshape(-1, ranks),
        trees=_trees(record.get("trees_up_down", {})),
        nvls_support=_has_nvls(record, graphs.get("nvls")),
        net_bandwidth=float(record["maxBw"]) if nodes > 1 else 0.0,
        local_nets=1 if nodes > 1 else 0,
        peer_nvlinks=_peer_nvlinks(record, graphs["ring"].type_intra),
    )


def _has_nvls(record: Mapping[str, Any], graph: SearchGraph | None) -> bool:
    found = graph is not None and graph.n_channels > 0
    return found and int(record["minCompCap"]) >= 90 and record.get("nvlsChannels", 1) > 0


def _peer_nvlinks(record: Mapping[str, Any], path: PathType) -> int:
    """Return the NVLinks between two GPUs: all of a GPU's through a switch, else one at least."""
    if path > PathType.NVB:
        return 0
    if not record["nvswitch"]:
        return 1
    link = rules_of(str(record["nccl"])).nvlink_bandwidth(int(record["minCompCap"]))
    return mbs(float(record["totalBw"])) // link


def _graph(graph: Mapping[str, Any]) -> SearchGraph:
    return SearchGraph(
        pattern=Pattern[graph["pattern"]],
        channels=tuple(
            Channel(tuple(channel["intra"]), _pair(channel.get("inter")))
            for channel in graph["channels"]
        ),
        bw_intra=float(graph["bwIntra"]),
        bw_inter=float(graph["bwInter"]),
        type_intra=PathType[graph["typeIntra"]],
        type_inter=PathType[graph["typeInter"]],
        cross_nic=int(graph.get("crossNic", 0)),
        same_channels=bool(graph.get("sameChannels", 0)),
        latency_inter=float(graph.get("latencyInter", 0)),
    )


def _pair(inter: list[int] | None) -> tuple[int, int] | None:
    return (inter[0], inter[1]) if inter else None


def _trees(by_rank: Mapping[str, Any]) -> Trees:
    """Turn the record's rank -> channels into channels -> ranks."""
    if not by_rank:
        return Trees(np.empty((0, 0), dtype=np.int32), np.empty((0, 0, 3), dtype=np.int32))
    ranks = [by_rank[str(rank)] for rank in range(len(by_rank))]
    up = np.array([[links[0] for links in channels] for channels in ranks], dtype=np.int32)
    down = np.array([[links[1] for links in channels] for channels in ranks], dtype=np.int32)
    return Trees(up.reshape(len(ranks), -1).T, down.reshape(len(ranks), -1, 3).swapaxes(0, 1))
