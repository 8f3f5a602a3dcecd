"""
The self-check of a replay: does each rank's account of time meet the recording?

With the recorded transfers, a replay must give each rank's step, compute, exposed communication
and copies as the union of the recording's own events has them, and tell transfers from waits as
the measured timeline does. A step can agree while these do not. Of a rank without a GPU the events
say when Gloo was at work; when the rank computed they say exactly only with Python frames, else
between which limits: there what the replay has must lie between them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from commsim.arrays import Ints
from commsim.metrics import Breakdown, account, breakdown, communication_time
from commsim.timeline import Timeline
from commsim.traces import Trace
from commsim.units import PS_PER_SECOND, format_time

__all__ = ["AccountCheck", "Miss", "check_account"]

_SHARE = 0.05
_LEAST = 50_000_000  # ps: less than 50 us is no finding, however small the part
_SHOWN = 3


class Miss(msgspec.Struct, frozen=True):
    """A part of one rank's step that the replay has otherwise than the recording, in seconds."""

    rank: int
    part: str
    recorded_s: float
    replayed_s: float

    def __str__(self) -> str:
        now, was = self.replayed_s * PS_PER_SECOND, self.recorded_s * PS_PER_SECOND
        return f"rank {self.rank}: {self.part} {format_time(now)} for {format_time(was)}"


class AccountCheck(msgspec.Struct, frozen=True):
    """What was compared: `ranks` as plain rows for the JSON, and the misses, the largest first."""

    ranks: tuple[dict[str, Any], ...]
    misses: tuple[Miss, ...]

    def verdict(self) -> str:
        """Return one line: met, or by how much and where it is missed."""
        if not self.misses:
            return "every rank's step, compute, transfers, waits and copies are as recorded"
        shown = "; ".join(map(str, self.misses[:_SHOWN]))
        more = len(self.misses) - _SHOWN
        return f"{shown}{f'; and {more} more' if more > 0 else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return the check for the JSON."""
        return {
            "ranks": list(self.ranks),
            "misses": [msgspec.structs.asdict(miss) for miss in self.misses],
        }


def check_account(trace: Trace, measured: Timeline, again: Timeline) -> AccountCheck:
    """Hold the replay `again` (with recorded transfers) against what `trace` recorded."""
    was, now = _parts(measured), _parts(again)
    own = trace.own_accounts
    rows: list[dict[str, Any]] = []
    misses: list[tuple[int, Miss]] = []
    for lane, rank in enumerate(measured.graph.lane_rank.tolist()):
        recorded = {part: int(times[lane]) for part, times in was.items()}
        if (mine := own.get(rank)) is not None:
            for part, (least, most) in mine.bounds().items():
                recorded[part] = min(max(least, int(now[part][lane])), most)
        row: dict[str, Any] = {"rank": rank}
        for part, before in recorded.items():
            after = int(now[part][lane])
            row[part.replace(" ", "_")] = {
                "recorded_s": before / PS_PER_SECOND,
                "replayed_s": after / PS_PER_SECOND,
            }
            if abs(after - before) > max(_LEAST, _SHARE * before):
                miss = Miss(rank, part, before / PS_PER_SECOND, after / PS_PER_SECOND)
                misses.append((abs(after - before), miss))
        rows.append(row)
    misses.sort(key=lambda item: -item[0])
    return AccountCheck(tuple(rows), tuple(miss for _, miss in misses))


def _parts(timeline: Timeline) -> dict[str, Ints]:
    """Return the compared parts of each lane's step in ps."""
    parts: Breakdown = breakdown(timeline)
    held = account(timeline).held
    waits_apart = np.zeros(len(parts.window), np.int64)
    np.add.at(waits_apart, held.line, held.end - held.start)
    waiting = parts.waiting - waits_apart
    return {
        "step": parts.window,
        "compute": parts.compute,
        "communication": communication_time(timeline),
        "exposed communication": parts.exposed_transfer + waiting,
        "exposed copy": parts.exposed_copy,
        "exposed transfer": parts.exposed_transfer,
        "waiting in communication": waiting,
    }
