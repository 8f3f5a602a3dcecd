"""
Causes of GPU work: what each op waited for, and with which latency.

Work starts when the last of its causes ended, plus a latency (of the launch, of the stream)
that stays with that cause. Where a cause was the one that released the work, its latency is
what was recorded; if another one was, the rank's median is taken, or less if less was
left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from commsim.traces.rebuild.rank.activity import Activity
from commsim.traces.rebuild.rank.threads import Piece, ThreadName

__all__ = [
    "LAUNCH",
    "LEFT",
    "LONG",
    "Key",
    "LaunchCause",
    "RankWork",
    "Tie",
    "launch_piece",
    "piece_at",
    "ties",
]

LONG = 100_000_000  # ps: no launch and no stream takes 100 us; something else held the op
LAUNCH, STREAM, SYNC, LEFT = "launch", "stream", "sync", "left over"
_TYPICAL = {LAUNCH: 5_000_000, STREAM: 1_000_000, SYNC: 1_000_000, LEFT: 0}


Key = tuple[object, int]


@dataclass(frozen=True, slots=True)
class RankWork:
    """All that one rank's part of the graph is made of."""

    activity: Activity
    pieces: Mapping[ThreadName, list[Piece]]
    waits: Mapping[int, list[int]]


@dataclass(frozen=True, slots=True)
class LaunchCause:
    """What an op waits for: a GPU op or a piece (by key), when that ended, and how it is tied."""

    key: Key
    ended: int
    kind: str


@dataclass(frozen=True, slots=True)
class Tie:
    """The causes of one piece of GPU work with their delays; `binding` is what released it."""

    delays: tuple[tuple[Key, int], ...]
    binding: LaunchCause
    latency: int


def ties(work: RankWork) -> Iterator[Tie]:
    """Yield what each piece of GPU work waits for, in order."""
    causes = _gpu_causes(work)
    typical = _typical(work, causes)
    for op, of_op in zip(work.activity.gpu, causes, strict=True):
        binding = max(of_op, key=lambda cause: cause.ended + typical[cause.kind])
        left = {cause: max(0, op.event.start - cause.ended) for cause in of_op}
        delays = tuple(
            (c.key, left[c] if c is binding else min(typical[c.kind], left[c])) for c in of_op
        )
        yield Tie(delays, binding, left[binding])


def _gpu_causes(work: RankWork) -> list[list[LaunchCause]]:
    causes: list[list[LaunchCause]] = []
    before: dict[int, int] = {}
    for index, op in enumerate(work.activity.gpu):
        earlier = [(i, SYNC) for i in work.waits.get(index, ())]
        if op.event.stream in before:
            earlier.append((before[op.event.stream], STREAM))
        of_op = [
            LaunchCause(("gpu", i), work.activity.gpu[i].event.end, kind) for i, kind in earlier
        ]
        if op.launch or not of_op:
            of_op.append(_launch_cause(work, index))
        before[op.event.stream] = index
        causes.append(of_op)
    return causes


def _launch_cause(work: RankWork, index: int) -> LaunchCause:
    """Return the piece that ends where GPU work was launched.

    What a GPU still had to do when the recording began hangs on its beginning.
    """
    place = launch_piece(work, index)
    thread, at = place or (work.activity.main, 0)
    return LaunchCause((thread, at), work.pieces[thread][at].end, LAUNCH if place else LEFT)


def launch_piece(work: RankWork, index: int) -> tuple[ThreadName, int] | None:
    """Return the piece (thread, index) that ends where GPU work was launched, if recorded."""
    launch = work.activity.gpu[index].launch
    if launch is None:
        return None
    time = work.activity.event(launch).start
    return launch.thread, piece_at(work.pieces[launch.thread], time)


def _typical(work: RankWork, causes: Sequence[Sequence[LaunchCause]]) -> dict[str, int]:
    """Return the median latency of each kind of tie, over the ops that it alone released."""
    seen: dict[str, list[int]] = {}
    for op, of_op in zip(work.activity.gpu, causes, strict=True):
        last = max(of_op, key=lambda cause: cause.ended)
        latency = op.event.start - last.ended
        if 0 <= latency <= LONG:
            seen.setdefault(last.kind, []).append(latency)
    return {kind: round(median(seen.get(kind, [usual]))) for kind, usual in _TYPICAL.items()}


def piece_at(pieces: Sequence[Piece], time: int) -> int:
    """Return the last piece that ends at `time` or before."""
    return max(0, bisect_right(pieces, time, key=lambda piece: piece.end) - 1)
