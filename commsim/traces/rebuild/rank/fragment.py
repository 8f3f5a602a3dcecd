"""
One rank's part of the graph: its ops as columns, before the ranks are brought together.

It is made of one file alone, in a process of its own if there are many. Communication is
still the rank's own call (`item` is its index); times are on the clock of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from commsim.arrays import Ints
from commsim.graph import Device, OpKind, Phase
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.calls import CollectiveCall, RankCollectives
from commsim.traces.rebuild.rank.causes import (
    LEFT,
    LONG,
    Key,
    RankWork,
    launch_piece,
    piece_at,
    ties,
)
from commsim.traces.rebuild.rank.gloo_work import FIRST_MESSAGES

__all__ = ["Fragment", "fragment_of"]

_MAX_NAME = 200


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
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
    left_over: int

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(slots=True)
class _FragmentDraft:
    work: RankWork
    calls: Mapping[int, tuple[int, CollectiveCall]]
    rows: list[tuple[int, ...]] = field(default_factory=list)
    deps: list[list[tuple[int, int]]] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    ids: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    batches: int = 0
    held: int = 0
    held_ops: int = 0
    left_over: int = 0


def fragment_of(work: RankWork, calls: RankCollectives) -> Fragment:
    """Return a rank's ops, from its pieces of CPU work and its GPU work."""
    draft = _FragmentDraft(work, {c.kernel: (number, c) for number, c in enumerate(calls.calls)})
    streams = _stream_names(work)
    for start, _, key in sorted(_items(work), key=lambda item: item[:2]):
        if isinstance(key[0], str):
            draft.ids[key] = _add_gpu(draft, key[1], streams)
        else:
            piece = work.pieces[key[0]][key[1]]  # type: ignore[index]
            draft.ids[key] = (
                _add(
                    draft,
                    OpKind.COMPUTE,
                    streams[piece.thread],
                    piece.name,
                    start,
                    piece.end,
                    device=Device.CPU,
                    phase=piece.phase,
                    duration=piece.end - piece.start,
                ),
            )
    _tie_pieces(draft)
    _tie_gpu(draft)
    return _finished(draft)


def _items(work: RankWork) -> list[tuple[int, tuple[int, int], Key]]:
    """Return (start, order, key) of all ops; pieces come before GPU work at one instant."""
    items: list[tuple[int, tuple[int, int], Key]] = []
    for number, (thread, pieces) in enumerate(work.pieces.items()):
        for index, piece in enumerate(pieces):
            items.append((piece.start, (number - len(work.pieces), index), (thread, index)))
    for index, op in enumerate(work.activity.gpu):
        items.append((op.event.start, (0, index), ("gpu", index)))
    return items


def _stream_names(work: RankWork) -> dict[object, str]:
    """Name the streams: cpu, autograd, cpu 2 ..., stream 7, nccl 84, gloo 1."""
    names: dict[object, str] = {work.activity.main: "cpu"}
    for number, thread in enumerate(work.pieces, start=1):
        backward = thread in work.activity.backward and "autograd" not in names.values()
        names.setdefault(thread, "autograd" if backward else f"cpu {number}")
    kinds: dict[int, set[str]] = {}
    for op in work.activity.gpu:
        kind = "nccl" if op.is_collective else "comm" if op.communicates else "stream"
        kinds.setdefault(op.event.stream, set()).add(kind)
    for stream, of_stream in kinds.items():
        if stream <= FIRST_MESSAGES:
            names[stream] = f"messages {FIRST_MESSAGES - stream + 1}"
        elif stream < -1:
            names[stream] = f"gloo {-1 - stream}"
        else:
            kind = of_stream.pop() if len(of_stream) == 1 else "stream"
            names[stream] = f"{kind} {stream}"
    return names


def _add(
    draft: _FragmentDraft,
    kind: OpKind,
    stream: str,
    name: str,
    start: int,
    end: int,
    *,
    device: Device = Device.CUDA,
    phase: Phase = Phase.NONE,
    duration: int = -1,
    batch: int = -1,
    item: int = -1,
    message: int = -1,
) -> int:
    draft.rows.append(
        (
            kind,
            draft.streams.setdefault(stream, len(draft.streams)),
            draft.names.setdefault(name[:_MAX_NAME], len(draft.names)),
            duration,
            device,
            phase,
            batch,
            item,
            message,
            start,
            end,
        )
    )
    draft.deps.append([])
    draft.cause.append(-1)
    return len(draft.rows) - 1


