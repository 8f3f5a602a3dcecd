"""
The events of one process, collected from a profiler's tables until its rank is known.

Profilers other than torch's name things their own way; here they get the names by which the
rebuild knows them: a step is `ProfilerStep#N`, a call of NCCL an annotation `nccl:OP`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from commsim.ops import op_of
from commsim.traces.formats.event_args import NO_ARGS, EventArgs
from commsim.traces.formats.events import Event, EventKind, Events
from commsim.traces.formats.kineto import KinetoFile
from commsim.traces.formats.values import integer
from commsim.units import PS_PER_NS

__all__ = ["ProcessEvents", "is_step", "plain_call"]

_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")
_STEP = re.compile(
    r"(?:train|training|global|optimizer)?[ _-]?(?:step|iter|iteration)[\W_]*(\d*)", re.I
)
_MOST_NS, _LONGEST_NS = 2**60, 2**53  # no clock says more; no recording takes 100 days
_NCCL = re.compile(r"(?:NCCL:)?nccl(?=[A-Z])")


def plain_call(name: str) -> str:
    """Return the name of a call of the CUDA API without its version."""
    return _VERSION.sub("", name)


def is_step(name: str) -> bool:
    """Say whether a range is a step, by its name."""
    return _STEP.fullmatch(name) is not None


class ProcessEvents(msgspec.Struct):
    """The events of process `pid`, and how often it used which GPU; times in ns when added."""

    pid: int
    events: list[Event] = msgspec.field(default_factory=list)
    devices: Counter[int] = msgspec.field(default_factory=Counter)
    lost: int = 0
    steps: int = 0

    def add(
        self,
        kind: EventKind,
        name: str,
        thread: int,
        start: Any,
        end: Any,
        correlation: Any = 0,
        stream: Any = -1,
        args: EventArgs = NO_ARGS,
    ) -> None:
        """Keep an event whose times are possible."""
        begin, stop = integer(start), integer(end)
        if not 0 <= begin <= stop < _MOST_NS:
            self.lost += 1
            return
        where = (str(self.pid), str(thread))
        number, queue = integer(correlation, 0), integer(stream)
        self.events.append(
            Event(kind, name, where, begin * PS_PER_NS, stop * PS_PER_NS, number, queue, args)
        )

    def add_range(self, name: str, thread: int, start: Any, end: Any) -> None:
        """Keep a range of NVTX or roctx: of the script, of torch, of a step, or of NCCL."""
        if (step := _STEP.fullmatch(name)) is not None:
            number = step[1] or str(self.steps)
            self.steps += 1
            self.add(EventKind.ANNOTATION, f"ProfilerStep#{number}", thread, start, end)
            return
        if (nccl := _NCCL.match(name)) is not None:
            op = op_of(name[nccl.end() :])
            self.add(EventKind.ANNOTATION, f"nccl:{op}" if op else name, thread, start, end)
            return
        # torch's own ranges carry numbers after the name: "aten::mm, seq = 7"
        plain = name.split(", ")[0]
        is_op = EventKind.CPU_OP if "::" in plain else EventKind.ANNOTATION
        self.add(is_op, plain, thread, start, end)

    def launch_at(self, times: Sequence[int]) -> None:
        """Let the n-th of some times, in ns, have launched all GPU work up to the next of them.

        Its correlation is n, from 1 on.
        """
        self.events = [
            structs.replace(event, correlation=bisect_right(times, event.start // PS_PER_NS))
            if event.on_gpu
            else event
            for event in self.events
        ]

    def file(
        self,
        name: str,
        rank: int,
        notes: tuple[str, ...],
        *,
        world_size: int = -1,
        zero_ns: int = 0,
        groups: dict[str, tuple[int, ...]] | None = None,
        cut: bool = False,
    ) -> KinetoFile:
        """Return the events in order, from the first of them on."""
        first = min(event.start for event in self.events)
        order = sorted(
            (e for e in self.events if e.end - first < _LONGEST_NS * PS_PER_NS),
            key=lambda event: (event.start, -event.end),
        )
        self.lost += len(self.events) - len(order)
        if self.lost:
            notes = (*notes, f"{name}: {self.lost} events have no possible time and are left out.")
        return KinetoFile(
            name=name,
            rank=rank,
            world_size=world_size,
            pid=str(self.pid),
            zero_ns=zero_ns + first // PS_PER_NS,
            events=Events.of(
                structs.replace(event, start=event.start - first, end=event.end - first)
                for event in order
            ),
            groups=groups or {},
            notes=notes,
            cut=cut,
        )
