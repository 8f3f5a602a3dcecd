"""
Which send belongs to which receive: the k-th from a to b in a group with b's k-th from a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commsim.errors import TraceError
from commsim.traces.rebuild.rank import Message, RankCollectives
from commsim.units import format_size

__all__ = ["Exchange", "match_messages"]

End = tuple[int, int, int]
"""(rank, index of the call, index of the message in it)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message: its two ends, bytes (0 where unknown), and the group it was sent in."""

    send: End
    recv: End
    size: int
    tag: int
    group: str
    ranks: tuple[int, ...]
    library: str


_Key = tuple[int, int, str, int]


def match_messages(ranks: Mapping[int, RankCollectives]) -> tuple[list[Exchange], list[str]]:
    """Return the messages of which both ends are recorded, and notes.

    Raises:
        TraceError: the two ends of a message differ in size; both are shown.
    """
    sends: dict[_Key, list[tuple[End, Message, str]]] = {}
    recvs: dict[_Key, list[tuple[End, Message, str]]] = {}
    for rank, of_rank in sorted(ranks.items()):
        for number, call in enumerate(of_rank.calls):
            for at, message in enumerate(call.messages):
                end = (rank, number, at)
                if message.op == "send":
                    key = (rank, message.peer, message.group, message.tag)
                    sends.setdefault(key, []).append((end, message, call.library))
                else:
                    key = (message.peer, rank, message.group, message.tag)
                    recvs.setdefault(key, []).append((end, message, call.library))
    found: list[Exchange] = []
    notes: list[str] = []
    for key in sorted(sends.keys() & recvs.keys()):
        found += _pairs(key, sends[key], recvs[key], notes)
    return found, notes


def _pairs(
    key: _Key,
    sends: list[tuple[End, Message, str]],
    recvs: list[tuple[End, Message, str]],
    notes: list[str],
) -> list[Exchange]:
    source, target, group, tag = key
    if len(sends) != len(recvs):
        notes.append(
            f"rank {source} sends {len(sends)} messages to rank {target}, which receives"
            f" {len(recvs)}: the first ones are matched with each other."
        )
    found = []
    for number, ((send, sent, library), (recv, received, _)) in enumerate(
        zip(sends, recvs, strict=False)
    ):
        if sent.size >= 0 and received.size >= 0 and sent.size != received.size:
            raise TraceError(
                f"message {number} from rank {source} to rank {target} differs:"
                f" {format_size(sent.size)} are sent and {format_size(received.size)} received."
                " Are these files of one run, and of the same steps?"
            )
        size = max(sent.size, received.size, 0)
        pair = (min(source, target), max(source, target))
        found.append(Exchange(send, recv, size, tag, group or "messages", pair, library))
    return found
