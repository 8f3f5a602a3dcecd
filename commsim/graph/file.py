"""
A graph on disk: one .npz file with the arrays and a JSON header; nothing in it is executed.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.graph.capture_meta import check_meta
from commsim.graph.check import validate
from commsim.graph.npz import (
    Arrays,
    column,
    columns_of,
    foreign,
    indices,
    read_arrays,
    write_arrays,
)
from commsim.graph.table import (
    Collectives,
    Folding,
    Graph,
    Group,
    Messages,
    OpKind,
    Phase,
    op_columns,
)
from commsim.ops import COLLECTIVES

__all__ = ["load_graph", "pack_graph", "save_graph", "unpack_graph"]

_FORMAT = "commsim-graph-1"
_DTYPES = {"kind": np.uint8, "device": np.uint8, "phase": np.uint8} | {
    "flops": np.float64,
    "traffic": np.float64,
}


class _GraphHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not an array, as JSON; `groups` are (name, ranks, library, axis)."""

    format: str
    names: tuple[str, ...]
    streams: tuple[str, ...]
    groups: tuple[tuple[str, tuple[int, ...], str, str], ...]
    kind: tuple[str, ...]
    dtype: tuple[str, ...]
    splits: tuple[tuple[tuple[int, ...], ...] | None, ...]
    meta: dict[str, Any]
    redop: tuple[str, ...] | None = None  # a file of before there was one has none


