"""
Causes of GPU work: what each op waited for, and with which latency.

Work starts when the last of its causes ended, plus a latency (of the launch, of the stream)
that stays with that cause. Where a cause was the one that released the work, its latency is
what was recorded; if another one was, the rank's median is taken, or less if less was
left.

What all this does not explain may have stood in a work queue of the GPU: streams share those (8,
unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise), and what waits at the head of one holds what was
launched behind it on other streams. So work that was held, and began when something launched before
it on another stream did, waits for what that waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from commsim.arrays import Bools, Ints
from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.threads import Pieces, ThreadName

__all__ = ["LONG", "RankWork", "Ties", "launch_pieces", "ties"]

LONG = 100_000_000  # ps: no launch and no stream takes 100 us; something else held the op
_NEXT = 10_000_000  # ps: what a queue held back begins so near to its head
LAUNCH, STREAM, SYNC, LEFT = range(4)
_TYPICAL = {LAUNCH: 5_000_000, STREAM: 1_000_000, SYNC: 1_000_000, LEFT: 0}


class RankWork(msgspec.Struct, frozen=True):
    """All that one rank's part of the graph is made of."""

    activity: Activity
    pieces: Mapping[ThreadName, Pieces]
    waits: Mapping[int, list[int]]


class Ties(msgspec.Struct, frozen=True, eq=False):
    """What GPU work waits for: a row per cause, in the order of the work.

    `op` waits for `source`, GPU work if that is 0 or more, else piece `-1 - source` (pieces are
    counted through all threads); `delay` in ps. `binding` is the row that released each op, with
    its `latency`; `kind` says how each row is tied. `queued` is the work that stood in a queue
    behind that of another stream.
    """

    op: Ints
    source: Ints
    kind: Ints
    delay: Ints
    binding: Ints
    latency: Ints
    queued: tuple[int, ...] = ()

    @property
    def held(self) -> Bools:
        """Which of `binding` do not explain when their work began."""
        unexplained: Bools = (self.latency > LONG) & (self.kind[self.binding] != LEFT)
        return unexplained


def ties(work: RankWork) -> Ties:
    """Return what each piece of GPU work waits for, and what released it."""
    found = _ties(work, work.waits)
    queued = dict(_behind(work, found))
    if not queued:
        return found
    waits = {op: [*work.waits.get(op, ()), *queued.get(op, ())] for op in {**work.waits, **queued}}
    return replace(_ties(work, waits), queued=tuple(queued))


def _behind(work: RankWork, tied: Ties) -> Iterator[tuple[int, list[int]]]:
    """Yield each op that stood in a queue behind another, and the GPU work that released that."""
    gpu = work.activity.gpu
    start, launched, stream = gpu.events.start, gpu.launched, gpu.events.stream
    held = tied.op[tied.binding[tied.held]]
    free = gpu.has_launch.copy()
    free[held] = False
    for op in held[gpu.has_launch[held]].tolist():
        near = np.arange(*np.searchsorted(start, (start[op] - _NEXT, start[op] + _NEXT)))
        ahead = near[free[near] & (launched[near] < launched[op]) & (stream[near] != stream[op])]
        if not ahead.size:
            continue
        first = ahead[np.argmax(launched[ahead])]
        sources = tied.source[slice(*np.searchsorted(tied.op, (first, first + 1)))]
        sources = sources[sources >= 0]
        if released := sources[gpu.events.end[sources] <= start[op]].tolist():
            yield op, released


def _ties(work: RankWork, waits: Mapping[int, list[int]]) -> Ties:
    op, source, ended, kind = _causes(work, waits)
    start = work.activity.gpu.events.start
    first = _first_of_each(op)
    left = np.maximum(0, start[op] - ended)
    typical = _typical(start, op, ended, kind, first)[kind]
    binding = _last_of_each(ended + typical, op, first)
    delay = np.minimum(typical, left)
    delay[binding] = left[binding]
    return Ties(op, source, kind, delay, binding, left[binding])


def _causes(work: RankWork, waits_of: Mapping[int, list[int]]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (op, source, when that ended, kind) of all causes, as in `Ties`, op by op."""
    gpu = work.activity.gpu
    synced = [(op, source) for op, sources in waits_of.items() for source in sources]
    waits = np.array(synced, np.int64).reshape(-1, 2)
    order = np.argsort(gpu.events.stream, kind="stable")
    follows = gpu.events.stream[order[1:]] == gpu.events.stream[order[:-1]]
    after, before = order[1:][follows], order[:-1][follows]
    alone = np.ones(len(gpu), bool)
    alone[waits[:, 0]] = alone[after] = False
    launched = np.flatnonzero(gpu.has_launch | alone)
    known, piece = gpu.has_launch[launched], launch_pieces(work)[launched]
    main = _main(work)
    piece = np.where(known, piece, main)
    ends = np.concatenate([pieces.end for pieces in work.pieces.values()])
    op = np.concatenate((waits[:, 0], after, launched))
    columns = (
        op,
        np.concatenate((waits[:, 1], before, -1 - piece)),
        np.concatenate((gpu.events.end[waits[:, 1]], gpu.events.end[before], ends[piece])),
        np.concatenate(
            (np.full(len(waits), SYNC), np.full(len(after), STREAM), np.where(known, LAUNCH, LEFT))
        ),
    )
    by_op = np.argsort(op, kind="stable")
    op, source, ended, kind = (column[by_op] for column in columns)
    return op, source, ended, kind


def _main(work: RankWork) -> int:
    """Return the first piece of the main thread, counted through all threads.

    What a GPU still had to do when the recording began hangs on it.
    """
    before = 0
    for name, pieces in work.pieces.items():
        if name == work.activity.main:
            break
        before += len(pieces)
    return before


def launch_pieces(work: RankWork) -> Ints:
    """Return the piece that ends where each piece of GPU work was launched, -1 if not recorded.

    Pieces are counted through all threads.
    """
    gpu, before = work.activity.gpu, 0
    found = np.full(len(gpu), -1)
    for name, pieces in work.pieces.items():
        own = gpu.thread == gpu.threads.index(name)
        found[own] = before + pieces.at(gpu.launched[own])
        before += len(pieces)
    return found


def _typical(start: Ints, op: Ints, ended: Ints, kind: Ints, first: Ints) -> Ints:
    """Return the median latency of each kind of tie, over the ops that it alone released."""
    last = _last_of_each(ended, op, first)
    latency = start[op[last]] - ended[last]
    fits = (latency >= 0) & (latency <= LONG)
    seen = {of: latency[fits & (kind[last] == of)] for of in _TYPICAL}
    usual = [round(float(np.median(seen[of]))) if seen[of].size else _TYPICAL[of] for of in seen]
    return np.array(usual)


def _first_of_each(op: Ints) -> Ints:
    """Return the first row of each op; every op has one, and they are in order."""
    return np.flatnonzero(np.diff(op, prepend=-1))


def _last_of_each(times: Ints, op: Ints, first: Ints) -> Ints:
    """Return, for each op, the first of its rows with the latest time."""
    if not op.size:
        return first
    latest = np.flatnonzero(times == np.maximum.reduceat(times, first)[op])
    return latest[_first_of_each(op[latest])]
