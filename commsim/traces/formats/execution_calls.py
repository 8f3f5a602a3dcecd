"""
An Execution Trace alone as a record: the calls of a process in order, without times.

A wait is matched with its calls by group and sequence number; what is never waited for blocks.
"""

from __future__ import annotations

from collections import Counter

from commsim.ops import ROOTED
from commsim.traces.formats.execution_trace import CommNode, ExecutionTrace
from commsim.traces.formats.records import Issued, RankRecord
from commsim.traces.formats.values import in_bytes, splits_in_bytes

__all__ = ["record_of"]


def record_of(trace: ExecutionTrace) -> RankRecord:
    """Return the communication calls that an Execution Trace holds."""
    calls: list[Issued] = []
    at: dict[tuple[str, int], list[int]] = {}
    awaited = {comm.work for comm in trace.comms if comm.is_wait}
    unnamed = 0
    for comm in trace.comms:
        if comm.is_wait:
            calls.append(Issued("wait", after=tuple(at.pop(comm.work, ()))))
            continue
        if not comm.op:
            unnamed += comm.name != "init"
            continue
        if comm.sequence >= 0:
            at.setdefault(comm.work, []).append(len(calls))
        calls.append(_issued(trace, comm, blocking=comm.work not in awaited))
    notes = [
        f"PyTorch Execution Trace {trace.schema}: calls in order, without times and"
        " without the work between them."
    ]
    if unnamed:
        notes.append(f"{trace.name}: {unnamed} calls have a name that is not known; left out.")
    return RankRecord(
        name=trace.name,
        format="PyTorch Execution Trace",
        rank=trace.rank if trace.rank >= 0 else _rank(trace),
        world_size=1 + max((max(ranks) for ranks in trace.groups.values()), default=-1),
        calls=tuple(calls),
        library=trace.library,
        groups=trace.groups,
        notes=tuple(notes),
    )


def _rank(trace: ExecutionTrace) -> int:
    """Return the rank that most calls of groups of all ranks name as their own; -1 without one."""
    world = max(trace.groups.values(), key=len, default=())
    own = Counter(
        world[comm.peer]
        for comm in trace.comms
        if comm.op not in (*ROOTED, "send", "recv")
        and 0 <= comm.peer < len(world)
        and trace.groups.get(comm.group, world) == world
    )
    return own.most_common(1)[0][0] if own else -1


def _issued(trace: ExecutionTrace, comm: CommNode, *, blocking: bool) -> Issued:
    op = comm.op
    ranks = trace.groups.get(comm.group, ())
    sent, received = (
        in_bytes(count, comm.itemsize) for count in (comm.elements, comm.out_elements)
    )
    peer = ranks[comm.peer] if 0 <= comm.peer < len(ranks) else comm.peer
    return Issued(
        op=op,
        sent=sent,
        received=received,
        dtype=comm.dtype,
        group=comm.group if ranks else "",
        ranks=ranks,
        root=peer if op in ROOTED else -1,
        peer=peer,
        splits=splits_in_bytes(comm.splits, comm.itemsize) if op == "all_to_all_v" else (),
        sequence=comm.sequence,
        name=comm.name,
        blocking=blocking,
    )
