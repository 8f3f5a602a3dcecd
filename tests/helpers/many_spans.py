"""A timeline of any size without an engine: every lane computes, and all of them communicate."""

from __future__ import annotations

import numpy as np

from commsim.graph import Collectives, Graph, Group, Messages
from commsim.timeline import LinkUse, Memory, Timeline

NAMES = (*(f"{phase} layer {layer}" for phase in "FBW" for layer in range(40)), "rare op")


def many_spans(spans: int, *, lanes: int = 16, seed: int = 0) -> Timeline:
    """Return `lanes` lanes of random work: four spans of five compute, the fifth communicates.

    A thousandth of the compute spans, one at least, is a "rare op" without a phase.
    """
    rng = np.random.default_rng(seed)
    comm = spans // lanes // 5
    comp = 4 * comm
    per, far = comp + comm, comp * 1_000_000
    start, end, arrive, kind, phase, name, microbatch = (
        np.zeros(lanes * per, np.int64) for _ in range(7)
    )
    together = _times(rng, comm, far, 2.0)
    for lane in range(lanes):
        own = slice(lane * per, lane * per + comp)
        start[own], end[own] = _times(rng, comp, far, 0.2)
        arrive[own] = start[own]
        phase[own] = rng.choice([1, 2, 3], comp, p=[0.4, 0.4, 0.2])
        name[own] = (phase[own] - 1) * 40 + rng.integers(0, 40, comp)
        microbatch[own] = np.arange(comp) % 64
        rare = lane * per + rng.choice(comp, max(1, comp // 1000), replace=False)
        phase[rare], name[rare] = 0, len(NAMES) - 1
        shared = slice(lane * per + comp, (lane + 1) * per)
        start[shared], end[shared] = together
        before = np.concatenate(([0], together[1][:-1]))
        arrive[shared] = np.maximum(before, together[0] - rng.integers(0, 300_000, comm))
        kind[shared], microbatch[shared] = 1, -1
    item = np.where(kind == 1, np.arange(lanes * per) % per - comp, -1)
    return _timeline(lanes, kind, phase, name, microbatch, item, (arrive, start, end))


def _times(
    rng: np.random.Generator, count: int, far: int, gap: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return (start, end) of `count` spans from 0 to `far`; gaps are `gap` of the spans."""
    parts = rng.exponential(1.0, 2 * count) * np.tile([gap, 1.0], count)
    ends = np.cumsum(parts)
    ticks = (ends / ends[-1] * far).astype(np.int64)
    return ticks[0::2], ticks[1::2]


def _timeline(lanes, kind, phase, name, microbatch, item, times) -> Timeline:
    count, zero = len(kind), np.zeros(0, np.int64)
    rows = int(item.max()) + 1
    none = np.full(count, -1)
    sizes = 2**20 * (1 + np.arange(rows) % 7)
    table = Collectives(
        kind=tuple("all_reduce" if row % 2 else "all_gather" for row in range(rows)),
        group=np.zeros(rows, np.int64), size=sizes, root=np.full(rows, -1),
        recorded=np.full(rows, -1), eager=np.zeros(rows, np.int64),
        dtype=("",) * rows, redop=("",) * rows,
        splits=(None,) * rows,
    )  # fmt: skip
    arrive, start, end = times
    graph = Graph(
        kind=kind.astype(np.uint8), lane=np.repeat(np.arange(lanes), count // lanes), stream=kind,
        duration=end - start, flops=np.full(count, -1.0), traffic=np.full(count, -1.0),
        size=np.where(item >= 0, sizes[np.maximum(item, 0)], -1), item=item, name=name,
        device=np.zeros(count, np.uint8), alloc=np.zeros(count, np.int64),
        free=np.zeros(count, np.int64), phase=phase.astype(np.uint8), step=none,
        microbatch=microbatch, stage=none, layer=none, batch=none,
        dep_ptr=np.zeros(count + 1, np.int64), dep_op=zero, dep_delay=zero,
        lane_rank=np.arange(lanes), multiplicity=np.ones(lanes, np.int64),
        lane_offset=np.zeros(lanes, np.int64), window=np.full((lanes, 2), -1), names=NAMES,
        streams=("compute", "dp"), groups=(Group("dp", tuple(range(lanes)), axis="dp"),),
        collectives=table, messages=Messages(*[zero] * 9),
    )  # fmt: skip
    return Timeline(
        graph=graph, op=np.arange(count), arrive=arrive, start=start, end=end,
        cause=none, cause_kind=np.zeros(count, np.uint8), links=LinkUse.nothing(),
        memory=Memory(zero, zero, zero),
    )  # fmt: skip
