"""
The record of a run: spans by op, and traffic as segments of flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Floats, Ints
from commsim.cluster import Links
from commsim.engine.fluid_network import Flow
from commsim.graph import Graph
from commsim.libraries import PlanPhase
from commsim.libraries.expansion import LinkService, LinkServices
from commsim.timeline import Cause, LinkUse, Memory, Timeline

__all__ = ["Recorder"]


class Recorder:
    """Collects times per op and segments per flow; `timeline` turns them into columns.

    `spans` are the columns of ops (arrive, start, end, cause and its kind) of a run that has
    ended; without them there are none yet.
    """

    def __init__(self, graph: Graph, spans: Sequence[Any] = ()) -> None:
        count = len(graph)
        self._graph = graph
        none = ([-1] * count for _ in range(4))
        self.arrive, self.start, self.end, self.cause, self.cause_kind = spans or (
            *none,
            [int(Cause.NONE)] * count,
        )
        self.notes: dict[str, None] = {}  # keeps the first of equal notes, in order
        self.choices: dict[int, str] = {}
        self.services: list[LinkService] = []
        self.served: list[tuple[LinkServices, int]] = []  # as columns, each of one op
        self.program_op: dict[int, int] = {}  # an op of each program
        self._templates: dict[PlanPhase, int] = {}
        self._whole: list[int] = []  # of each segment four in a row: template, start, end, op
        self._rate: list[float] = []
        self._many: list[tuple[Ints, Ints, Ints, Floats, Ints]] = []  # as columns

    def segment(self, flow: Flow, now: int) -> None:
        """Note that a flow has progressed at its rate from when it was last settled to `now`."""
        phase, start = flow.phase, flow.settled
        if now > start and flow.rate > 0 and len(phase.link):
            number = self._templates.setdefault(phase, len(self._templates))
            self._whole.extend((number, start, now, flow.op))
            self._rate.append(flow.rate)

    def template(self, phase: PlanPhase) -> int:
        """Return the number of the loads of a phase."""
        return self._templates.setdefault(phase, len(self._templates))

    def segments(self, template: Ints, op: Ints, start: Ints, now: int, rate: Floats) -> None:
        """Note that flows have progressed at their rates, each from its start to `now`."""
        self._many.append((template, start, np.full(len(start), now), rate, op))

    def add_columns(self, template: Ints, start: Ints, end: Ints, rate: Floats, op: Ints) -> None:
        """Note that flows have progressed at their rates, each from its start to its end."""
        self._many.append((template, start, end, rate, op))

    def timeline(self, links: Links | None, *, notes: Sequence[str] = ()) -> Timeline:
        """Return the timeline, one span per op."""
        graph = self._graph
        return Timeline(
            graph=graph,
            op=np.arange(len(graph)),
            arrive=np.array(self.arrive, dtype=np.int64),
            start=np.array(self.start, dtype=np.int64),
            end=np.array(self.end, dtype=np.int64),
            cause=np.array(self.cause, dtype=np.int64),
            cause_kind=np.array(self.cause_kind, dtype=np.uint8),
            links=self._links(links),
            memory=_memory(graph, self.start, self.end),
            notes=(*notes, *self.notes),
            choices=_frozen(self.choices),
        )

    def _links(self, every: Links | None) -> LinkUse:
        if every is None:
            return LinkUse.nothing()
        phases = list(self._templates)
        flow, start, end, rate, op = self._columns()
        served = self._served(every)
        single = np.arange(len(served.link)) + len(phases)  # of each service a flow on one link
        counts = np.array([len(p.link) for p in phases] + [1] * len(single), dtype=np.int64)
        return LinkUse(
            names=every.names,
            kinds=every.kinds,
            bandwidth=every.capacity,
            load_ptr=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            load_link=np.concatenate([*(phase.link for phase in phases), served.link]),
            load_bytes=np.concatenate([*(phase.load for phase in phases), served.carried]),
            flow=np.concatenate((flow, single)),
            start=np.concatenate((start, served.start)),
            end=np.concatenate((end, served.end)),
            rate=np.concatenate((rate, served.rate)),
            op=np.concatenate((op, served.op)),
        )

    def _columns(self) -> tuple[Ints, Ints, Ints, Floats, Ints]:
        """Return (template, start, end, rate, op) of all segments."""
        number, since, until, of = np.array(self._whole, np.int64).reshape(-1, 4).T
        single = (number, since, until, np.array(self._rate, np.float64), of)
        columns = zip(single, *self._many, strict=True)
        template, start, end, rate, op = (np.concatenate(column) for column in columns)
        return template, start, end, rate, op

    def _served(self, every: Links) -> _Served:
        """Return what links have served message by message."""
        rows = zip(*self.services, strict=True) if self.services else ((),) * 5
        types = (np.int64, np.float64, np.float64, np.float64)
        links, begins, ends, shares, programs = rows
        op = np.array([self.program_op[program] for program in programs], dtype=np.int64)
        single = [
            np.array(row, dtype)
            for row, dtype in zip((links, begins, ends, shares), types, strict=True)
        ]
        columns: list[Any] = [*single, op]
        if self.served:
            several = [
                (one.link, one.begin, one.end, one.share, np.full(len(one.link), of))
                for one, of in self.served
            ]
            columns = [np.concatenate(column) for column in zip(columns, *several, strict=True)]
        link, begin, end, share, op = columns
        start = np.round(begin).astype(np.int64)
        carried = every.capacity[link] * share * (end - begin) * 1e-12
        return _Served(
            link, start, np.maximum(np.round(end).astype(np.int64), start + 1), carried, op
        )


class _Served(msgspec.Struct, frozen=True, eq=False):
    """What links served, as columns: whole ps, bytes, and the op whose data it was."""

    link: Ints
    start: Ints
    end: Ints
    carried: Floats
    op: Ints

    @property
    def rate(self) -> Floats:
        """The share of each that passes per ps."""
        return 1 / (self.end - self.start)


def _memory(graph: Graph, start: Sequence[int], end: Sequence[int]) -> Memory:
    """Return the bytes held per lane over time, from what ops take and give back."""
    takes, gives = np.flatnonzero(graph.alloc), np.flatnonzero(graph.free)
    ops = np.concatenate((takes, gives))
    when = np.concatenate((np.asarray(start)[takes], np.asarray(end)[gives])).astype(np.int64)
    change = np.concatenate((graph.alloc[takes], -graph.free[gives]))
    lane = graph.lane[ops]
    order = np.lexsort((change, when, lane))
    lane, held = lane[order], np.cumsum(change[order])
    first = np.flatnonzero(np.diff(lane, prepend=-1))
    before = np.concatenate(([0], held))[first]  # what the lanes before hold at last
    held -= np.repeat(before, np.diff(first, append=len(lane)))
    return Memory(lane, when[order], held)


def _frozen(choices: dict[int, str]) -> Mapping[int, str]:
    return MappingProxyType(choices)
