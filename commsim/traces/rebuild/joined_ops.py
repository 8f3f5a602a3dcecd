"""
The ops of all ranks in one set of columns, before what they communicate is joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.rebuild.rank import Fragment

__all__ = ["JoinedOps", "RankFragment", "join_fragments"]


class RankFragment(msgspec.Struct, frozen=True):
    """A rank's fragment; `shift` takes its times to the common clock."""

    rank: int
    fragment: Fragment
    shift: int


class JoinedOps(msgspec.Struct, frozen=True, eq=False):
    """Ops of all ranks as columns, rank after rank; times in ps on the common clock.

    `counts` are the dependencies of each op, `dep_op` and `dep_delay` the dependencies themselves.
    `call` and `message` say which of its rank's calls an op is part of, -1 for none; `op_of` is the
    op of each (rank, call, message). `item`, `size` and `last` (the op that released it) are -1
    until calls are joined across ranks.
    """

    kind: Ints
    lane: Ints
    stream: Ints
    duration: Ints
    name: Ints
    device: Ints
    phase: Ints
    batch: Ints
    call: Ints
    message: Ints
    start: Ints
    end: Ints
    cause: Ints
    counts: Ints
    dep_op: Ints
    dep_delay: Ints
    rank: Ints
    item: Ints
    size: Ints
    last: Ints
    names: tuple[str, ...]
    streams: tuple[str, ...]
    op_of: Mapping[tuple[int, int, int], int]


def join_fragments(ranks: Sequence[RankFragment], begin: int) -> JoinedOps:
    """Put the fragments one after another, with common names, streams and ids."""
    names: dict[str, int] = {}
    streams: dict[str, int] = {}
    parts: dict[str, list[Ints]] = {}
    offset = 0
    for lane, part in enumerate(ranks):
        own = part.fragment
        name_of = np.array([names.setdefault(n, len(names)) for n in own.names], np.int64)
        stream_of = np.array([streams.setdefault(s, len(streams)) for s in own.streams], np.int64)
        shift = part.shift - begin
        found = {
            "kind": own.kind, "lane": np.full(len(own), lane), "stream": stream_of[own.stream],
            "duration": own.duration, "name": name_of[own.name], "device": own.device,
            "phase": own.phase, "batch": np.where(own.batch >= 0, own.batch + offset, -1),
            "call": own.item, "message": own.message, "start": own.start + shift,
            "end": own.end + shift, "cause": np.where(own.cause >= 0, own.cause + offset, -1),
            "counts": np.diff(own.dep_ptr), "dep_op": own.dep_op + offset,
            "dep_delay": own.dep_delay,
        }  # fmt: skip
        for key, values in found.items():
            parts.setdefault(key, []).append(values)
        offset += len(own)
    joined = {key: np.concatenate(values) for key, values in parts.items()}
    rank = np.array([part.rank for part in ranks])[joined["lane"]]
    calls = np.flatnonzero(joined["call"] >= 0)
    keys = zip(
        *(of[calls].tolist() for of in (rank, joined["call"], joined["message"])), strict=True
    )
    return JoinedOps(
        **joined,
        rank=rank,
        item=np.full(offset, -1),
        size=np.full(offset, -1),
        last=np.full(offset, -1),
        names=tuple(names),
        streams=tuple(streams),
        op_of=dict(zip(keys, calls.tolist(), strict=True)),
    )
