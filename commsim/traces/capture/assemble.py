"""
Recordings of ranks become one workload graph: streams, events and waits become dependencies.

What CUDA and ProcessGroupNCCL do: an event holds all that its stream held; a collective that is
not told to run on the caller's stream waits for it on a stream of the group, and the caller's
stream waits for it where the program waits. Every op waits for the program to issue it: for the
begin of the step, or where the program last waited for the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from commsim.arrays import Ints
from commsim.errors import TraceError
from commsim.graph import HOST_STREAM, Device, Fold, Graph, GraphBuilder, Phase, Tags
from commsim.ops import ROOTED
from commsim.traces.capture.axes import FoundAxes, message_axes
from commsim.traces.capture.records import (
    CapturedCall,
    CapturedMessage,
    CapturedWork,
    Mark,
    Product,
    Recording,
    Sync,
    Waited,
    WaitsFor,
)

__all__ = ["assemble", "op_name", "roles_of"]

_ROOTED = ROOTED | {"all_to_all_v"}


def assemble(recordings: Mapping[int, Recording], *, script: str = "") -> Graph:
    """Return the graph of all ranks; one lane per role if ranks are equivalent.

    Raises:
        TraceError: the ranks made different groups, or one sends to a rank whose part no process
            recorded.
    """
    first = recordings[min(recordings)]
    axes = _axes_of(recordings)
    roles = roles_of(recordings, axes)
    fold = Fold.of(_fold_roles(recordings, roles), axes.rows, _pairs(recordings, axes))
    build = GraphBuilder(fold)
    products: dict[str, Product] = {}
    launches: dict[str, int] = {}
    for rank in fold.representatives:
        _Lane(build, recordings[int(roles[rank])], rank, axes, products, launches).emit()
    graph = build.build()
    of_ops = (products, launches)
    return _with_meta(graph, recordings, roles, of_ops, script=script, torch=first.torch)


def op_name(work: CapturedWork) -> str:
    """Return an op's name; that of a product tells its shape, that of several kernels how many."""
    p = work.product
    if p is None or not p.m:
        return f"{work.op} in {work.launches}" if work.launches > 1 else work.op
    batch = f" x{p.batch}" if p.batch > 1 else ""
    causal = " causal" if p.causal else ""
    return f"{work.op} {p.m}x{p.k}x{p.n}{batch} {p.dtype}{causal}"


def roles_of(recordings: Mapping[int, Recording], axes: FoundAxes) -> Ints:
    """Return for every rank the recorded rank that it does the same as.

    That is the nearest recorded rank below it which stands at the same place of all groups that
    messages are sent in (else the lowest such).

    Raises:
        TraceError: no recorded rank stands there.
    """
    used = list(dict.fromkeys(a for r in recordings.values() for a in message_axes(r, axes)))
    places = np.stack([np.zeros(axes.world, np.int64), *(axes.positions(a) for a in used)], axis=1)
    known: dict[tuple[int, ...], list[int]] = {}
    for rank in sorted(recordings):
        known.setdefault(tuple(places[rank].tolist()), []).append(rank)
    roles = np.zeros(axes.world, np.int64)
    for rank, place in enumerate(map(tuple, places.tolist())):
        if place not in known:
            raise TraceError(
                f"rank {rank}: its part was not captured; no captured rank stands where it does"
                f" in the groups of {' and '.join(used)}. Add it with --ranks."
            )
        below = [one for one in known[place] if one <= rank]
        roles[rank] = below[-1] if below else known[place][0]
    return roles


def _axes_of(recordings: Mapping[int, Recording]) -> FoundAxes:
    """Return the axes that all recorded ranks agree on."""
    first, *others = (recordings[rank] for rank in sorted(recordings))
    for other in others:
        if other.groups != first.groups:
            raise TraceError(
                f"ranks {first.rank} and {other.rank} made different process groups. Every rank"
                " must make all groups, in the same order, those it is not in as well."
            )
    return FoundAxes.of(first.groups, first.world)


def _fold_roles(recordings: Mapping[int, Recording], roles: Ints) -> Ints:
    """Return the roles for folding: all ranks apart if a root or splits tell them apart."""
    records = (record for one in recordings.values() for record in one.records)
    rooted = any(isinstance(record, CapturedCall) and record.op in _ROOTED for record in records)
    return np.arange(len(roles)) if rooted else roles


