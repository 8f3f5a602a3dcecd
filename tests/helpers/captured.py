"""Recordings of captured ranks, and what a real run of the same programs was told, for tests."""

from __future__ import annotations

import json

from commsim.traces.capture.records import CapturedCall, CapturedMessage, Recording, load_recording
from helpers.paths import TESTS

DATA = TESTS / "data"
RUNS = {
    "ddp-2": 2, "ddp-4": 4, "ddp-real-2": 2, "fsdp2-2": 2, "fsdp2-4": 4, "tp-2": 2,
    "fsdp2-tp-4": 4, "gpipe-2": 2, "1f1b-2": 2, "1f1b-4": 4, "interleaved-2": 2, "p2p-2": 2,
    "p2p-4": 4,
}  # fmt: skip
RANKS = [(run, rank) for run, world in RUNS.items() for rank in range(world)]
KINDS = {
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "broadcast_": "broadcast",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
}


def recordings(run: str) -> dict[int, Recording]:
    """Return the captured ranks of a run."""
    return {r: load_recording(DATA / f"captures/{run}.{r}.json.gz") for r in range(RUNS[run])}


def told(run: str, rank: int) -> list[tuple[object, ...]]:
    """Return what a rank of a real run told torch.distributed, in order."""
    calls = json.loads((DATA / f"gloo_runs/{run}/rank{rank}.calls.json").read_text())
    found: list[tuple[object, ...]] = []
    for call in calls:
        ranks = tuple(call["ranks"])
        if call["op"] in ("send", "recv_"):
            found.append((call["op"].rstrip("_"), ranks, call["in"], call["peer"], call["tag"]))
            continue
        kind = KINDS[call["op"]]
        size = {"all_gather": call["out"], "barrier": 0}.get(kind, call["in"])
        found.append((kind, ranks, size, call["dtype"]))
    return found


def issued(recording: Recording) -> list[tuple[object, ...]]:
    """Return the communication of a captured rank, in order, in the same form."""
    found: list[tuple[object, ...]] = []
    for record in recording.records:
        if isinstance(record, CapturedCall):
            ranks = recording.groups[record.group].ranks
            found.append((record.op, ranks, record.size, record.dtype))
        elif isinstance(record, CapturedMessage):
            ranks = recording.groups[record.group].ranks
            verb = "send" if record.sends else "recv"
            found.append((verb, ranks, record.size, record.peer, record.tag))
    return found
