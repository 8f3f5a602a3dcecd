"""
Write the communication of a graph as PARAM's comms traces: `base.rankR.json`, in elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from commsim.files import write_set
from commsim.graph import Graph, OpKind
from commsim.traces.formats.values import dtype_of

__all__ = ["write_param"]

_NAMES = {
    "all_reduce": "all_reduce", "all_gather": "all_gather_base", "barrier": "barrier",
    "reduce_scatter": "reduce_scatter_base", "all_to_all": "all_to_all",
    "all_to_all_v": "all_to_allv", "broadcast": "broadcast", "reduce": "reduce",
    "gather": "gather", "scatter": "scatter",
}  # fmt: skip
_TORCH = {
    "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "float64": "Double",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "float8_e4m3fn": "Float8_e4m3fn", "float8_e5m2": "Float8_e5m2",
}  # fmt: skip


def write_param(graph: Graph, base: Path) -> tuple[list[Path], list[str]]:
    """Write a file per rank; return their paths, and what the format could not carry."""
    stem = base.with_suffix("") if base.suffix == ".json" else base
    written = write_set(
        (
            stem.with_name(f"{stem.name}.rank{rank}.json"),
            msgspec.json.format(msgspec.json.encode(list(_rows(graph, lane, rank)))),
        )
        for lane, rank in enumerate(graph.lane_rank.tolist())
    )
    notes = [
        "PARAM: only communication is carried, in order: no work, times, streams or dependencies."
    ]
    if lone := sum(kind not in _NAMES for kind in graph.collectives.kind):
        notes.append(f"PARAM: {lone} sends and receives without their other end are left out.")
    return written, notes


def _rows(graph: Graph, lane: int, rank: int) -> Iterator[dict[str, Any]]:
    world = 1 + max([*graph.lane_rank.tolist(), *(r for g in graph.groups for r in g.ranks)])
    for number, group in enumerate(graph.groups):
        if rank in group.ranks:
            ranks = list(group.ranks)
            yield {
                "comms": "init",
                "pg_id": number,
                "req": -1,
                "global_ranks": ranks,
                "world_size": len(ranks),
            }
    communicating = (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV)
    mine = np.flatnonzero((graph.lane == lane) & np.isin(graph.kind, communicating))
    for request, op in enumerate(mine.tolist()):
        if graph.kind[op] != OpKind.COLLECTIVE:
            yield _message(graph, op, rank, request, world)
        elif graph.collectives.kind[graph.item[op]] in _NAMES:
            yield _collective(graph, op, rank, request)


def _collective(graph: Graph, op: int, rank: int, request: int) -> dict[str, Any]:
    table, row = graph.collectives, int(graph.item[op])
    group, kind = int(table.group[row]), table.kind[row]
    ranks = graph.groups[group].ranks
    dtype, itemsize = _element(table.dtype[row])
    splits = table.splits[row]
    size = max(0, int(table.size[row]))
    sent, received = _sides(kind, size, len(ranks))
    if splits is not None:
        member = ranks.index(rank)
        sent, received = sum(splits[member]), sum(part[member] for part in splits)
    found: dict[str, Any] = {
        "comms": _NAMES[kind], "req": request, "pg_id": group, "dtype": dtype,
        "in_msg_size": sent // itemsize, "out_msg_size": received // itemsize,
        "world_size": len(ranks),
    }  # fmt: skip
    if table.root[row] >= 0:
        found["root"] = int(table.root[row])
    if splits is not None:
        found["in_split"] = [part // itemsize for part in splits[ranks.index(rank)]]
        found["out_split"] = [part[ranks.index(rank)] // itemsize for part in splits]
    return found


def _sides(kind: str, size: int, members: int) -> tuple[int, int]:
    """Return (bytes in, bytes out) of one rank for S = `size`."""
    if kind in ("all_gather", "gather"):
        return size // members, size
    if kind in ("reduce_scatter", "scatter"):
        return size, size // members
    return size, size


def _element(dtype: str) -> tuple[str, int]:
    """Return torch's name of a type and its bytes; bytes as such if it is not known."""
    name = _TORCH.get(dtype)
    return (name, dtype_of(dtype)[1]) if name else ("Byte", 1)


def _message(graph: Graph, op: int, rank: int, request: int, world: int) -> dict[str, Any]:
    table, row = graph.messages, int(graph.item[op])
    size = max(0, int(table.size[row]))
    return {
        "comms": "send" if graph.kind[op] == OpKind.SEND else "recv",
        "req": request,
        "pg_id": int(table.group[row]),
        "dtype": "Byte",
        "in_msg_size": size,
        "out_msg_size": size,
        "src_rank": int(table.source[row]),
        "dst_rank": int(table.target[row]),
        "world_size": world,
    }
