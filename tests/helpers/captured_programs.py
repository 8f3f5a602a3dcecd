"""Captured steps as a few lines: recordings, their work and messages, stages of a pipeline."""

from __future__ import annotations

from typing import Any

from commsim.traces.capture.records import (
    CapturedMemory,
    CapturedMessage,
    CapturedWork,
    GroupMade,
    Record,
    Recording,
    Waited,
)

__all__ = ["PIPES", "message", "recording", "stages", "work"]


def recording(
    *records: Record,
    rank: int = 0,
    world: int = 2,
    groups: tuple[GroupMade, ...] = (),
    streams: tuple[str, ...] = ("compute", "copies"),
) -> Recording:
    made = (GroupMade(tuple(range(world)), "world"), *groups)
    return Recording(rank, world, "2.13.0", made, streams, records, CapturedMemory())


def work(name: str, stream: int = 0, **more: Any) -> CapturedWork:
    return CapturedWork(name, stream, 0.0, 1000, **more)


def message(sends: bool, peer: int, group: int = 1, number: int = 1) -> CapturedMessage:
    return CapturedMessage(sends, peer, group, 100, 0, number)


PIPES = (GroupMade((0, 2), "mesh_pp"), GroupMade((1, 3), "mesh_pp"))


def stages() -> dict[int, Recording]:
    """Two stages of two ranks each; the first of either is captured."""
    return {
        0: recording(work("a"), message(True, 2), world=4, groups=PIPES),
        2: recording(message(False, 0), Waited(1, 0), work("b"), rank=2, world=4, groups=PIPES),
    }
