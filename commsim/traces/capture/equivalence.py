"""
Equivalence of two captured ranks: the same products, and communication at the same places.

Ops that only move bytes may differ: if a tensor does not divide evenly, the last shards are
smaller, or empty. So may waits of the host for its device, which move no data: `if rank == 0:
print(loss.item())` is no difference.
"""

from __future__ import annotations

from typing import Any

from commsim.traces.capture.axes import FoundAxes
from commsim.traces.capture.records import (
    CapturedCall,
    CapturedMessage,
    CapturedWork,
    Mark,
    Record,
    Recording,
    Sync,
    Waited,
    WaitsFor,
)

__all__ = ["difference", "signature"]


def difference(one: Recording, other: Recording, axes: FoundAxes) -> str:
    """Return in words where two ranks first differ; nothing if they do the same."""
    mine, theirs = signature(one, axes), signature(other, axes)
    for at, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b:
            return f"record {at} is {_show(a)} on rank {one.rank}, {_show(b)} on rank {other.rank}."
    if len(mine) != len(theirs):
        return f"rank {one.rank} has {len(mine)} records, rank {other.rank} {len(theirs)}."
    return ""


def signature(recording: Recording, axes: FoundAxes) -> list[tuple[Any, ...]]:
    """Return what a rank does without saying which rank it is."""
    numbers: dict[tuple[str, int], int] = {}

    def number(kind: str, value: int) -> int:
        return numbers.setdefault((kind, value), len(numbers))

    return [
        _plain(record, recording, axes, number)
        for record in recording.records
        if not isinstance(record, Sync) and (not isinstance(record, CapturedWork) or record.product)
    ]


def _plain(record: Record, recording: Recording, axes: FoundAxes, number: Any) -> tuple[Any, ...]:
    if isinstance(record, CapturedWork):
        return (record.op, record.stream, record.product)
    if isinstance(record, CapturedCall):
        axis = _axis(record.group, recording, axes)
        root = axes.position(axis, record.root) if record.root >= 0 else -1
        return (
            record.op,
            axis,
            record.size,
            record.stream,
            number("call", record.id),
            record.internal,
            record.dtype,
            record.redop,
            root,
        )
    if isinstance(record, CapturedMessage):
        axis = _axis(record.group, recording, axes)
        verb = "send" if record.sends else "recv"
        return (verb, axis, axes.position(axis, record.peer), record.size, record.tag)
    if isinstance(record, Waited):
        return ("wait", number("call", record.id), record.stream)
    if isinstance(record, Mark | WaitsFor):
        return (type(record).__name__, number("event", record.event), record.stream)
    raise AssertionError(f"{type(record).__name__} is no part of a signature")


def _axis(group: int, recording: Recording, axes: FoundAxes) -> str:
    return axes.name_of[recording.groups[group].ranks]


def _show(record: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in record[:3])
