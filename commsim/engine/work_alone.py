"""
Work that meets nobody: ops that only compute, each after one other at most.

No link, no rendezvous and no pace can change then, so there is nothing to wait for that op order
does not tell: each op is timed in turn, as the streams of `core` would, without an event.
"""

from __future__ import annotations

import numpy as np

from commsim.engine.out_of_time import out_of_time
from commsim.engine.recorder import Recorder
from commsim.engine.rules import queues
from commsim.follow import Follow, unfollowed
from commsim.graph import Graph, OpKind
from commsim.timeline import Cause
from commsim.units import MOST_PICOSECONDS

__all__ = ["is_work_alone", "run_work_alone"]

_DEPENDENCY, _STREAM = int(Cause.DEPENDENCY), int(Cause.STREAM)


def is_work_alone(graph: Graph) -> bool:
    """Return whether all ops compute, each after one earlier op at most beside its stream's.

    Of several that end at once the order of events says which was the last: those are simulated.
    """
    waits = np.diff(graph.dep_ptr)
    targets = np.repeat(np.arange(len(graph)), waits)
    return bool(
        (graph.kind == OpKind.COMPUTE).all()
        and (graph.batch < 0).all()
        and waits.max(initial=0) <= 1
        and (graph.dep_op < targets).all()
    )


def run_work_alone(graph: Graph, follow: Follow = unfollowed) -> Recorder:
    """Return the record of a graph that `is_work_alone`; `follow` is as for `simulate`.

    Raises:
        ScenarioError: it takes longer than the clock can hold.
    """
    recorder, count, op = Recorder(graph), len(graph), 0
    follow(lambda: op / max(1, count))
    found = queues(graph)
    queue, free = [0] * count, graph.lane_offset[found.lane].tolist()
    for number, ops in enumerate(found.ops):
        for one in ops:
            queue[one] = number
    last = [-1] * len(free)
    needs, delay = np.full(count, -1), np.zeros(count, dtype=np.int64)
    depends = np.diff(graph.dep_ptr) > 0
    needs[depends], delay[depends] = graph.dep_op, graph.dep_delay
    columns = zip(queue, needs.tolist(), delay.tolist(), graph.duration.tolist(), strict=True)
    start, end, cause, kind = recorder.start, recorder.end, recorder.cause, recorder.cause_kind
    for op, (line, need, later, duration) in enumerate(columns):
        now, before = free[line], last[line]
        ready = end[need] + later if need >= 0 else -1
        if ready >= now and ready > 0:
            now = ready
            cause[op], kind[op] = need, _DEPENDENCY
        elif before >= 0:
            cause[op], kind[op] = before, _STREAM
        start[op] = now
        end[op] = free[line] = now + duration
        last[line] = op
    if max(end, default=0) >= MOST_PICOSECONDS:
        late = next(op for op, when in enumerate(end) if when >= MOST_PICOSECONDS)
        raise out_of_time(graph, late, start[late])
    recorder.arrive = start
    return recorder
