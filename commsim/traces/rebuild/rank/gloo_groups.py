"""
The group of each c10d op of Gloo: a Kineto trace does not say it, the flight recorder's dump does.

Its entries were created inside the c10d ops, on the same clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from commsim.traces.formats import Event, RankRecord
from commsim.units import PS_PER_NS

__all__ = ["gloo_groups"]

_SLACK_NS = 20_000


def gloo_groups(issued: Sequence[Event], zero_ns: int, dump: RankRecord | None) -> list[str]:
    """Return the name of the group of each c10d op, "" if no entry of the dump was made inside it.

    `issued` is in order of start; `zero_ns` is the time of the file's zero.
    """
    entries = sorted(
        (entry.time, entry.group.split(" ")[0])
        for entry in (dump.calls if dump else ())
        if entry.time >= 0
    )
    found, at = [], 0
    for event in issued:
        at = max(at, bisect_left(entries, (zero_ns + event.start // PS_PER_NS - _SLACK_NS, "")))
        inside = at < len(entries) and (
            entries[at][0] <= zero_ns + event.end // PS_PER_NS + _SLACK_NS
        )
        found.append(entries[at][1] if inside else "")
        at += inside
    return found
