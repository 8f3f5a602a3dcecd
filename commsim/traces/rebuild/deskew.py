"""
A common clock for all ranks, and the split of a collective into waiting and transfer.

All members leave a synchronising collective nearly together, so a rank's clock is ahead by the
median, over its collectives, of (its end - the median end of the members). A kernel's duration
holds the wait for late ranks; the transfer is what it took on the last rank to arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec
from msgspec.structs import replace

from commsim.libraries import awaited_members
from commsim.traces.rebuild.matching import MatchedCollective
from commsim.traces.rebuild.rank import CollectiveCall

__all__ = ["Clocks", "Transfer", "align", "transfer_of"]

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v",
                 "barrier")  # fmt: skip
_ROUNDS = 20
_ENOUGH = 1_000_000  # ps: ends scatter by more than this


class Clocks(msgspec.Struct, frozen=True):
    """How far each rank's clock is ahead of the common one, in ps.

    `residual` is the median distance of an end from the median end, after alignment; `worst`
    the largest. Both are -1 if nothing could be compared.
    """

    offsets: dict[int, int]
    residual: int
    worst: int


class Transfer(msgspec.Struct, frozen=True):
    """When a collective moved, on the common clock: `arrive` and `end` per rank, `start` once.

    `duration` is the time on the last rank to arrive; if members leave `apart` (Gloo wakes
    one thread after the other), up to when the first leaves: what is later is each rank's own.
    `together` is up to when the first leaves in any case, and `late` what each stays beyond it: a
    ring over a network lets its members go tens of us apart.
    `awaited` are the ranks that each waits for, itself included, where that is not all of them.
    `eager` says which those are: 0 all, 1 the root, 2 those that Gloo's program has it exchange
    with.
    """

    arrive: dict[int, int]
    end: dict[int, int]
    last: int
    apart: bool = False
    awaited: Mapping[int, tuple[int, ...]] = {}
    eager: int = 0

    @property
    def start(self) -> int:
        """When the last member arrived."""
        return self.arrive[self.last]

    @property
    def duration(self) -> int:
        """The transfer in ps, waits apart."""
        if self.awaited or self.apart:
            return self.together
        return self.end[self.last] - self.start

    @property
    def together(self) -> int:
        """How long all members are in it from `start` on, in ps."""
        if self.awaited:
            return max(self.late(rank) for rank in self.arrive)
        return max(0, min(self.end.values()) - self.start)

    def late(self, rank: int) -> int:
        """Return how long after the first of all `rank` left, in ps.

        Where it did not wait for all: how long it stayed once those were there.
        """
        if self.awaited:
            return max(0, self.end[rank] - self.arrive[self.waited_for(rank)])
        return max(0, self.end[rank] - self.start - self.together)

    def waited_for(self, rank: int) -> int:
        """Return the last to arrive of those that `rank` waited for."""
        if not self.awaited:
            return self.last
        return max(self.awaited[rank], key=lambda one: (self.arrive[one], one == rank, -one))

    def wait(self, rank: int) -> int:
        """Return how long `rank` waited for the others, in ps."""
        until = self.arrive[self.waited_for(rank)]
        return min(until, self.end[rank]) - self.arrive[rank]


def align(collectives: Sequence[MatchedCollective], zeros: Mapping[int, int]) -> Clocks:
    """Find the offset of each rank; `zeros` is each file's zero in ps on its own clock.

    Several groups tie their ranks to one another, so the medians are taken again until they
    move by less than the ends scatter.
    """
    # A member cannot leave before the last one's data has come, and may leave late for reasons of
    # its own: errors are one-sided and rare, which a median bears and a mean does not. Gloo's
    # threads wake one after another, which would count as an offset.
    offsets = dict.fromkeys(sorted(zeros), 0)
    shared = [
        c
        for c in collectives
        if c.op in SYNCHRONISING and len(c.calls) > 1 and c.first.library != "gloo"
    ]
    ends = [{r: zeros[r] + call.end for r, call in c.calls.items()} for c in shared]
    for turn in range(_ROUNDS):
        leads = _leads(ends, offsets)
        moves = {rank: round(median(leads.get(rank, [0]))) for rank in offsets}
        if turn and max(map(abs, moves.values())) <= _ENOUGH:
            break
        offsets = {rank: offset + moves[rank] for rank, offset in offsets.items()}
    distances = [abs(lead) for leads in _leads(ends, offsets).values() for lead in leads]
    if not distances:
        return Clocks(offsets, -1, -1)
    return Clocks(offsets, round(median(distances)), round(max(distances)))


def _leads(ends: Sequence[Mapping[int, int]], offsets: Mapping[int, int]) -> dict[int, list[float]]:
    """Return, per rank, how much later than the median of the members it left each collective."""
    leads: dict[int, list[float]] = {}
    for of_ranks in ends:
        aligned = {rank: end - offsets[rank] for rank, end in of_ranks.items()}
        middle = median(aligned.values())
        for rank, end in aligned.items():
            leads.setdefault(rank, []).append(end - middle)
    return leads


def transfer_of(collective: MatchedCollective, shift: Mapping[int, int]) -> Transfer:
    """Return when `collective` moved; `shift` takes a rank's times to the common clock."""
    calls: Mapping[int, CollectiveCall] = collective.calls
    arrive = {rank: call.start + shift[rank] for rank, call in sorted(calls.items())}
    end = {rank: call.end + shift[rank] for rank, call in sorted(calls.items())}
    last = max(arrive, key=lambda rank: (arrive[rank], -rank))
    apart = collective.first.library == "gloo"
    transfer = Transfer(arrive, end, last, apart)
    return _waits_in_part(transfer, collective) if apart and not collective.alone else transfer


def _waits_in_part(transfer: Transfer, collective: MatchedCollective) -> Transfer:
    """Say whom each member of a collective of Gloo waited for, if that is not everybody."""
    members = [rank for rank in collective.group_ranks if rank not in collective.lost]
    place = max(call.root for call in collective.calls.values())
    root = collective.group_ranks[place] if 0 <= place < len(collective.group_ranks) else -1
    if root not in transfer.arrive:
        return transfer
    each = awaited_members(collective.op, len(members), members.index(root))
    if not each:
        return transfer
    awaited = {
        rank: tuple(members[one] for one in sorted(each[at]) if members[one] in transfer.arrive)
        for at, rank in enumerate(members)
        if rank in transfer.arrive
    }
    found = replace(transfer, awaited=awaited, eager=2)
    if all(transfer.end[rank] >= transfer.arrive[found.waited_for(rank)] for rank in awaited):
        return found if len(members) > 2 else transfer
    # It left before those came: clocks of two nodes, or a transport that keeps what is sent.
    alone = {rank: (rank, root) if rank != root else (rank,) for rank in awaited}
    return replace(transfer, awaited=alone, eager=1)