def _add_gpu(draft: _FragmentDraft, index: int, streams: Mapping[object, str]) -> tuple[int, ...]:
    """Add GPU work: one op, or one per message of a kernel that sends and receives."""
    op = draft.work.activity.gpu[index]
    event, stream = op.event, streams[op.event.stream]
    phase = _phase(draft.work, index)
    device = Device.CPU if op.is_gloo else Device.CUDA
    number, call = draft.calls.get(index, (-1, None))
    if call is not None and call.op == "messages":
        batch = draft.batches if len(call.messages) > 1 else -1
        draft.batches += batch >= 0
        return tuple(
            _add(
                draft,
                OpKind.SEND if message.op == "send" else OpKind.RECV,
                stream,
                f"{message.op} {message.peer}",
                event.start,
                event.end,
                device=device,
                phase=phase,
                batch=batch,
                item=number,
                message=at,
            )
            for at, message in enumerate(call.messages)
        )
    if call is not None:
        return (
            _add(
                draft,
                OpKind.COLLECTIVE,
                stream,
                call.op,
                event.start,
                event.end,
                device=device,
                phase=phase,
                item=number,
            ),
        )
    kind = OpKind.COMPUTE if event.kind == EventKind.KERNEL else OpKind.COPY
    return (
        _add(
            draft,
            kind,
            stream,
            event.name,
            event.start,
            event.end,
            phase=phase,
            duration=event.end - event.start,
        ),
    )


def _phase(work: RankWork, index: int) -> Phase:
    """Return the phase of the piece that launched GPU work."""
    place = launch_piece(work, index)
    return work.pieces[place[0]][place[1]].phase if place else Phase.NONE


def _tie_pieces(draft: _FragmentDraft) -> None:
    """Let pieces wait for the GPU work and the pieces of other threads that held them."""
    work, ids = draft.work, draft.ids
    for thread, pieces in work.pieces.items():
        for index, piece in enumerate(pieces):
            (op,) = ids[thread, index]
            sources = [
                (work.activity.gpu[g].event.end, s) for g in piece.gpu for s in ids["gpu", g]
            ]
            for other, time in piece.after:
                at = piece_at(work.pieces[other], time)
                sources.append((work.pieces[other][at].end, ids[other, at][0]))
            draft.deps[op] += [(source, 0) for _, source in sources]
            before = (pieces[index - 1].end, ids[thread, index - 1][0]) if index else (-1, -1)
            draft.cause[op] = max([before, *sources])[1]


def _tie_gpu(draft: _FragmentDraft) -> None:
    """Let GPU work wait for its launch, its stream and other streams, each with its latency."""
    for index, tie in enumerate(ties(draft.work)):
        for op in draft.ids["gpu", index]:
            for key, delay in tie.delays:
                draft.deps[op] += [(source, delay) for source in draft.ids[key]]
            draft.cause[op] = draft.ids[tie.binding.key][-1]
        draft.left_over += tie.binding.kind == LEFT
        if tie.latency > LONG and tie.binding.kind != LEFT:
            draft.held += tie.latency
            draft.held_ops += 1


def _window(draft: _FragmentDraft) -> tuple[int, int]:
    """Return the profiled step: the main thread's pieces from its start to its end."""
    main = draft.work.activity.main
    pieces, step = draft.work.pieces[main], draft.work.activity.step
    start, end = (step.start, step.end) if step else (pieces[0].start, pieces[-1].end)
    inside = [i for i, p in enumerate(pieces) if p.start >= start and p.end <= end]
    if not inside:
        return -1, -1
    return draft.ids[main, inside[0]][0], draft.ids[main, inside[-1]][0]


def _finished(draft: _FragmentDraft) -> Fragment:
    columns = np.array(draft.rows, dtype=np.int64).reshape(-1, 11).T.copy()
    flat = np.array([d for deps in draft.deps for d in deps], dtype=np.int64).reshape(-1, 2)
    kind, stream, name, duration, device, phase, batch, item, message, start, end = columns
    return Fragment(
        kind=kind,
        stream=stream,
        name=name,
        duration=duration,
        device=device,
        phase=phase,
        batch=batch,
        item=item,
        message=message,
        start=start,
        end=end,
        cause=np.array(draft.cause, dtype=np.int64),
        dep_ptr=np.cumsum([0, *(len(deps) for deps in draft.deps)], dtype=np.int64),
        dep_op=flat[:, 0].copy(),
        dep_delay=flat[:, 1].copy(),
        names=tuple(draft.names),
        streams=tuple(draft.streams),
        window=_window(draft),
        begin=min(pieces[0].start for pieces in draft.work.pieces.values()),
        held=draft.held,
        held_ops=draft.held_ops,
        left_over=draft.left_over,
    )
