"""Tables of a run by hand, to try single functions of the executor over tables."""

from __future__ import annotations

from collections.abc import Sequence

from commsim.engine.columns.state import State, table

__all__ = ["run_tables", "with_phases"]


def run_tables(**lengths: int) -> State:
    """Return empty tables of 8 records, or of as many as are said; nothing is free or held."""
    s = State(**{name: table(name, lengths.get(name, 8)) for name in State._fields})
    run = s.run[0]
    run.flow_free = run.frame_free = run.held_free = run.job_free = run.alarm_at = -1
    s.phase.epoch[:] = -1
    s.link.head[:] = s.phase.free[:] = s.phase.template[:] = s.flow.place[:] = -1
    s.gpu.held[:] = s.gpu.last_held[:] = s.gpu.job[:] = s.gpu.last_job[:] = -1
    s.gpu.pace[:] = 1.0
    return s


def with_phases(
    capacities: Sequence[float], *phases: Sequence[tuple[int, float]], cap: float = 1e9, **more: int
) -> State:
    """Return tables with links, and phases that put bytes on links: (link, bytes) each."""
    loads = [load for phase in phases for load in phase]
    s = run_tables(**{"load": len(loads), "link": len(capacities), "phase": len(phases), **more})
    s.link.capacity[:] = s.link.whole[:] = capacities
    for at, (link, size) in enumerate(loads):
        s.load[at].link, s.load[at].bytes, s.load[at].conns = link, size, 1.0
    first = 0
    for at, phase in enumerate(phases):
        s.phase[at].first, s.phase[at].loads, s.phase[at].cap = first, len(phase), cap
        first += len(phase)
    return s
