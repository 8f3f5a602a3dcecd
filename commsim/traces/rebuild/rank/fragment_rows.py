"""
The rows of a rank's part of the graph, in order of start: what each op is, and where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.graph import Device, OpKind, Phase
from commsim.traces.formats import EventKind
from commsim.traces.rebuild.rank.calls import CollectiveCall, RankCollectives
from commsim.traces.rebuild.rank.causes import RankWork, launch_pieces
from commsim.traces.rebuild.rank.gloo_work import FIRST_MESSAGES
from commsim.traces.rebuild.rank.threads import ThreadName

__all__ = ["FragmentRows", "in_order", "rows_of"]

_MAX_NAME = 200
_Rows = dict[str, Ints]


class FragmentRows(msgspec.Struct, frozen=True, eq=False):
    """The ops of a rank as columns, in order of start.

    Before they were put in order, the pieces of all threads stood first, those of a thread in its
    span of `threads`, then GPU work. `place` is where a row stands now. What a source of `Ties`
    stands for (GPU work, or a piece by a negative index) was `counts` rows from `first` on: a
    kernel that sends and receives has one per message.
    """

    columns: _Rows
    names: tuple[str, ...]
    streams: tuple[str, ...]
    place: Ints
    threads: dict[ThreadName, tuple[int, int]]
    first: Ints
    counts: Ints

    def __len__(self) -> int:
        return len(self.place)

    def pieces(self, thread: ThreadName) -> Ints:
        """Return the ops of a thread's pieces."""
        return self.place[slice(*self.threads[thread])]

    def gpu(self, index: int) -> list[int]:
        """Return the ops of a piece of GPU work."""
        first = self.first[index]
        found: list[int] = self.place[first : first + self.counts[index]].tolist()
        return found


class _Labels(msgspec.Struct):
    """Names and streams by number."""

    stream_names: dict[object, str]
    names: dict[str, int] = msgspec.field(default_factory=dict)
    streams: dict[str, int] = msgspec.field(default_factory=dict)

    def name(self, name: str) -> int:
        return self.names.setdefault(name[:_MAX_NAME], len(self.names))

    def stream(self, stream: object) -> int:
        return self.streams.setdefault(self.stream_names[stream], len(self.streams))

    def of_names(self, column: Ints, names: Sequence[str]) -> Ints:
        found, number = np.unique(column, return_inverse=True)
        return np.array([self.name(names[at]) for at in found.tolist()], np.int64)[number]

    def of_streams(self, column: Ints) -> Ints:
        found, number = np.unique(column, return_inverse=True)
        return np.array([self.stream(at) for at in found.tolist()], np.int64)[number]


