"""
Matching of messages: the k-th send from a to b in a group with b's k-th receive from a.

A receive from any source takes the send of its tag that ended nearest; what is left over on both
sides is matched by ranks and size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from commsim.errors import TraceError
from commsim.traces.rebuild.rank import KernelMessage, RankCollectives
from commsim.units import format_size

__all__ = ["Exchange", "MessageTimes", "match_messages", "move_of"]

End = tuple[int, int, int]
"""(rank, index of the call, index of the message in it)."""
Span = tuple[int, int]


class Exchange(msgspec.Struct, frozen=True):
    """A message: its two ends, bytes (0 if unknown), and the group it was sent in.

    `found_done` is that of the send and of the receive (`KernelMessage`).
    """

    send: End
    recv: End
    size: int
    tag: int
    group: str
    ranks: tuple[int, ...]
    library: str
    found_done: Span = (-1, -1)


class MessageTimes(msgspec.Struct, frozen=True):
    """When a message moved, in ps: from `start` until `until`; `ends` are those of both its ends.

    A kernel of NCCL that sends is done when a buffer has taken the data, so there its receive says
    until when; Gloo's threads wake late, so there the first end does.
    `eager`: it left before the receive was there, and each end took its own time.
    """

    start: int
    until: int
    ends: Span
    eager: bool


def move_of(exchange: Exchange, send: Span, recv: Span) -> MessageTimes:
    """Return when a message moved whose ends are recorded from and until so.

    An end that a wait found done ended before that wait: with the other end, if that was waited
    for, else nobody knows when; then the message took no longer than the shorter wait.
    """
    spans, done = (send, recv), exchange.found_done
    by = [end - max(0, took) for (_, end), took in zip(spans, done, strict=True)]
    if by[0] < recv[0]:
        ends = [b + took if took >= 0 else e for (b, e), took in zip(spans, done, strict=True)]
        return MessageTimes(recv[0], max(recv[0], ends[1]), (ends[0], ends[1]), eager=True)
    start = max(send[0], recv[0])
    known = [end for (_, end), took in zip(spans, done, strict=True) if took < 0]
    left = max(start, min([*by, *(known or [start + min(done)])]))
    last = [left if took >= 0 else end for (_, end), took in zip(spans, done, strict=True)]
    until = left if exchange.library == "gloo" else max(start, last[1])
    return MessageTimes(start, until, (last[0], last[1]), eager=False)


class _Post(msgspec.Struct, frozen=True):
    """A send or receive as it was posted; `begin` and `until` in ps on the files' own clocks."""

    end: End
    message: KernelMessage
    library: str
    begin: int
    until: int


_Key = tuple[int, int, str, int]
_Queues = dict[_Key, list[_Post]]


def match_messages(
    ranks: Mapping[int, RankCollectives], zeros: Mapping[int, int]
) -> tuple[list[Exchange], list[str]]:
    """Return the messages of which both ends are recorded, and notes.

    `zeros` is each file's zero in ps.

    Raises:
        TraceError: the two ends of a message differ in size; both are shown.
    """
    sends: _Queues = {}
    receives: list[tuple[int, _Post]] = []
    for rank, of_rank in sorted(ranks.items()):
        for number, call in enumerate(of_rank.calls):
            begin, until = zeros[rank] + call.start, zeros[rank] + call.end
            for at, message in enumerate(call.messages):
                post = _Post((rank, number, at), message, call.library, begin, until)
                if message.op == "send":
                    key = (rank, message.peer, message.group, message.tag)
                    sends.setdefault(key, []).append(post)
                else:
                    receives.append((rank, post))
    found, left = _matched(sends, receives)
    found += _left_over(sends, left)
    found.sort(key=lambda one: (one.send[0], one.recv[0], one.group, one.tag, one.send))
    return found, _uneven(ranks, sends, left)


def _matched(
    sends: _Queues, receives: Sequence[tuple[int, _Post]]
) -> tuple[list[Exchange], list[tuple[int, _Post]]]:
    """Take for each receive, in the order posted, the next send of its source and tag.

    One from any source takes, of the next sends of all sources, the one that ended nearest to it.
    """
    found: list[Exchange] = []
    left: list[tuple[int, _Post]] = []
    for rank, post in receives:
        message = post.message
        if message.peer >= 0:
            key = (message.peer, rank, message.group, message.tag)
            keys = [key] if sends.get(key) else []
        else:
            keys = [
                key
                for key, queue in sends.items()
                if queue and key[1:] == (rank, message.group, message.tag) and _fits(queue[0], post)
            ]
        if keys:
            key = min(keys, key=lambda key: abs(sends[key][0].until - post.until))
            found.append(_exchange(sends[key].pop(0), post, key))
        else:
            left.append((rank, post))
    return found, left


def _left_over(sends: _Queues, left: list[tuple[int, _Post]]) -> Iterator[Exchange]:
    """Yield what is left over on both sides: same ranks and size, whatever the tag or group."""
    for rank, post in list(left):
        source = post.message.peer
        keys = [
            key
            for key, queue in sends.items()
            if queue and key[1] == rank and source in (-1, key[0]) and _fits(queue[0], post)
        ]
        if keys:
            key = min(keys, key=lambda key: abs(sends[key][0].until - post.until))
            left.remove((rank, post))
            yield _exchange(sends[key].pop(0), post, key)


def _fits(send: _Post, receive: _Post) -> bool:
    sizes = {send.message.size, receive.message.size} - {-1}
    return len(sizes) < 2


def _exchange(send: _Post, receive: _Post, key: _Key) -> Exchange:
    source, target, group, tag = key
    sent, received = send.message.size, receive.message.size
    if not _fits(send, receive):
        raise TraceError(
            f"a message from rank {source} to rank {target} differs:"
            f" {format_size(sent)} are sent and {format_size(received)} received."
            " Are these files of one run, and of the same steps?"
        )
    pair = (min(source, target), max(source, target))
    done = (send.message.found_done, receive.message.found_done)
    return Exchange(
        send.end,
        receive.end,
        max(sent, received, 0),
        tag,
        group or "messages",
        pair,
        send.library,
        done,
    )


def _uneven(ranks: Collection[int], sends: _Queues, left: Sequence[tuple[int, _Post]]) -> list[str]:
    """Say which ranks' messages have no other end though both ranks are recorded."""
    counts: dict[tuple[int, int], list[int]] = {}
    for (source, target, _, _), queue in sends.items():
        if queue and target in ranks:
            counts.setdefault((source, target), [0, 0])[0] += len(queue)
    for rank, post in left:
        if post.message.peer in ranks:
            counts.setdefault((post.message.peer, rank), [0, 0])[1] += 1
    return [
        f"rank {source} sent {sent} messages to rank {target} that no receive matches."
        if sent
        else f"rank {target} posted {received} receives from rank {source} that no send matches."
        for (source, target), (sent, received) in sorted(counts.items())
    ]
