"""Timelines made by hand: a graph from the builder, and when each op happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from commsim.graph import GraphBuilder
from commsim.timeline import Cause, LinkUse, Memory, Timeline

NO_MEMORY = Memory(*(np.zeros(0, dtype=np.int64) for _ in range(3)))


def timeline(
    build: GraphBuilder,
    times: Sequence[tuple[int, ...]],
    *,
    causes: Mapping[int, tuple[int, Cause]] | None = None,
    links: LinkUse | None = None,
) -> Timeline:
    """Return a timeline of all ops; `times` are (start, end) or (arrive, start, end) per op."""
    table = np.array([t if len(t) == 3 else (t[0], *t) for t in times], dtype=np.int64)
    table = table.reshape(-1, 3)
    cause = np.full(len(table), -1, dtype=np.int64)
    cause_kind = np.zeros(len(table), dtype=np.uint8)
    for op, (by, kind) in (causes or {}).items():
        cause[op], cause_kind[op] = by, int(kind)
    return Timeline(
        graph=build.build(),
        op=np.arange(len(table)),
        arrive=table[:, 0],
        start=table[:, 1],
        end=table[:, 2],
        cause=cause,
        cause_kind=cause_kind,
        links=links or LinkUse.nothing(),
        memory=NO_MEMORY,
    )


def link_use(
    bandwidth: Sequence[float],
    loads: Sequence[Mapping[int, float]],
    segments: Sequence[tuple[int, int, int, float]],
    *,
    ops: Sequence[int] = (),
    kinds: Sequence[str] | None = None,
) -> LinkUse:
    """Return link use; `loads` are {link: bytes} per flow, segments (flow, start, end, rate)."""
    table = np.array([s[:3] for s in segments], dtype=np.int64).reshape(-1, 3)
    return LinkUse(
        names=tuple(f"link{i}" for i in range(len(bandwidth))),
        kinds=tuple(kinds or ["nvlink"] * len(bandwidth)),
        bandwidth=np.array(bandwidth, dtype=np.float64),
        load_ptr=np.concatenate(([0], np.cumsum([len(load) for load in loads]))).astype(np.int64),
        load_link=np.array([link for load in loads for link in load], dtype=np.int64),
        load_bytes=np.array([b for load in loads for b in load.values()], dtype=np.float64),
        flow=table[:, 0],
        start=table[:, 1],
        end=table[:, 2],
        rate=np.array([s[3] for s in segments], dtype=np.float64),
        op=np.array(ops, dtype=np.int64),
    )
