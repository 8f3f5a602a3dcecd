"""
The state of a run as tables: a record per op, stream, collective, plan, flow, link and GPU.

Each table is a record array of fixed length, so that compiled code and the interpreter work on the
same memory. Places in other tables are numbers, -1 for none. Times are whole picoseconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from commsim.units import MOST_PICOSECONDS

__all__ = [
    "BATCHED", "COMPUTES", "DEPENDS", "IN_GROUP", "IN_MEMORY", "NEVER", "ON_GPU", "RECEIVES",
    "RELEASES", "WORKS", "State", "dtype_of", "table",
]  # fmt: skip

NEVER = MOST_PICOSECONDS
DEPENDS, RELEASES, BATCHED, WORKS, COMPUTES = 1, 2, 4, 8, 16  # as in `engine.streams`
ON_GPU, IN_MEMORY, IN_GROUP, RECEIVES = 32, 64, 128, 256
"""Bits of the facts of an op."""


class State(NamedTuple):
    """All tables. `run` has one record; the others are described beside their columns below."""

    run: Any
    op: Any
    stream: Any
    queued: Any  # ops by stream
    dependent: Any
    group: Any
    turn: Any  # collectives by group, in issue order
    lane_slot: Any
    slot_member: Any
    row: Any
    slot: Any
    plan: Any
    join: Any  # by plan and member: when the first data reaches it
    copy: Any
    part: Any
    part_phase: Any  # phases of parts, one after another
    stop: Any
    phase: Any
    load: Any
    link: Any
    flow: Any
    place: Any
    wake: Any
    frame: Any
    gpu: Any
    held: Any
    job: Any
    event: Any
    segment: Any
    change: Any
    member: Any  # flows of a component, while rates are found
    rate: Any


_COLUMNS: dict[str, list[tuple[str, str]]] = {
    "run": [
        ("now", "i8"), ("events", "i8"), ("handled", "i8"), ("ended", "i8"), ("full", "i8"),
        ("count", "i8"), ("alarm_at", "i8"), ("alarm", "i8"), ("epoch", "i8"), ("seen", "i8"),
        ("event_count", "i4"), ("wake_count", "i4"), ("segments", "i4"), ("active", "i4"),
        ("flow_count", "i4"), ("flow_free", "i4"), ("place_count", "i4"), ("frame_count", "i4"),
        ("frame_free", "i4"), ("held_count", "i4"), ("held_free", "i4"), ("job_count", "i4"),
        ("job_free", "i4"), ("touched_count", "i4"), ("members", "i4"), ("templates", "i4"),
        ("marks", "i4"), ("met", "i4"), ("sharing", "u1"), ("solving", "u1"), ("stuck", "i4"),
        ("cut", "u1"),
    ],
    # `mode`: in the order of its stream (0), or with others that were issued as one. `stage`: which
    # of its copies between GPU and host it waits for. `row`: of a copy over links its phase.
    "op": [
        ("duration", "i8"), ("ready_at", "i8"), ("arrive", "i8"), ("start", "i8"), ("end", "i8"),
        ("cause", "i4"), ("ready_by", "i4"), ("waits", "i4"), ("row", "i4"), ("lane", "i4"),
        ("stream", "i4"), ("dependents", "i4"), ("batch", "i4"), ("facts", "i4"),
        ("cause_kind", "u1"), ("woken", "u1"), ("mode", "u1"), ("stage", "u1"),
    ],
    "stream": [
        ("first", "i4"), ("last", "i4"), ("at", "i4"), ("op", "i4"), ("before", "i4"),
        ("until", "i4"), ("running", "i4"), ("lane", "i4"),
    ],
    "dependent": [("op", "i4"), ("delay", "i8")],
    "group": [
        ("first", "i4"), ("count", "i4"), ("first_turn", "i4"), ("turns", "i4"), ("turn", "i4"),
        ("free", "i4"), ("ended", "i4"),
    ],
    "lane_slot": [("lane", "i4"), ("slot", "i4")],
    "row": [
        ("plan", "i4"), ("group", "i4"), ("position", "i4"), ("first", "i4"), ("count", "i4"),
        ("missing", "i4"), ("here", "i4"), ("last", "i4"), ("left_parts", "i4"), ("frame", "i4"),
        ("joining", "i4"), ("met", "u1"), ("begun", "u1"), ("queued", "u1"), ("ended", "u1"),
        ("in_turn", "u1"),
    ],
    # `copied`: ps of copies before it arrived. `left`: it has been released.
    "slot": [("op", "i4"), ("left", "u1"), ("copied", "i8")],
    # `first`: whom data waits for: 0 all, 1 member 0, 2 those whom it reaches at once.
    "plan": [
        ("start", "i4"), ("only", "i4"), ("first_part", "i4"), ("parts", "i4"), ("join", "i4"),
        ("first", "i4"), ("sms", "f8"), ("moved", "f8"), ("seen", "i4"), ("members", "i4"),
        ("copies_in", "i4"), ("copies_out", "i4"), ("late", "u1"), ("bad", "u1"),
    ],
    "copy": [("phase", "i4"), ("lead", "i8")],
    "part": [("first", "i4"), ("phases", "i4"), ("first_stop", "i4"), ("stops", "i4")],
    "stop": [("when", "i8"), ("member", "i4"), ("joins", "u1")],
    "phase": [
        ("lead", "i8"), ("idle", "i8"), ("tail", "i8"), ("cap", "f8"), ("alone", "f8"),
        ("time", "i8"), ("epoch", "i8"), ("first", "i4"), ("loads", "i4"), ("template", "i4"),
        ("free", "i4"),  # places of a flow of it that has ended
    ],
    "load": [("bytes", "f8"), ("conns", "f8"), ("link", "i4")],
    "link": [
        ("capacity", "f8"), ("whole", "f8"), ("left", "f8"), ("weight", "f8"), ("used", "f8"),
        ("head", "i4"), ("users", "i4"), ("mark", "i4"), ("hindered", "i4"),
    ],
    "flow": [
        ("left", "f8"), ("rate", "f8"), ("goal", "f8"), ("best", "f8"), ("settled", "i8"),
        ("wake", "i8"), ("number", "i8"), ("phase", "i4"), ("op", "i4"), ("then", "i4"),
        ("what", "i4"), ("place", "i4"), ("mark", "i4"), ("free", "i4"), ("active", "u1"),
        ("touched", "u1"), ("fixed", "u1"),
    ],
    "place": [("flow", "i4"), ("link", "i4"), ("next", "i4"), ("before", "i4")],
    "wake": [("when", "i8"), ("number", "i8"), ("flow", "i4")],
    "frame": [
        ("before", "i8"), ("reached", "i8"), ("turn", "i8"), ("row", "i4"), ("part", "i4"),
        ("phase", "i4"), ("stop", "i4"), ("flow", "i4"), ("state", "i4"), ("next", "i4"),
        ("slot", "i4"),
    ],
    "gpu": [
        ("pace", "f8"), ("sms", "f8"), ("bandwidth", "f8"), ("held", "i4"), ("last_held", "i4"),
        ("job", "i4"), ("last_job", "i4"), ("offset", "i8"),
    ],
    "held": [("sms", "f8"), ("bandwidth", "f8"), ("op", "i4"), ("next", "i4"), ("before", "i4")],
    "job": [
        ("left", "f8"), ("speed", "f8"), ("settled", "i8"), ("alarm", "i8"), ("op", "i4"),
        ("next", "i4"), ("before", "i4"), ("in_memory", "u1"),
    ],
    "event": [("when", "i8"), ("turn", "i8"), ("alarm", "i8"), ("kind", "i4"), ("what", "i4")],
    "segment": [("start", "i8"), ("end", "i8"), ("rate", "f8"), ("template", "i4"), ("op", "i4")],
    # Of a link, of the pace of a lane's GPU, or of nothing (`target`: 0, 1, 2), `after` ps; `same`:
    # the next happens with it.
    "change": [
        ("after", "i8"), ("share", "f8"), ("what", "i4"), ("target", "i4"), ("next", "i4"),
        ("same", "u1"),
    ],
}  # fmt: skip
_NUMBERS = ("queued", "turn", "slot_member", "member", "part_phase")


def dtype_of(name: str) -> Any:
    """Return the type of one record of a table."""
    if name in _NUMBERS:
        return np.dtype(np.int32)
    if name == "join":
        return np.dtype(np.int64)
    if name == "rate":
        return np.dtype(np.float64)
    return np.dtype(_COLUMNS[name], align=True)


def table(name: str, length: int) -> Any:
    """Return an empty table of some length; at least one record, which compiled code needs."""
    made = np.zeros(max(length, 1), dtype_of(name))
    return made.view(np.recarray) if made.dtype.names else made