_PLAYED_BACK = "recorded"  # the library of calls that keep their recorded time, whatever they do


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write `graph` aside, then rename it to `path`."""
    write_arrays(path, pack_graph(graph))


def load_graph(path: str | Path) -> Graph:
    """Read what `save_graph` wrote. Raises TraceError if the file is not a commsim graph."""
    with foreign(path, "a graph"):
        return unpack_graph(read_arrays(path))


def pack_graph(graph: Graph) -> Arrays:
    """Return all of `graph` as arrays, the header as bytes of JSON."""
    header = _GraphHeader(
        format=_FORMAT,
        names=graph.names,
        streams=graph.streams,
        groups=tuple((g.name, g.ranks, g.library, g.axis) for g in graph.groups),
        kind=graph.collectives.kind,
        dtype=graph.collectives.dtype,
        splits=graph.collectives.splits,
        meta=dict(graph.meta),
        redop=graph.collectives.redop,
    )
    return {
        **columns_of(graph, ""),
        **columns_of(graph.collectives, "c_"),
        **columns_of(graph.messages, "m_"),
        **_pack_folding(graph.folding),
        "header": np.frombuffer(msgspec.json.encode(header), dtype=np.uint8),
    }


def unpack_graph(arrays: Arrays) -> Graph:
    """Return the graph that `pack_graph` packed, validated; call it inside `foreign`."""
    header = msgspec.json.decode(column(arrays, "header", np.uint8).tobytes(), type=_GraphHeader)
    if header.format != _FORMAT:
        raise ValueError(f"its format is {header.format!r}, not {_FORMAT!r}")
    graph = Graph(
        **_op_columns(arrays),
        **_dependencies(arrays),
        **_lanes(arrays),
        names=header.names,
        streams=header.streams,
        groups=tuple(Group(*group) for group in header.groups),
        collectives=_collectives(arrays, header),
        messages=_messages(arrays, len(header.groups)),
        meta=MappingProxyType(header.meta),
        folding=_unpack_folding(arrays, header),
    )
    _check_items(graph)
    check_meta(graph.meta, graph.lane_rank)
    validate(graph)
    return graph


def _op_columns(arrays: Arrays) -> dict[str, Any]:
    count = len(column(arrays, "kind", np.uint8))
    names = op_columns()
    ops = {name: column(arrays, name, _DTYPES.get(name, np.int64), count) for name in names}
    for name, limit in (("kind", len(OpKind)), ("phase", len(Phase)), ("device", 2)):
        if count and ops[name].max() >= limit:
            raise ValueError(f"{name!r} has an entry outside 0..{limit - 1}")
    return ops


def _dependencies(arrays: Arrays) -> dict[str, Any]:
    count = len(arrays["kind"])
    on = indices(arrays, "dep_op", count)
    ptr = column(arrays, "dep_ptr", np.int64, count + 1)
    if ptr[0] != 0 or ptr[-1] != len(on) or np.any(np.diff(ptr) < 0):
        raise ValueError("'dep_ptr' does not divide 'dep_op'")
    return {
        "dep_ptr": ptr,
        "dep_op": on,
        "dep_delay": column(arrays, "dep_delay", np.int64, len(on)),
    }


def _lanes(arrays: Arrays) -> dict[str, Any]:
    count = len(column(arrays, "lane_rank", np.int64))
    window = arrays.get("window", np.zeros(0))
    if window.shape != (count, 2) or window.dtype != np.int64:
        raise ValueError("'window' is not two columns of int64 over the lanes")
    if window.size and (window.min() < -1 or window.max() >= len(arrays["kind"])):
        raise ValueError("'window' names an op that is not there")
    multiplicity = column(arrays, "multiplicity", np.int64, count)
    if count and multiplicity.min() < 1:
        raise ValueError("a lane stands for no rank")
    return {
        "lane_rank": arrays["lane_rank"],
        "multiplicity": multiplicity,
        "lane_offset": column(arrays, "lane_offset", np.int64, count),
        "window": window,
    }


def _collectives(arrays: Arrays, header: _GraphHeader) -> Collectives:
    count = len(header.kind)
    redop = ("",) * count if header.redop is None else header.redop
    if any(len(column) != count for column in (header.dtype, redop, header.splits)):
        raise ValueError("the collectives' columns differ in length")
    group = indices(arrays, "c_group", len(header.groups), length=count)
    for kind, at in zip(header.kind, group.tolist(), strict=True):
        if kind not in COLLECTIVES and header.groups[at][2] != _PLAYED_BACK:
            raise ValueError(f"{kind!r} is not a collective")
    return Collectives(
        kind=header.kind,
        group=group,
        size=column(arrays, "c_size", np.int64, count),
        root=column(arrays, "c_root", np.int64, count),
        recorded=column(arrays, "c_recorded", np.int64, count),
        eager=column(arrays, "c_eager", np.int64, count),
        dtype=header.dtype,
        redop=redop,
        splits=header.splits,
    )


def _messages(arrays: Arrays, groups: int) -> Messages:
    count = len(indices(arrays, "m_group", groups))
    for name in ("m_send_op", "m_recv_op"):
        indices(arrays, name, len(arrays["kind"]), least=-1)
    names = Messages.__struct_fields__
    return Messages(**{name: column(arrays, f"m_{name}", np.int64, count) for name in names})


def _pack_folding(folding: Folding | None) -> Arrays:
    if folding is None:
        return {}
    packed = {"f_lane_of": folding.lane_of, "f_pair": folding.pair}
    for name, tables in (("f_groups", folding.groups), ("f_pairs", folding.pairs)):
        packed[name] = np.concatenate([np.zeros(0, np.int64), *(t.reshape(-1) for t in tables)])
        packed[f"{name}_rows"] = np.array([len(table) for table in tables], dtype=np.int64)
    return packed


def _unpack_folding(arrays: Arrays, header: _GraphHeader) -> Folding | None:
    if "f_lane_of" not in arrays:
        return None
    lane_of = indices(arrays, "f_lane_of", len(arrays["lane_rank"]))
    widths = [len(group[1]) for group in header.groups]
    groups = _tables(arrays, "f_groups", widths, len(lane_of))
    pair_rows = column(arrays, "f_pairs_rows", np.int64)
    pairs = _tables(arrays, "f_pairs", [2] * len(pair_rows), len(lane_of))
    pair = indices(arrays, "f_pair", len(pairs), length=len(arrays["m_group"]))
    return Folding(lane_of, groups, pairs, pair)


def _tables(arrays: Arrays, name: str, widths: list[int], world: int) -> tuple[Ints, ...]:
    """Return tables of ranks, cut from one array: table i has `widths[i]` columns."""
    flat = indices(arrays, name, world)
    rows = column(arrays, f"{name}_rows", np.int64, len(widths))
    if np.any(rows < 1) or int(np.sum(rows * np.array(widths, dtype=np.int64))) != len(flat):
        raise ValueError(f"{name!r} does not divide into its tables")
    ends = np.cumsum(rows * np.array(widths, dtype=np.int64))
    cut = np.split(flat, ends[:-1]) if len(widths) else []
    return tuple(part.reshape(-1, width) for part, width in zip(cut, widths, strict=True))


def _check_items(graph: Graph) -> None:
    """Each communicating op must name a row of its table."""
    collective = graph.kind == OpKind.COLLECTIVE
    message = (graph.kind == OpKind.SEND) | (graph.kind == OpKind.RECV)
    for chosen, table in ((collective, graph.collectives), (message, graph.messages)):
        items = graph.item[chosen]
        if items.size and (items.min() < 0 or items.max() >= len(table)):
            raise ValueError("'item' has an entry outside its table")
