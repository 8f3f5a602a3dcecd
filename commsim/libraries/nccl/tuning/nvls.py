"""
What NVLS and NVLSTree get: channels of their own, and their largest chunks.

Between nodes of Blackwell GPUs they depend on the NIC's speed and on the ranks of a node; the
first row of the release's table that fits decides.

Follows ncclNvlsInit and its table of tuning (src/transport/nvls.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

import msgspec

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Communicator, PathType
from commsim.libraries.nccl.tuning.tables import NvlsRow, Tables

__all__ = ["NvlsSetup", "nvls_setup"]

_CHUNK = 128 << 10
_FAR_TREE_CHUNK, _FAR_NODES = 64 << 10, 4


class NvlsSetup(msgspec.Struct, frozen=True):
    """Channels of NVLS, the largest chunk (bytes) of NVLS, and that of NVLSTree."""

    channels: int
    chunk: int
    tree_chunk: int


def nvls_setup(comm: Communicator, tables: Tables, knobs: Knobs) -> NvlsSetup:
    """Return what NVLS gets on `comm`; what the environment says comes first."""
    row = _row(comm, tables)
    chunk = knobs.nvls_chunksize or (row.chunk if row else _CHUNK)
    tree_chunk = knobs.nvlstree_max_chunksize
    if tree_chunk is None and row:
        tree_chunk = row.tree_chunk
    elif tree_chunk is None:
        tree_chunk = _FAR_TREE_CHUNK if comm.n_nodes >= _FAR_NODES else chunk
    return NvlsSetup(_channels(comm, tables, knobs, row), chunk, tree_chunk)


def _channels(comm: Communicator, tables: Tables, knobs: Knobs, row: NvlsRow | None) -> int:
    by_nodes = tables.nvls_channels.get(tables.generation(comm.min_compute_capability), (0, 0))
    channels = row.channels if row else by_nodes[comm.n_nodes > 1]
    if knobs.nvls_nchannels is not None and knobs.nvls_nchannels > 0:
        channels = knobs.nvls_nchannels
    if knobs.max_ctas is not None and knobs.max_ctas > 0:
        channels = min(channels, knobs.max_ctas)
    return max(channels, knobs.min_ctas or 0)


def _row(comm: Communicator, tables: Tables) -> NvlsRow | None:
    if comm.n_nodes == 1 or comm.min_compute_capability < 100:
        return None
    return next((row for row in tables.nvls_nets if _fits(row, comm)), None)


def _fits(row: NvlsRow, comm: Communicator) -> bool:
    ranks, nic = min(comm.local_ranks), comm.net_bandwidth
    near = comm.graphs["nvls"].type_inter <= PathType.PXB if "nvls" in comm.graphs else False
    return (
        (row.nodes is None or comm.n_nodes == row.nodes)
        and row.nic <= nic
        and (row.nic_below is None or nic < row.nic_below)
        and row.ranks_from <= ranks
        and (row.ranks_to is None or ranks <= row.ranks_to)
        and (near or not row.near)
    )
