"""
A recorded run: what its ranks did, the measured timeline, and a graph to replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from commsim.errors import TraceError
from commsim.graph import Graph
from commsim.timeline import Timeline
from commsim.traces.rebuild import (
    Built,
    Clocks,
    Exchange,
    RankFragment,
    align,
    build_graph,
    match,
    match_messages,
    measured_timeline,
    move_of,
    transfer_of,
)
from commsim.traces.rebuild.rank import (
    HostAccount,
    OwnAccount,
    RankPace,
    RankPart,
    waiting_like_communication,
)
from commsim.traces.table import CollectiveTable, MessageRow, ends_in
from commsim.units import PS_PER_NS, format_time

__all__ = ["Trace"]

_MAX_WORLD = 1_000_000


class Trace:
    """A recorded run. `ranks` are those recorded; `notes` say what was assumed."""

    def __init__(self, parts: Sequence[RankPart], notes: tuple[str, ...] = ()) -> None:
        self._parts = {part.rank: part for part in sorted(parts, key=lambda part: part.rank)}
        self.ranks: tuple[int, ...] = tuple(self._parts)
        calls = {rank: part.calls for rank, part in self._parts.items()}
        first = min(part.zero_ns for part in parts)
        zeros = {r: (part.zero_ns - first) * PS_PER_NS for r, part in self._parts.items()}
        known = {rank: part.groups for rank, part in self._parts.items()}
        self._matched, match_notes = match(calls, _world(parts), known, zeros)
        self._exchanges, message_notes = match_messages(calls, zeros)
        self._clocks: Clocks = align(self._matched, zeros)
        self._shift = {rank: zeros[rank] - self._clocks.offsets[rank] for rank in self.ranks}
        self._transfers = [transfer_of(c, self._shift) for c in self._matched]
        self._load_notes = (
            *notes,
            *(note for part in self._parts.values() for note in part.notes),
            *match_notes,
            *message_notes,
            *_clock_notes(self._clocks, self.ranks),
            *waiting_like_communication({r: p.suspects for r, p in self._parts.items()}),
        )

    @property
    def unsure(self) -> int:
        """How long ranks waited for Gloo or worked, and nobody knows which, in ps."""
        return sum(part.unsure for part in self._parts.values())

    @property
    def cut(self) -> tuple[int, ...]:
        """The ranks whose files ended in the middle."""
        return tuple(rank for rank, part in self._parts.items() if part.calls.cut)

    def without_cut(self) -> Trace:
        """Return the run without its ranks whose files were cut.

        Raises:
            TraceError: every rank's was.
        """
        kept = [part for part in self._parts.values() if not part.calls.cut]
        left = ", ".join(map(str, self.cut))
        if not kept:
            raise TraceError(
                f"the recordings of ranks {left} are cut off, and what is left of them does not fit"
                " together. Copy or record them again."
            )
        return Trace(
            kept,
            (
                f"rank {left}: cut off, and what is left contradicts the order of the other ranks'"
                " calls: left out.",
            ),
        )

    def __repr__(self) -> str:
        steps = [part.step for part in self._parts.values() if part.step >= 0]
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
    def own_accounts(self) -> dict[int, OwnAccount | HostAccount | None]:
        """What the events of each rank's step add up to, None without GPU and Gloo."""
        return {rank: part.account for rank, part in self._parts.items()}

    @property
    def collectives(self) -> CollectiveTable:
        """What the ranks did together, with the wait of each rank apart from the transfer."""
        return CollectiveTable.of(self._matched, self._transfers, self._windows)

    @cached_property
    def messages(self) -> tuple[MessageRow, ...]:
        """The sends and receives of which both ends are recorded, with the wait of each end."""
        rows = (self._message(exchange) for exchange in self._exchanges)
        return tuple(sorted(rows, key=lambda row: row.start))

    @property
    def steps(self) -> dict[int, tuple[tuple[str, int], ...]]:
        """The profiled steps of each rank, by name, in ps; the last one is its window."""
        return {rank: part.steps for rank, part in self._parts.items()}

    @property
    def paces(self) -> dict[int, RankPace]:
        """How fast each rank's GPU and host were, step by step."""
        return {rank: part.pace for rank, part in self._parts.items()}

    @property
    def _windows(self) -> dict[int, tuple[int, int]]:
        return {
            rank: (part.window[0] + self._shift[rank], part.window[1] + self._shift[rank])
            for rank, part in self._parts.items()
        }

    def _message(self, exchange: Exchange) -> MessageRow:
        ends = {}
        for rank, number, _ in (exchange.send, exchange.recv):
            call, shift = self._parts[rank].calls.calls[number], self._shift[rank]
            ends[rank] = (call.start + shift, call.end + shift)
        source, target = exchange.send[0], exchange.recv[0]
        move = move_of(exchange, ends[source], ends[target])
        return MessageRow(
            source,
            target,
            exchange.size,
            exchange.tag,
            exchange.group,
            move.start,
            move.ends[0] - ends[source][0] if move.eager else move.until - move.start,
            late=target if ends[target][0] >= ends[source][0] else source,
            waits={
                rank: 0 if move.eager else min(move.start, end) - begin
                for rank, (begin, end) in ends.items()
            },
            in_step=ends_in(self._windows, dict(zip((source, target), move.ends, strict=True))),
        )

    def graph(self) -> Graph:
        """Return the workload graph.

        Raises:
            TraceError: the recording does not make a graph.
        """
        return self._built.graph

    def timeline(self) -> Timeline:
        """Return what was measured, over the ops of `graph()`."""
        return measured_timeline(self._built, self.notes)

    @cached_property
    def _built(self) -> Built:
        fragments = [
            RankFragment(rank, part.fragment, self._shift[rank])
            for rank, part in self._parts.items()
        ]
        built = build_graph(fragments, self._matched, self._transfers, self._exchanges)
        built.notes += dict.fromkeys(part.how for part in self._parts.values() if part.how)
        return built


def _world(parts: Sequence[RankPart]) -> tuple[int, ...]:
    """Return all ranks of the run: as many as the files say, and those recorded."""
    ranks = sorted(part.rank for part in parts)
    size = max(part.world_size for part in parts)
    largest = max(*ranks, size - 1) if 0 < size <= _MAX_WORLD else max(ranks)
    return tuple(range(largest + 1)) if size > 0 else tuple(ranks)


def _clock_notes(clocks: Clocks, ranks: tuple[int, ...]) -> Iterator[str]:
    if len(ranks) == 1:
        yield "one rank is recorded: its waits cannot be told from its transfers."
    elif clocks.residual < 0:
        yield (
            "the ranks share no synchronising collective of NCCL: their clocks are taken as they"
            " are."
        )
    else:
        largest = max(abs(offset) for offset in clocks.offsets.values())
        yield (
            f"clocks aligned by the ends of collectives: largest offset {format_time(largest)},"
            f" residual {format_time(clocks.residual)}, at most {format_time(clocks.worst)}."
        )
