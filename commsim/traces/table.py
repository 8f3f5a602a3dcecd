"""
Tables of a recorded run's communication: bytes moved, last arrivals, waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from commsim.traces.rebuild import MatchedCollective, Transfer
from commsim.units import format_size, format_time

__all__ = ["CollectiveRow", "CollectiveTable", "MessageRow"]

_HEAD = ("op", "group", "bytes", "type", "transfer", "last", "wait: median", "longest")


class CollectiveRow(msgspec.Struct, frozen=True):
    """One collective: bytes as nccl-tests count them (-1 unknown), times in ps.

    `transfer` is the time on the last rank to arrive, `waits` how long each rank waited for it.
    `splits` are the bytes that each rank sends to each member (all_to_all_v). `in_step`: it ended
    in the profiled step of one of its ranks. `inferred`: no file says who its members are; `alone`:
    nor is it known of any other rank, so that its transfer holds what it waited.
    """

    op: str
    group: str
    ranks: tuple[int, ...]
    size: int
    dtype: str
    splits: Mapping[int, tuple[int, ...]]
    transfer: int
    last_arriver: int
    waits: Mapping[int, int]
    in_step: bool = True
    inferred: bool = False
    alone: bool = False


class MessageRow(msgspec.Struct, frozen=True):
    """One message from `source` to `target`; times in ps, `waits` of both ends for the other.

    `late` is the end that came later; `start` is when it came, on the common clock.
    """

    source: int
    target: int
    size: int
    tag: int
    group: str
    start: int
    transfer: int
    late: int
    waits: Mapping[int, int]
    in_step: bool = True


@dataclass(frozen=True, slots=True)
class CollectiveTable(Sequence[CollectiveRow]):
    """The collectives in the order they ran; prints as a table."""

    rows: tuple[CollectiveRow, ...]

    @staticmethod
    def of(
        collectives: Sequence[MatchedCollective],
        transfers: Sequence[Transfer],
        windows: Mapping[int, tuple[int, int]],
    ) -> CollectiveTable:
        """Return the table of matched collectives and their measured transfers.

        `windows` are the profiled steps of the ranks, on the common clock.
        """
        pairs = zip(collectives, transfers, strict=True)
        return CollectiveTable(tuple(_row(c, t, windows) for c, t in pairs))

    def of_step(self) -> CollectiveTable:
        """Return those that ended in the profiled step."""
        return CollectiveTable(tuple(row for row in self.rows if row.in_step))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.rows[index]

    def __iter__(self) -> Iterator[CollectiveRow]:
        return iter(self.rows)

    def __repr__(self) -> str:
        total = format_time(sum(row.transfer for row in self.rows))
        return f"CollectiveTable({len(self)} collectives, transfer {total} in all)"

    def __str__(self) -> str:
        lines = [_HEAD, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def ends_in(windows: Mapping[int, tuple[int, int]], ends: Mapping[int, int]) -> bool:
    """Say whether a rank's end, of any rank, lies in its profiled step."""
    return any(windows[rank][0] <= end <= windows[rank][1] for rank, end in ends.items())


def _row(
    collective: MatchedCollective, transfer: Transfer, windows: Mapping[int, tuple[int, int]]
) -> CollectiveRow:
    return CollectiveRow(
        op=collective.op or "unknown",
        group=collective.group,
        ranks=collective.group_ranks,
        size=collective.size,
        dtype=collective.dtype,
        splits={rank: call.splits for rank, call in collective.calls.items() if call.splits},
        transfer=transfer.duration,
        last_arriver=transfer.last,
        waits={rank: transfer.wait(rank) for rank in transfer.arrive},
        in_step=ends_in(windows, transfer.end),
        inferred=collective.inferred,
        alone=collective.alone,
    )


def _cells(row: CollectiveRow) -> tuple[str, ...]:
    waits = sorted(row.waits.items(), key=lambda item: item[1])
    rank, longest = waits[-1]
    return (
        row.op,
        row.group,
        format_size(row.size) if row.size >= 0 else "unknown",
        row.dtype or "unknown",
        format_time(row.transfer),
        f"rank {row.last_arriver}",
        format_time(waits[len(waits) // 2][1]),
        f"{format_time(longest)} (rank {rank})",
    )
