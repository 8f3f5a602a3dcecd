"""
A recorded run: what its ranks did, the measured timeline, and a graph to replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from commsim.graph import Graph
from commsim.timeline import Timeline
from commsim.traces.activity import Activity, activity_of
from commsim.traces.causes import RankWork
from commsim.traces.collectives import RankCollectives, collectives_of
from commsim.traces.deskew import Clocks, align, transfer_of
from commsim.traces.execution_trace import ExecutionTrace
from commsim.traces.kineto import KinetoFile
from commsim.traces.matching import match
from commsim.traces.measured import measured_timeline
from commsim.traces.streams import cross_stream, issue_order
from commsim.traces.table import CollectiveTable
from commsim.traces.threads import pieces_of
from commsim.traces.to_graph import Built, build_graph
from commsim.units import format_time

__all__ = ["Trace"]

_PS_PER_NS = 1000
_MAX_WORLD = 1_000_000


class Trace:
    """A recorded run. `ranks` are those recorded; `notes` say what was assumed."""

    def __init__(
        self,
        files: dict[int, KinetoFile],
        traces: dict[int, ExecutionTrace],
        notes: tuple[str, ...] = (),
    ) -> None:
        self._activities = {rank: activity_of(file, rank) for rank, file in sorted(files.items())}
        self.ranks: tuple[int, ...] = tuple(self._activities)
        self._calls = {
            rank: collectives_of(activity, traces.get(rank))
            for rank, activity in self._activities.items()
        }
        self._matched, match_notes = match(self._calls, _world(files))
        first = min(file.zero_ns for file in files.values())
        zeros = {r: (files[r].zero_ns - first) * _PS_PER_NS for r in self.ranks}
        self._clocks: Clocks = align(self._matched, zeros)
        self._shift = {rank: zeros[rank] - self._clocks.offsets[rank] for rank in self.ranks}
        self._transfers = [transfer_of(c, self._shift) for c in self._matched]
        self._load_notes = (
            *notes,
            *(note for rank in self.ranks for note in files[rank].notes),
            *(note for rank in self.ranks for note in self._activities[rank].notes),
            *(note for rank in self.ranks for note in self._calls[rank].notes),
            *match_notes,
            *_clock_notes(self._clocks, self.ranks),
        )

    def __repr__(self) -> str:
        steps = [a.step.end - a.step.start for a in self._activities.values() if a.step]
        longest = f", longest step {format_time(max(steps))}" if steps else ""
        ranks = f"{len(self.ranks)} rank{'s' if len(self.ranks) > 1 else ''}"
        return f"Trace({ranks}, {len(self._matched)} collectives{longest})"

    @property
    def offsets(self) -> dict[int, int]:
        """How far each rank's clock is ahead of the common one, in ps."""
        return dict(self._clocks.offsets)

    @property
    def residual(self) -> int:
        """The median distance of an aligned end from its collective's, in ps; -1 if unknown."""
        return self._clocks.residual

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, lost or left out."""
        return tuple(dict.fromkeys((*self._load_notes, *self._built.notes)))

    @property
    def collectives(self) -> CollectiveTable:
        """What the ranks did together, with the wait of each rank apart from the transfer."""
        return CollectiveTable.of(self._matched, self._transfers)

    def graph(self) -> Graph:
        """Return the workload graph.

        Raises:
            TraceError: the trace holds communication that is not replayed yet.
        """
        return self._built.graph

    def timeline(self) -> Timeline:
        """Return what was measured, over the ops of `graph()`."""
        return measured_timeline(self._built, self.notes)

    @cached_property
    def _built(self) -> Built:
        works, how = [], []
        for rank, activity in self._activities.items():
            work, note = _work(activity, self._calls[rank], self._shift[rank])
            works.append(work)
            how.append(note)
        built = build_graph(works, self._matched, self._transfers)
        built.notes += how
        return built


def _work(activity: Activity, calls: RankCollectives, shift: int) -> tuple[RankWork, str]:
    """Cut a rank's recording into what its part of the graph is made of."""
    issue = issue_order(activity)
    waits, how = cross_stream(activity, issue, calls)
    return RankWork(activity, pieces_of(activity, issue), waits, shift), how


def _world(files: dict[int, KinetoFile]) -> tuple[int, ...]:
    """Return all ranks of the run: as many as the files say, and those recorded."""
    size = max(file.world_size for file in files.values())
    largest = max(*files, size - 1) if 0 < size <= _MAX_WORLD else max(files)
    return tuple(range(largest + 1)) if size > 0 else tuple(files)


def _clock_notes(clocks: Clocks, ranks: tuple[int, ...]) -> Iterator[str]:
    if len(ranks) == 1:
        yield "one rank is recorded: its waits cannot be told from its transfers."
    elif clocks.residual < 0:
        yield "the ranks share no synchronising collective: their clocks are taken as they are."
    else:
        largest = max(abs(offset) for offset in clocks.offsets.values())
        yield (
            f"clocks aligned by the ends of collectives: largest offset {format_time(largest)},"
            f" residual {format_time(clocks.residual)}, at most {format_time(clocks.worst)}."
        )
