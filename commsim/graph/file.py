"""
A graph on disk: one .npz file with the arrays and a JSON header; nothing in it is executed.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from commsim.errors import TraceError
from commsim.graph.table import Collectives, Graph, Group, Messages, validate

__all__ = ["load_graph", "save_graph"]

_FORMAT = "commsim-graph-1"
_MAX_UNPACKED = 8 * 2**30  # a small file that unpacks to more than this is refused


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write `graph` aside, then rename it to `path`."""
    arrays: dict[str, Any] = {}
    for prefix, part in (("", graph), ("c_", graph.collectives), ("m_", graph.messages)):
        for column in fields(part):
            value = getattr(part, column.name)
            if isinstance(value, np.ndarray):
                arrays[prefix + column.name] = value
    header = {
        "format": _FORMAT,
        "names": graph.names,
        "streams": graph.streams,
        "groups": [(g.name, g.ranks, g.library, g.axis) for g in graph.groups],
        "kind": graph.collectives.kind,
        "dtype": graph.collectives.dtype,
        "splits": graph.collectives.splits,
        "meta": dict(graph.meta),
    }
    arrays["header"] = np.frombuffer(msgspec.json.encode(header), dtype=np.uint8)
    path = Path(path)
    handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, **arrays)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def load_graph(path: str | Path) -> Graph:
    """Read what `save_graph` wrote. Raises TraceError where the file is not a commsim graph."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > _MAX_UNPACKED:
                raise TraceError(f"{path}: unpacks to more than 8 GiB; refused.")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = msgspec.json.decode(arrays.pop("header").tobytes())
        if header["format"] != _FORMAT:
            raise KeyError("format")
        graph = _assemble(arrays, header)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise TraceError(f"{path}: not a graph that commsim saved ({error}).") from None
    validate(graph)
    return graph


def _assemble(arrays: dict[str, Any], header: dict[str, Any]) -> Graph:
    split = {
        prefix: {
            name.removeprefix(prefix): value
            for name, value in arrays.items()
            if name.startswith(prefix)
        }
        for prefix in ("c_", "m_")
    }
    columns = {n: v for n, v in arrays.items() if not n.startswith(("c_", "m_"))}
    splits = tuple(
        None if matrix is None else tuple(map(tuple, matrix)) for matrix in header["splits"]
    )
    return Graph(
        **columns,
        names=tuple(header["names"]),
        streams=tuple(header["streams"]),
        groups=tuple(Group(n, tuple(r), lib, axis) for n, r, lib, axis in header["groups"]),
        collectives=Collectives(
            **split["c_"],
            kind=tuple(header["kind"]),
            dtype=tuple(header["dtype"]),
            splits=splits,
        ),
        messages=Messages(**split["m_"]),
        meta=MappingProxyType(header["meta"]),
    )
