"""
One rank's part of the graph: its ops as columns, before the ranks are brought together.

It is made of one file alone, in a process of its own if there are many. Communication is
still the rank's own call (`item` is its index); times are on the clock of the file.
"""

from __future__ import annotations

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.traces.rebuild.rank.calls import RankCollectives
from commsim.traces.rebuild.rank.causes import LEFT, RankWork, Ties, ties
from commsim.traces.rebuild.rank.fragment_rows import FragmentRows, in_order, rows_of

__all__ = ["Fragment", "fragment_of"]


class Fragment(msgspec.Struct, frozen=True, eq=False):
    """The ops of one rank as columns, in order of start; times in ps on the file's clock.

    `item` is the index of the call that an op is part of, `message` which of its messages, -1
    for none. `cause` is the op that released each, `window` the first and last op of the step.
    """

    kind: Ints
    stream: Ints
    name: Ints
    duration: Ints
    device: Ints
    phase: Ints
    batch: Ints
    item: Ints
    message: Ints
    start: Ints
    end: Ints
    cause: Ints
    dep_ptr: Ints
    dep_op: Ints
    dep_delay: Ints
    names: tuple[str, ...]
    streams: tuple[str, ...]
    window: tuple[int, int]
    begin: int
    held: int
    held_ops: int
    queued_ops: int
    left_over: int

    def __len__(self) -> int:
        return len(self.kind)


def fragment_of(work: RankWork, calls: RankCollectives) -> Fragment:
    """Return a rank's ops, from its pieces of CPU work and its GPU work."""
    rows = rows_of(work, calls)
    columns, tied = rows.columns, ties(work)
    op, source, delay, cause = _dependencies(work, rows, tied)
    by_op = np.argsort(op, kind="stable")
    name, names = in_order(columns["name"])
    stream, streams = in_order(columns["stream"])
    return Fragment(
        kind=columns["kind"],
        stream=stream,
        name=name,
        duration=columns["duration"],
        device=columns["device"],
        phase=columns["phase"],
        batch=in_order(columns["batch"])[0],
        item=columns["item"],
        message=columns["message"],
        start=columns["start"],
        end=columns["end"],
        cause=cause,
        dep_ptr=np.cumsum([0, *np.bincount(op, minlength=len(cause))], dtype=np.int64),
        dep_op=source[by_op],
        dep_delay=delay[by_op],
        names=tuple(rows.names[at] for at in names),
        streams=tuple(rows.streams[at] for at in streams),
        window=_window(work, rows),
        begin=min(int(pieces.start[0]) for pieces in work.pieces.values()),
        held=int(tied.latency[tied.held].sum()),
        held_ops=int(tied.held.sum()),
        queued_ops=len(tied.queued),
        left_over=int((tied.kind[tied.binding] == LEFT).sum()),
    )


def _dependencies(work: RankWork, rows: FragmentRows, tied: Ties) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (op, what it waits for, delay) of all dependencies, and the cause of each op."""
    cause = np.full(len(rows), -1)
    pieces = _tie_pieces(work, rows, cause)
    of_gpu = _tie_gpu(rows, tied, cause)
    op, source, delay = (np.concatenate(both) for both in zip(pieces, of_gpu, strict=True))
    return op, source, delay, cause


def _tie_pieces(work: RankWork, rows: FragmentRows, cause: Ints) -> tuple[Ints, Ints, Ints]:
    """Let pieces wait for the GPU work and the pieces of other threads that held them."""
    found: list[tuple[int, int, int]] = []
    gpu = work.activity.gpu
    for thread, pieces in work.pieces.items():
        ids = rows.pieces(thread)
        cause[ids[1:]] = ids[:-1]
        for index in sorted({*pieces.gpu, *pieces.after}):
            sources = [
                (gpu.ends[g], source) for g in pieces.gpu.get(index, ()) for source in rows.gpu(g)
            ]
            for other, time in pieces.after.get(index, ()):
                before = work.pieces[other]
                at = int(before.at(np.array([time]))[0])
                sources.append((int(before.end[at]), int(rows.pieces(other)[at])))
            found += [(int(ids[index]), source, 0) for _, source in sources]
            own = (int(pieces.end[index - 1]), int(ids[index - 1])) if index else (-1, -1)
            cause[ids[index]] = max([own, *sources])[1]
    op, source, delay = np.array(found, np.int64).reshape(-1, 3).T
    return op, source, delay


def _tie_gpu(rows: FragmentRows, tied: Ties, cause: Ints) -> tuple[Ints, Ints, Ints]:
    """Let GPU work wait for its launch, its stream and other streams, each with its latency.

    All messages of a kernel wait, and what waits for the kernel waits for all of them.
    """
    waiting, held_by = rows.counts[tied.op], rows.counts[tied.source]
    pairs = waiting * held_by
    row = np.repeat(np.arange(len(tied.op)), pairs)
    within = np.arange(len(row)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    op = rows.place[rows.first[tied.op[row]] + within // held_by[row]]
    source = rows.place[rows.first[tied.source[row]] + within % held_by[row]]
    last = tied.source[tied.binding]
    released = rows.place[rows.first[last] + rows.counts[last] - 1]
    bound = tied.op[tied.binding]
    cause[rows.place[rows.first[bound[0]] :] if bound.size else []] = np.repeat(
        released, rows.counts[bound]
    )
    return op, source, tied.delay[row]


def _window(work: RankWork, rows: FragmentRows) -> tuple[int, int]:
    """Return the profiled step: the main thread's pieces from its start to its end."""
    main, step = work.activity.main, work.activity.step
    pieces = work.pieces[main]
    start, end = (step.start, step.end) if step else (pieces.start[0], pieces.end[-1])
    inside = np.flatnonzero((pieces.start >= start) & (pieces.end <= end))
    if not inside.size:
        return -1, -1
    ids = rows.pieces(main)
    return int(ids[inside[0]]), int(ids[inside[-1]])