def _pairs(recordings: Mapping[int, Recording], axes: FoundAxes) -> dict[str, Ints]:
    """Return the ordered pairs of ranks of every pattern of messages, by its name."""
    pairs: dict[str, Ints] = {}
    for recording in recordings.values():
        for record in recording.records:
            if isinstance(record, CapturedMessage):
                name, source, target = _ends(record, recording, axes)
                pairs[_pair(name, source, target)] = axes.rows[name][:, [source, target]]
    return pairs


def _ends(record: CapturedMessage, recording: Recording, axes: FoundAxes) -> tuple[str, int, int]:
    """Return the axis of a message, and the places of its two ends there."""
    name = axes.name_of[recording.groups[record.group].ranks]
    mine, theirs = axes.position(name, recording.rank), axes.position(name, record.peer)
    return (name, mine, theirs) if record.sends else (name, theirs, mine)


def _pair(axis: str, source: int, target: int) -> str:
    return f"{axis} {source} to {target}"


class _Lane:
    """Turns the recording of one rank into the ops of a lane."""

    def __init__(
        self,
        build: GraphBuilder,
        recording: Recording,
        rank: int,
        axes: FoundAxes,
        products: dict[str, Product],
        launches: dict[str, int],
    ) -> None:
        self.build, self.recording, self.rank, self.axes = build, recording, rank, axes
        self.products, self.launches = products, launches
        self.lane = build.lane(rank)
        self.tail: dict[str, int] = {}
        self.pending: dict[str, list[int]] = {}
        self.host = self._waits("step begins", [])
        self.events: dict[int, list[int]] = {}
        self.done: dict[int, int] = {}
        self.batches: dict[int, int] = {}
        self.alloc = self.free = 0

    def emit(self) -> None:
        """Add all records."""
        for record in self.recording.records:
            self._handlers[type(record)](self, record)

    def _work(self, record: CapturedWork) -> None:
        name, stream = op_name(record), self._stream(record.stream)
        if record.product is not None:
            self.products[name] = record.product
        if record.launches > 1:
            self.launches[name] = record.launches
        alloc, free = self.alloc + record.alloc, self.free + record.free
        self.alloc = self.free = 0
        self._issued(
            stream,
            self.build.compute(
                self.lane,
                -1,
                name=name,
                stream=stream,
                after=self._causes(stream),
                tags=_tags(record),
                flops=record.flops,
                traffic=float(record.traffic),
                alloc=alloc,
                free=free,
            ),
        )

    def _call(self, record: CapturedCall) -> None:
        axis = self._axis(record.group)
        group = self.build.orbit(axis, self.rank)
        stream, after = self._where(record.stream, f"{axis} collectives", internal=record.internal)
        root = -1
        if record.root >= 0:
            place = self.axes.position(axis, record.root)
            root = self.axes.row(axis, self.rank)[place]
        op = self.build.collective(
            self.lane,
            group,
            record.op,
            record.size,
            stream=stream,
            root=root,
            dtype=record.dtype,
            redop=record.redop,
            splits=record.splits or None,
            after=after,
            tags=_tags(record),
        )
        self._moved(record, stream, op)

    def _message(self, record: CapturedMessage) -> None:
        axis, source, target = _ends(record, self.recording, self.axes)
        group = self.build.orbit(axis, self.rank)
        batch, own = -1, f"{axis} {min(source, target)}-{max(source, target)}"
        if record.batch >= 0:
            own = f"{axis} messages"
            batch = self.batches.setdefault(record.batch, -1)
            if batch < 0:
                batch = self.batches[record.batch] = self.build.batch()
        stream, after = self._where(record.stream, own, internal=True)
        post = self.build.send if record.sends else self.build.recv
        op = post(
            self.lane,
            _pair(axis, source, target),
            record.size,
            group=group,
            stream=stream,
            tag=record.tag,
            batch=batch,
            after=after,
            tags=_tags(record),
        )
        self._moved(record, stream, op)

    def _waited(self, record: Waited) -> None:
        if record.id in self.done:
            self._pend(self._stream(record.stream), [self.done[record.id]])

    def _mark(self, record: Mark) -> None:
        self.events[record.event] = self._held(self._stream(record.stream))

    def _waits_for(self, record: WaitsFor) -> None:
        self._pend(self._stream(record.stream), self.events.get(record.event, []))

    def _sync(self, record: Sync) -> None:
        streams = list(self.tail) if record.stream < 0 else [self._stream(record.stream)]
        held = {op for stream in streams for op in self._held(stream)}
        self.host = self._waits("host waits for GPU", [self.host, *sorted(held)])

    def _waits(self, name: str, after: list[int]) -> int:
        """Add an op of the program itself, behind which it goes on to issue."""
        return self.build.compute(
            self.lane,
            0,
            name=name,
            stream=HOST_STREAM,
            after=after,
            tags=Tags(step=0),
            device=Device.CPU,
        )

    def _where(self, caller: int, own: str, *, internal: bool) -> tuple[str, list[int]]:
        """Return the stream that communication runs on, and what it waits for there."""
        stream = self._stream(caller)
        if not internal:
            return stream, self._causes(stream)
        return own, sorted({*self._held(stream), *self._causes(own)})

    def _moved(self, record: CapturedCall | CapturedMessage, stream: str, op: int) -> None:
        """Take note of communication; the memory it takes and leaves counts at the next op."""
        self._issued(stream, op)
        self.done[record.id] = op
        self.alloc += record.alloc
        self.free += record.free

    def _issued(self, stream: str, op: int) -> None:
        self.tail[stream] = op

    def _causes(self, stream: str) -> list[int]:
        """Return what the next op of a stream waits for besides its predecessor."""
        return sorted({self.host, *self.pending.pop(stream, [])})

    def _held(self, stream: str) -> list[int]:
        """Return what must have ended for all that a stream holds now to have ended."""
        tail = [self.tail[stream]] if stream in self.tail else []
        return tail + self.pending.get(stream, [])

    def _pend(self, stream: str, ops: list[int]) -> None:
        self.pending.setdefault(stream, []).extend(ops)

    def _stream(self, number: int) -> str:
        return self.recording.streams[number]

    def _axis(self, group: int) -> str:
        return self.axes.name_of[self.recording.groups[group].ranks]

    _handlers: Mapping[type, Any] = {
        CapturedWork: _work,
        CapturedCall: _call,
        CapturedMessage: _message,
        Waited: _waited,
        Mark: _mark,
        WaitsFor: _waits_for,
        Sync: _sync,
    }


