"""
The notebook of a capture: what the program issues, in order, and the streams it issues it on.

`Stream` and `CapturedEvent` stand in for those of a GPU: torch's own code (FSDP2, the pipelines)
issues its real program of streams and events to them.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import msgspec
import torch

from commsim.graph import Phase
from commsim.traces.capture.records import CapturedMemory, Mark, Record, Sync, WaitsFor

__all__ = [
    "CaptureRecorder",
    "CapturedEvent",
    "Stream",
    "StreamContext",
    "current_stream",
    "in_backward",
    "recorder",
]


class CaptureRecorder:
    """Collects records; what allocates and frees memory between two of them goes to either."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.notes: dict[str, None] = {}
        self.phase = Phase.NONE
        self.stage = self.microbatch = self.batch = -1
        self.calls = 0
        self.batches = 0
        self.held = self.peak = self.pending = 0
        self.start = CapturedMemory()
        self.on = True

    def note(self, text: str) -> None:
        """Say something of the capture, once."""
        self.notes[text] = None

    def add(self, record: Record) -> None:
        """Append a record; what issues work takes the memory that was allocated before it."""
        if not self.on:
            return
        if self.pending and hasattr(record, "alloc"):
            record = msgspec.structs.replace(record, alloc=self.pending)
            self.pending = 0
        self.records.append(record)

    def number(self) -> int:
        """Return a new number for a call or a message."""
        self.calls += 1
        return self.calls

    def allocated(self, size: int) -> None:
        """Take note of `size` bytes of tensors that now exist."""
        self.held += size
        self.peak = max(self.peak, self.held)
        self.pending += size

    def freed(self, size: int) -> None:
        """Take note of `size` bytes that are free when the last op has run."""
        self.held -= size
        if size <= self.pending:
            self.pending -= size  # it came and went without any work on it
            return
        for at in range(len(self.records) - 1, -1, -1):
            record = self.records[at]
            if hasattr(record, "free"):
                self.records[at] = msgspec.structs.replace(record, free=record.free + size)
                return

    def restart(self, memory: CapturedMemory) -> None:
        """Forget what was recorded: a step begins, with `memory` held."""
        self.records = []
        self.start = memory
        self.peak, self.pending = self.held, 0

    @property
    def tags(self) -> dict[str, int]:
        """Where the program is, for the fields of that name."""
        backward = self.phase != Phase.OPTIMIZER and in_backward()
        phase = Phase.BACKWARD if backward else self.phase
        return {"phase": int(phase), "stage": self.stage, "microbatch": self.microbatch}


def in_backward() -> bool:
    """Return whether autograd is running."""
    return bool(torch._C._current_graph_task_id() != -1)


recorder = CaptureRecorder()


class Stream:
    """A stream of the captured GPU."""

    made: list[Stream] = []

    def __init__(self, *how: Any, **more: Any) -> None:
        self.number = len(Stream.made)
        self.name = f"stream {self.number}" if self.number else "compute"
        Stream.made.append(self)

    def wait_stream(self, other: Stream) -> None:
        """Let what comes here wait for all that `other` holds now."""
        self.wait_event(other.record_event())

    def wait_event(self, event: CapturedEvent) -> None:
        """Let what comes here wait for an event."""
        recorder.add(WaitsFor(event.number, self.number))

    def record_event(self, event: CapturedEvent | None = None) -> CapturedEvent:
        """Record an event here."""
        event = event or CapturedEvent()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Let the program wait for this stream."""
        recorder.add(Sync(self.number))

    def query(self) -> bool:
        """Say that the stream has run dry."""
        return True

    def __enter__(self) -> Stream:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.pop()


class CapturedEvent:
    """An event of the captured GPU."""

    made = 0

    def __init__(self, *how: Any, **more: Any) -> None:
        CapturedEvent.made += 1
        self.number = CapturedEvent.made
        self.stream = -1

    def record(self, stream: Stream | None = None) -> CapturedEvent:
        """Record the event on a stream, the current one by default."""
        self.stream = (stream or current_stream()).number
        recorder.add(Mark(self.number, self.stream))
        return self

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream wait for the event."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Let the program wait for the event."""
        recorder.add(Sync(self.stream))

    def query(self) -> bool:
        """Say that the event has happened."""
        return True

    def elapsed_time(self, other: CapturedEvent) -> float:
        """Return a time that is no measurement."""
        recorder.note("events were asked for elapsed times: they were told 1 ms.")
        return 1.0


class StreamContext:
    """`with torch.cuda.stream(s)`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        _current.append(self.stream or _current[-1])

    def __exit__(self, *error: object) -> None:
        _current.pop()


def current_stream(device: Any = None) -> Stream:
    """Return the stream that ops are issued to now."""
    return _current[-1]


_current = [Stream()]
