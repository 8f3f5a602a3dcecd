"""
Receives from any source or with any tag, which GOAL writes as -1: which send each one takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from commsim.traces.formats.records import Issued, RankRecord

__all__ = ["ANY", "with_sources"]

ANY = -1


class _Send(msgspec.Struct):
    source: int
    tag: int
    taken: bool = False


def with_sources(records: Sequence[RankRecord]) -> list[RankRecord]:
    """Return the records with a source and a tag for each receive.

    What a receive names it takes first; then each open one takes, in the order of its rank's
    file, the first send that is left: of all ranks' sends in the order of theirs. One that finds
    none stays open, and is a message with a rank that is not recorded.
    """
    if not any(_open(call) for record in records for call in record.calls):
        return list(records)
    places = [
        (place, record.rank, call)
        for record in records
        for place, call in enumerate(record.calls)
        if call.op == "send"
    ]
    sends: dict[int, list[_Send]] = {}
    for _, rank, call in sorted(places, key=lambda item: item[:2]):
        sends.setdefault(call.peer, []).append(_Send(rank, call.tag))
    for record in records:
        for call in record.calls:
            if call.op == "recv" and not _open(call):
                _take(sends.get(record.rank, []), call)
    return [
        replace(record, calls=tuple(_closed(sends.get(record.rank, []), c) for c in record.calls))
        for record in records
    ]


def _open(call: Issued) -> bool:
    return call.op == "recv" and ANY in (call.peer, call.tag)


def _closed(sends: list[_Send], call: Issued) -> Issued:
    send = _take(sends, call) if _open(call) else None
    return replace(call, peer=send.source, tag=send.tag) if send else call


def _take(sends: list[_Send], call: Issued) -> _Send | None:
    """Take the first send that is left and that the receive allows."""
    for send in sends:
        if not send.taken and call.peer in (ANY, send.source) and call.tag in (ANY, send.tag):
            send.taken = True
            return send
    return None