def _tags(record: CapturedWork | CapturedCall | CapturedMessage) -> Tags:
    return Tags(phase=Phase(record.phase), step=0, microbatch=record.microbatch, stage=record.stage)


def _with_meta(
    graph: Graph,
    recordings: Mapping[int, Recording],
    roles: Ints,
    of_ops: tuple[Mapping[str, Product], Mapping[str, int]],
    *,
    script: str,
    torch: str,
) -> Graph:
    """Return the graph with what is known of it besides its ops, under `capture` in its meta."""
    from types import MappingProxyType

    from msgspec.structs import replace

    ranks = np.bincount(roles, minlength=len(roles))
    work = {
        rank: [record for record in recording.records if isinstance(record, CapturedWork)]
        for rank, recording in recordings.items()
    }
    total = {
        again: sum(
            float(ranks[rank]) * sum(op.flops for op in ops if again or not op.again)
            for rank, ops in work.items()
        )
        for again in (False, True)
    }
    memory = {
        str(rank): {
            "parameters": one.memory.parameters,
            "gradients": one.memory.gradients,
            "optimizer": one.memory.optimizer,
            "other": one.memory.other,
            "peak": one.memory.peak,
        }
        for rank, one in recordings.items()
    }
    notes = [f"rank {r}: {note}" for r, one in sorted(recordings.items()) for note in one.notes]
    capture = {
        "script": script,
        "torch": torch,
        "model_flops": total[False],
        "hardware_flops": total[True],
        "role_of_rank": roles.tolist(),
        "memory": memory,
        "products": {
            name: [p.kind, p.m, p.n, p.k, p.batch, p.dtype, p.causal]
            for name, p in of_ops[0].items()
        },
        "launches": dict(of_ops[1]),
        "notes": notes,
    }
    return replace(graph, meta=MappingProxyType({"capture": capture}))
