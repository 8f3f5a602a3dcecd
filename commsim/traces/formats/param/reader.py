"""
PARAM's comms traces ("basic" JSON): a list of calls per rank, in elements.

Two spellings are about: in_msg_size and inMsgSize. Calls are asynchronous if a later
{"comms": "wait", "req": r} waits for them, else they block.
"""

from __future__ import annotations

from typing import Any

import msgspec

from commsim.errors import TraceError
from commsim.ops import ROOTED, op_of
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.kineto import rank_in_name
from commsim.traces.formats.records import Issued, RankRecord
from commsim.traces.formats.values import dtype_of, in_bytes, integer, numbers_of, splits_in_bytes

__all__ = ["is_param", "read_param"]

_SPELLINGS = {
    "in": ("in_msg_size", "inMsgSize"), "out": ("out_msg_size", "outMsgSize"),
    "in_split": ("in_split", "inSplit"), "out_split": ("out_split", "outSplit"),
    "group": ("pg_id", "pgId"), "ranks": ("global_ranks", "globalRanks"),
    "world": ("world_size", "worldSize"), "source": ("src_rank", "srcRank"),
    "target": ("dst_rank", "dstRank"), "time": ("startTime_ns", "startTimeNs"),
}  # fmt: skip


def is_param(data: Data) -> bool:
    """Say whether a JSON text looks like a comms trace of PARAM."""
    return data.lstrip()[:1] == b"[" and b'"comms"' in data


def read_param(document: Document) -> RankRecord:
    """Read one rank's calls. Raises TraceError if the file is not such a list."""
    try:
        rows = msgspec.json.decode(document.data, type=list[dict[str, Any]])
    except BAD_JSON as error:
        raise TraceError(f"{document.name}: not a readable PARAM comms trace ({error}).") from None
    groups = {
        str(_get(row, "group")): ranks
        for row in rows
        if row.get("comms") == "init" and (ranks := numbers_of(_get(row, "ranks")))
    }
    worlds = [integer(_get(row, "world")) for row in rows]
    rank = rank_in_name(document.name)
    calls, skipped = _calls(rows, groups)
    notes = ["PARAM trace: calls in order, no durations."]
    if skipped:
        notes.append(f"PARAM trace: {skipped} compute entries have no duration; left out.")
    return RankRecord(
        name=document.name,
        format="PARAM comms",
        rank=rank,
        world_size=min(max([0, *worlds]), 1_000_000),
        calls=calls,
        groups=groups,
        notes=tuple(notes),
    )


def _get(row: dict[str, Any], what: str) -> Any:
    return next((row[name] for name in _SPELLINGS[what] if name in row), None)


def _calls(
    rows: list[dict[str, Any]], groups: dict[str, tuple[int, ...]]
) -> tuple[tuple[Issued, ...], int]:
    calls: list[Issued] = []
    awaited = {_request(row) for row in rows if row.get("comms") == "wait"}
    issued: dict[str, int] = {}
    skipped = 0
    for row in rows:
        name = str(row.get("comms", ""))
        if name in ("", "init"):
            skipped += "compute" in row
            continue
        if name == "wait":
            at = issued.get(_request(row), len(calls) - 1)
            calls.append(Issued("wait", after=(at,) if at >= 0 else ()))
            continue
        request = _request(row)
        blocking = not request or request not in awaited
        if request:
            issued[request] = len(calls)
        calls.append(_call(row, name, groups, blocking))
    return tuple(calls), skipped


def _request(row: dict[str, Any]) -> str:
    """Return the handle of a call: a number, or in newer traces [group, number, is_p2p]."""
    return str(row.get("req", ""))


def _call(
    row: dict[str, Any], name: str, groups: dict[str, tuple[int, ...]], blocking: bool
) -> Issued:
    group = _get(row, "group")
    ranks = groups.get(str(group), ())
    dtype, itemsize = dtype_of(row.get("dtype"))
    sent, received = (in_bytes(integer(_get(row, side)), itemsize) for side in ("in", "out"))
    op = op_of(name)
    splits = splits_in_bytes(numbers_of(_get(row, "in_split")), itemsize)
    if op == "all_to_all_v" and not splits:
        op = "all_to_all"
    elif op == "all_to_all" and splits and len(set(splits)) > 1:
        op = "all_to_all_v"
    peer = _get(row, "target") if op == "send" else _get(row, "source")
    return Issued(
        op=op,
        sent=sent,
        received=received,
        dtype=dtype,
        group="" if group is None else str(group),
        ranks=ranks,
        root=integer(row.get("root")) if op in ROOTED else -1,
        peer=integer(peer),
        splits=splits if op == "all_to_all_v" else (),
        name=name,
        blocking=blocking,
    )
