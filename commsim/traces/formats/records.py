"""
What a recording says about one rank: what it issued, in order. Most formats have no more.

`sent` and `received` are the bytes that go in and come out on this rank. -1, "" and () are
unknown. `after` are the calls (by index) that a call waits for if the format says so; None
leaves it to the order of issue (see `assemble`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from commsim.traces.formats.values import FAR

__all__ = ["Issued", "RankRecord", "buffer_size"]


class Issued(msgspec.Struct, frozen=True):
    """One thing a rank issued: a collective, send, recv, compute, or a wait for earlier calls.

    `root` and `peer` are global ranks; `splits` bytes to each member; `duration` in ps, of work
    or of a transfer that was measured. `blocking`: what is issued later waits for it. `time`:
    when it was issued, in unix ns.
    """

    op: str
    sent: int = -1
    received: int = -1
    dtype: str = ""
    group: str = ""
    ranks: tuple[int, ...] = ()
    root: int = -1
    peer: int = -1
    tag: int = 0
    splits: tuple[int, ...] = ()
    sequence: int = -1
    duration: int = -1
    name: str = ""
    stream: str = ""
    on_cpu: bool = False
    blocking: bool = True
    after: tuple[int, ...] | None = None
    time: int = -1

    def size(self, members: int) -> int:
        """Return S of nccl-tests in bytes, or a message's own; -1 if it is not known."""
        if self.op in ("send", "recv"):
            return max(self.sent, self.received)
        return buffer_size(self.op, self.sent, self.received, members)


class RankRecord(msgspec.Struct, frozen=True):
    """What one file says: its rank (-1 if unknown), the run's size, and the calls in order.

    `places` are its place in a group and the size of that, where only the files of all ranks
    together say the members; `root` and `peer` of calls in such groups are places in them.
    """

    name: str
    format: str
    rank: int
    world_size: int
    calls: tuple[Issued, ...]
    library: str = ""
    groups: Mapping[str, tuple[int, ...]] | None = None
    notes: tuple[str, ...] = ()
    places: Mapping[str, tuple[int, int]] | None = None


def buffer_size(op: str, sent: int, received: int, members: int) -> int:
    """Return S in bytes from the bytes that go in and come out of a call on one rank.

    S is the largest buffer that a rank holds; if only one side is known, the other follows
    from the number of members. -1: it is not known, or no buffer is so large.
    """
    size = _largest(op, sent, received, members)
    return size if size < FAR else -1


def _largest(op: str, sent: int, received: int, members: int) -> int:
    if op == "all_gather" and sent >= 0 and members > 0:
        return max(received, sent * members)
    if op == "reduce_scatter" and received >= 0 and members > 0:
        return max(sent, received * members)
    if op in ("gather", "scatter") and members > 0:
        part = sent if op == "gather" else received
        return max(sent, received, part * members if part >= 0 else -1)
    if op == "all_to_all_v":
        return sent
    return max(sent, received)