def rows_of(work: RankWork, calls: RankCollectives) -> FragmentRows:
    """Return a rank's ops, from its pieces of CPU work and its GPU work."""
    labels = _Labels(_stream_names(work))
    threads: dict[ThreadName, tuple[int, int]] = {}
    before = 0
    for thread, pieces in work.pieces.items():
        threads[thread] = before, before + len(pieces)
        before += len(pieces)
    of_pieces, of_gpu = _piece_rows(work, labels), _gpu_rows(work, calls, labels)
    rows = {key: np.concatenate((column, of_gpu[key])) for key, column in of_pieces.items()}
    # Pieces come before GPU work at one instant: their threads are numbered below 0.
    order = np.lexsort((rows["message"], rows["index"], rows["thread"], rows["start"]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    counts = np.bincount(of_gpu["index"], minlength=len(work.activity.gpu))
    return FragmentRows(
        columns={key: column[order] for key, column in rows.items()},
        names=tuple(labels.names),
        streams=tuple(labels.streams),
        place=place,
        threads=threads,
        first=np.concatenate((before + np.cumsum(counts) - counts, np.arange(before)[::-1])),
        counts=np.concatenate((counts, np.ones(before, np.int64))),
    )


def in_order(column: Ints) -> tuple[Ints, Ints]:
    """Number the values of a column anew, in the order of their first; -1 is none, and stays so.

    Returns the column and the values in their new order.
    """
    known = np.flatnonzero(column >= 0)
    values, first, number = np.unique(column[known], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    found = np.full(len(column), -1)
    found[known] = rank[number]
    return found, values[order]


def _stream_names(work: RankWork) -> dict[object, str]:
    """Name the streams: cpu, autograd, cpu 2 ..., stream 7, nccl 84, gloo 1."""
    names: dict[object, str] = {work.activity.main: "cpu"}
    for number, thread in enumerate(work.pieces, start=1):
        backward = thread in work.activity.backward and "autograd" not in names.values()
        names.setdefault(thread, "autograd" if backward else f"cpu {number}")
    gpu = work.activity.gpu
    for stream in np.unique(gpu.events.stream).tolist():
        own = gpu.events.stream == stream
        if stream <= FIRST_MESSAGES:
            names[stream] = f"messages {FIRST_MESSAGES - stream + 1}"
        elif stream < -1:
            names[stream] = f"gloo {-1 - stream}"
        elif gpu.is_collective[own].all():
            names[stream] = f"nccl {stream}"
        elif (gpu.communicates & ~gpu.is_collective)[own].all():
            names[stream] = f"comm {stream}"
        else:
            names[stream] = f"stream {stream}"
    return names


def _piece_rows(work: RankWork, labels: _Labels) -> _Rows:
    parts: dict[str, list[Ints]] = {}
    for number, (thread, pieces) in enumerate(work.pieces.items()):
        none = np.full(len(pieces), -1)
        rows = {
            "kind": np.full(len(pieces), int(OpKind.COMPUTE)),
            "stream": np.full(len(pieces), labels.stream(thread)),
            "name": labels.of_names(pieces.name, pieces.names),
            "duration": pieces.end - pieces.start,
            "device": np.full(len(pieces), int(Device.CPU)), "phase": pieces.phase,
            "batch": none, "item": none, "message": none,
            "start": pieces.start, "end": pieces.end,
            "thread": none * (len(work.pieces) - number), "index": np.arange(len(pieces)),
        }  # fmt: skip
        for key, column in rows.items():
            parts.setdefault(key, []).append(column)
    return {key: np.concatenate(columns) for key, columns in parts.items()}


def _gpu_rows(work: RankWork, calls: RankCollectives, labels: _Labels) -> _Rows:
    """Return GPU work: one row, or one per message of a kernel that sends and receives."""
    events = work.activity.gpu.events
    count = len(events)
    phases = np.concatenate([*(each.phase for each in work.pieces.values()), [int(Phase.NONE)]])
    rows = {
        "kind": np.where(
            events.kind == EventKind.KERNEL, int(OpKind.COMPUTE), int(OpKind.COPY)
        ),
        "stream": labels.of_streams(events.stream),
        "name": labels.of_names(events.name, events.names),
        "duration": events.end - events.start,
        "device": np.full(count, int(Device.CUDA)), "phase": phases[launch_pieces(work)],
        "batch": np.full(count, -1), "item": np.full(count, -1), "message": np.full(count, -1),
        "start": events.start, "end": events.end,
        "thread": np.zeros(count, np.int64), "index": np.arange(count),
    }  # fmt: skip
    of_call = {call.kernel: call for call in calls.calls}
    repeats = np.ones(count, np.int64)
    for index, call in of_call.items():
        repeats[index] = len(call.messages) if call.op == "messages" else 1
    first = np.cumsum(repeats) - repeats
    rows = {key: np.repeat(column, repeats) for key, column in rows.items()}
    for number, call in enumerate(calls.calls):
        if of_call[call.kernel] is call:
            _fill_call(rows, int(first[call.kernel]), number, call, labels)
    on_cpu = work.activity.gpu.is_gloo[rows["index"]] & (rows["item"] >= 0)
    rows["device"][on_cpu] = int(Device.CPU)
    return rows


def _fill_call(rows: _Rows, at: int, number: int, call: CollectiveCall, labels: _Labels) -> None:
    """Say in the rows of a kernel what it communicates."""
    if call.op != "messages":
        rows["kind"][at], rows["name"][at] = int(OpKind.COLLECTIVE), labels.name(call.op)
        rows["item"][at], rows["duration"][at] = number, -1
        return
    for row, message in enumerate(call.messages, start=at):
        rows["kind"][row] = int(OpKind.SEND if message.op == "send" else OpKind.RECV)
        rows["name"][row] = labels.name(f"{message.op} {message.peer}")
        rows["item"][row], rows["duration"][row], rows["message"][row] = number, -1, row - at
        rows["batch"][row] = call.kernel if len(call.messages) > 1 else -1
