"""
Flight recorder dumps: the collectives that a process enqueued, with groups and sizes; no times.

Written by TORCH_FR_BUFFER_SIZE (before 2.9 TORCH_NCCL_TRACE_BUFFER_SIZE) as a pickle per rank,
or as JSON. NCCL records collectives, sends and receives; Gloo records collectives only, and
its list of groups is not to be relied on.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from commsim.errors import TraceError
from commsim.ops import ROOTED, op_of
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.kineto import rank_in_name
from commsim.traces.formats.plain_pickle import looks_pickled, plain_values
from commsim.traces.formats.records import Issued, RankRecord
from commsim.traces.formats.values import dtype_of, in_bytes, integer, numbers_of

__all__ = ["is_flight_recorder", "read_flight_recorder"]

_PEERS = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")
_RANK_AT_END = re.compile(r"(\d+)(?:\.(?:pkl|pickle|json))?(?:\.gz)?$")


def is_flight_recorder(data: Data) -> bool:
    """Say whether a file looks like a dump: a pickle, or JSON with its keys.

    A dump has no "entries" if nothing was enqueued yet (FlightRecorder::dump_json of torch).
    """
    if looks_pickled(data):
        return True
    told = b'"entries"' in data or b'"pg_status"' in data
    return data[:1] == b"{" and told and b'"pg_config"' in data


def read_flight_recorder(document: Document) -> RankRecord:
    """Read one process's dump.

    Raises:
        TraceError: no dump, or a pickle that is more than plain values.
    """
    dump = _load(document)
    if not isinstance(dump, dict) or not isinstance(dump.get("entries", []), list):
        raise TraceError(f"{document.name}: not a flight recorder dump (no entries).")
    entries = [entry for entry in dump.get("entries", []) if isinstance(entry, dict)]
    groups = _groups(dump.get("pg_config"))
    rank = _rank(document.name)
    calls = [call for entry in entries if (call := _call(entry, groups, rank))]
    libraries = {str(entry.get("profiling_name", "")).split(":")[0] for entry in entries}
    library = next((name for name in ("nccl", "gloo") if name in libraries), "")
    largest = max((max(ranks) for ranks in groups.values()), default=-1)
    return RankRecord(
        name=document.name,
        format="flight recorder",
        rank=rank,
        world_size=largest + 1,
        calls=tuple(calls),
        library=library,
        groups=groups,
        notes=_notes(document.name, calls, library, dump.get("version")),
    )


def _load(document: Document) -> Any:
    if looks_pickled(document.data):
        return plain_values(document.data, document.name)
    try:
        return msgspec.json.decode(document.data)
    except BAD_JSON as error:
        raise TraceError(
            f"{document.name}: not a readable flight recorder dump ({error})."
        ) from None


def _rank(name: str) -> int:
    """Return the rank that the dump's name ends in; the dump itself does not hold it."""
    rank = rank_in_name(name)
    found = _RANK_AT_END.search(name)
    return rank if rank >= 0 or not found else integer(found[1])


def _groups(config: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(config, dict):
        return {}
    found = {
        str(name): numbers_of(group.get("ranks"))
        for name, group in config.items()
        if isinstance(group, dict)
    }
    return {name: ranks for name, ranks in found.items() if ranks}


def _call(entry: dict[str, Any], groups: dict[str, tuple[int, ...]], rank: int) -> Issued | None:
    """Return the call that an entry records; None for the bracket around coalesced calls."""
    name = str(entry.get("profiling_name", ""))
    label, desc = _group_of(entry)
    ranks = groups.get(label, ())
    sent, dtype = _bytes(entry, "input")
    received, out_dtype = _bytes(entry, "output")
    op = op_of(name.replace(":", " ").split(" ", 1)[-1])
    if not op or (name.lower().endswith("coalesced") and sent < 0 and received < 0):
        return None
    number = entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id")
    return Issued(
        op=op,
        sent=sent,
        received=received,
        dtype=dtype or out_dtype,
        group=f"{label} {desc}".strip() if desc else label,
        ranks=ranks,
        peer=_peer(name, ranks, rank),
        sequence=integer(number),
        name=name,
        time=integer(entry.get("time_created_ns")),
    )


def _group_of(entry: dict[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and group:
        return str(group[0]), str(group[1]) if len(group) > 1 else ""
    return str(entry.get("pg_id", "")), ""


def _bytes(entry: dict[str, Any], side: str) -> tuple[int, str]:
    """Return (bytes, type) of a side's tensors; (-1, "") if it has none."""
    shapes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    if not isinstance(shapes, list | tuple) or not shapes:
        return -1, ""
    dtype, itemsize = dtype_of(types[0] if isinstance(types, list | tuple) and types else "")
    elements = sum(_elements(shape) for shape in shapes)
    return in_bytes(elements, itemsize), dtype


def _elements(shape: Any) -> int:
    count = 1
    for extent in shape if isinstance(shape, list | tuple) else ():
        count *= max(0, integer(extent, 0))
    return count


def _peer(name: str, ranks: tuple[int, ...], rank: int) -> int:
    """Return the other end of "send 0->1" or "recv 0<-1", which are ranks in the group."""
    found = _PEERS.search(name)
    if not found:
        return -1
    member = integer(found[4])
    if ranks:
        return ranks[member] if 0 <= member < len(ranks) else -1
    return member


def _notes(name: str, calls: list[Issued], library: str, version: Any) -> tuple[str, ...]:
    notes = [
        f"flight recorder {version}: the order and the sizes of calls; it has"
        " no durations and no work between them."
    ]
    if any(call.op in ROOTED for call in calls):
        notes.append("a flight recorder does not say roots: the first rank of a group is taken.")
    if library == "gloo":
        notes.append("a flight recorder of Gloo holds no sends and receives.")
    return tuple(notes)
