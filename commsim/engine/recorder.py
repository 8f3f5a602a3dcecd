"""
What the engine writes down while it runs: spans by op, and traffic as segments of flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from commsim.cluster import Links
from commsim.engine.fluid_network import Flow
from commsim.graph import Graph
from commsim.libraries import Phase
from commsim.libraries.expansion import LinkService
from commsim.timeline import Cause, LinkUse, Memory, Timeline

__all__ = ["Recorder"]


class Recorder:
    """Collects times per op and segments per flow; `timeline` turns them into columns."""

    def __init__(self, graph: Graph) -> None:
        count = len(graph)
        self._graph = graph
        self.arrive = [-1] * count
        self.start = [-1] * count
        self.end = [-1] * count
        self.cause = [-1] * count
        self.cause_kind = [int(Cause.NONE)] * count
        self.notes: dict[str, None] = {}  # keeps the first of equal notes, in order
        self.choices: dict[int, str] = {}
        self.services: list[LinkService] = []
        self.program_op: dict[int, int] = {}  # an op of each program
        self._templates: dict[int, tuple[int, Phase]] = {}
        self._segments: list[tuple[int, int, int, float, int]] = []

    def segment(self, flow: Flow, now: int) -> None:
        """Note that a flow has progressed at its rate from when it was last settled to `now`."""
        phase, start = flow.phase, flow.settled
        if now > start and flow.rate > 0 and len(phase.link):
            row = self._templates.setdefault(id(phase), (len(self._templates), phase))[0]
            self._segments.append((row, start, now, flow.rate, flow.op))

    def timeline(self, links: Links | None, *, notes: Sequence[str] = ()) -> Timeline:
        """Return everything written down, one span per op."""
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
        phases = [phase for _, phase in self._templates.values()]
        loads = [phase.load for phase in phases]
        links = [phase.link for phase in phases]
        segments = list(self._segments)
        for link, begun, done, share, program in self.services:
            first, span = round(begun), max(round(done) - round(begun), 1)
            links.append(np.array([link]))
            loads.append(np.array([every.capacity[link] * share * (done - begun) * 1e-12]))
            owner = self.program_op.get(program, -1)
            segments.append((len(links) - 1, first, first + span, 1 / span, owner))
        counts = [len(link) for link in links]
        flow, start, end, rate, op = zip(*segments, strict=True) if segments else ((),) * 5
        return LinkUse(
            names=every.names,
            kinds=every.kinds,
            bandwidth=every.capacity,
            load_ptr=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            load_link=np.concatenate([np.zeros(0, np.int64), *links]),
            load_bytes=np.concatenate([np.zeros(0), *loads]),
            flow=np.array(flow, dtype=np.int64),
            start=np.array(start, dtype=np.int64),
            end=np.array(end, dtype=np.int64),
            rate=np.array(rate, dtype=np.float64),
            op=np.array(op, dtype=np.int64),
        )


def _memory(graph: Graph, start: Sequence[int], end: Sequence[int]) -> Memory:
    """Return the bytes held per lane over time, from what ops take and give back."""
    takes, gives = np.flatnonzero(graph.alloc), np.flatnonzero(graph.free)
    ops = np.concatenate((takes, gives))
    when = np.concatenate((np.asarray(start)[takes], np.asarray(end)[gives])).astype(np.int64)
    change = np.concatenate((graph.alloc[takes], -graph.free[gives]))
    lane = graph.lane[ops]
    order = np.lexsort((change, when, lane))
    held = np.zeros(len(order), dtype=np.int64)
    for one in np.unique(lane).tolist():
        mine = lane[order] == one
        held[mine] = np.cumsum(change[order][mine])
    return Memory(lane[order], when[order], held)


def _frozen(choices: dict[int, str]) -> Mapping[int, str]:
    return MappingProxyType(choices)
