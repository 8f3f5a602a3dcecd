"""
NCCL_DEBUG=INFO logs with NCCL_DEBUG_SUBSYS=INIT,COLL: order and sizes of calls, no times.

    host:pid:tid [0] NCCL INFO AllReduce: opCount 1e7 sendbuff 0x1 recvbuff 0x2 count 18816
      datatype 7 op 0 root 0 comm 0x55 [nranks=16] stream 0x3
    host:pid:tid [0] NCCL INFO ncclCommInitRank comm 0x55 rank 3 nranks 16 ... commId 0x9 - Init
      COMPLETE

A log may hold many processes, or be one of several. commId says which of their communicators are
the same; a process is the rank that it has in the largest of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.ops import NCCL_TYPES, ROOTED, element_bytes, op_of
from commsim.traces.formats.files import Data, Document
from commsim.traces.formats.records import Issued, RankRecord
from commsim.traces.formats.values import in_bytes

__all__ = ["is_nccl_log", "join_nccl_logs", "read_nccl_log"]

_N = r"\d{1,18}"  # as many digits as 64 bits hold
_CALL = re.compile(
    rf"(?P<host>[^\s:]+):(?P<pid>{_N}):\d+ \[(?P<device>-?{_N})\] (?:\d+ )?NCCL INFO (?P<op>\w+): "
    r"opCount (?P<count>[0-9a-f]{1,15}) sendbuff \S+ recvbuff \S+ (?:acc \S+ )?"
    rf"count (?P<elements>{_N}) datatype (?P<type>{_N}) op (?P<redop>\d+) root (?P<root>-?{_N}) "
    rf"comm (?P<comm>\S+) \[nranks=(?P<nranks>{_N})\]"
)
_INIT = re.compile(
    rf"(?P<host>[^\s:]+):(?P<pid>{_N}):\d+ \[(?P<device>-?{_N})\] (?:\d+ )?NCCL INFO (?:\w+) comm "
    rf"(?P<comm>0x[0-9a-f]+) rank (?P<rank>{_N}) nranks (?P<nranks>{_N}).*?"
    r"(?:commId (?P<id>0x[0-9a-f]+))?.*?Init COMPLETE"
)
_ID = re.compile(r"commId (0x[0-9a-f]+)")
_MAX_RANKS = 1_000_000

_Process = tuple[str, int, int]  # host, process, device: one process may drive several


class _Log(msgspec.Struct):
    """What the lines say: communicators by process and address, and calls by process."""

    comms: dict[tuple[_Process, str], tuple[int, int, str]] = msgspec.field(default_factory=dict)
    calls: dict[_Process, list[re.Match[str]]] = msgspec.field(default_factory=dict)


def is_nccl_log(data: Data) -> bool:
    """Say whether a text holds NCCL's lines about calls."""
    return b"NCCL INFO" in data and b"opCount" in data


def read_nccl_log(document: Document) -> list[RankRecord]:
    """Read the calls of every process in a log.

    Raises:
        TraceError: the log has no call, or does not say which rank each process is.
    """
    log = _lines(document)
    ranks = _ranks(document.name, log)
    members = _members(log, ranks)
    return [
        RankRecord(
            name=document.name,
            format="NCCL log",
            rank=ranks[process],
            world_size=max(ranks.values()) + 1,
            calls=tuple(_calls(log, process, matches, members)),
            library="nccl",
            places={
                number: (place, size)
                for (of, _), (place, size, number) in log.comms.items()
                if of == process and number and number not in members
            },
            notes=(
                "NCCL log: the order and the sizes of calls; it has no durations"
                " and no work between them.",
            ),
        )
        for process, matches in sorted(log.calls.items(), key=lambda item: ranks[item[0]])
    ]


def join_nccl_logs(records: Sequence[RankRecord]) -> list[RankRecord]:
    """Tell each call its ranks, if logs of other processes say the members of its communicator.

    Where they do not, it is taken to be of neighbours: the ranks around its own. The largest one is
    the whole run, whose members need no log.
    """
    found: dict[str, dict[int, int]] = {}
    for record in records:
        for number, (place, _) in (record.places or {}).items():
            found.setdefault(number, {})[place] = record.rank
    sizes = {(number, size) for r in records for number, (_, size) in (r.places or {}).items()}
    whole = {(number, size): _in_order(found[number], size) for number, size in sizes}
    return [_joined(record, whole) if record.places else record for record in records]


def _joined(record: RankRecord, whole: Mapping[tuple[str, int], tuple[int, ...]]) -> RankRecord:
    groups: dict[str, tuple[int, ...]] = {}
    guessed, places = 0, record.places or {}
    largest = max(size for _, size in places.values())
    for number, (place, size) in places.items():
        groups[number] = whole[number, size]
        if not groups[number] and size < _MAX_RANKS:
            first = max(0, record.rank - place)
            groups[number] = _neighbours(first, size)
            guessed += (first, size) != (0, largest)
    what = f"{guessed} communicators have" if guessed > 1 else "a communicator has"
    notes = (
        f"{record.name}: {what} members whose logs are not given: they are taken to be the ranks"
        " next to its own.",
    )
    return replace(
        record,
        calls=tuple(_placed(call, groups.get(call.group, ())) for call in record.calls),
        notes=(*record.notes, *(notes if guessed else ())),
    )


@lru_cache(maxsize=64)  # the logs of one run share them
def _neighbours(first: int, size: int) -> tuple[int, ...]:
    return tuple(range(first, first + size))


def _placed(call: Issued, ranks: tuple[int, ...]) -> Issued:
    """Return a call with its ranks, and with a rank for each place in its communicator."""
    if not ranks:
        return call
    root, peer = (ranks[at] if 0 <= at < len(ranks) else -1 for at in (call.root, call.peer))
    return replace(call, ranks=ranks, root=root, peer=peer)


def _lines(document: Document) -> _Log:
    log = _Log()
    for line in document.data.decode("utf-8", errors="replace").splitlines():
        if "opCount" in line and (found := _CALL.search(line)):
            log.calls.setdefault(_process(found), []).append(found)
        elif "Init COMPLETE" in line and (found := _INIT.search(line)):
            number = _ID.search(line)
            key = (_process(found), found["comm"])
            log.comms[key] = (int(found["rank"]), int(found["nranks"]), number[1] if number else "")
    if not log.calls:
        raise TraceError(
            f"{document.name}: no line about a call. Log with NCCL_DEBUG=INFO and"
            " NCCL_DEBUG_SUBSYS=INIT,COLL."
        )
    return log


def _process(found: re.Match[str]) -> _Process:
    return found["host"], int(found["pid"]), int(found["device"])


def _ranks(name: str, log: _Log) -> dict[_Process, int]:
    """Return each process's rank: that in its largest communicator."""
    best: dict[_Process, tuple[int, int]] = {}
    for (process, _), (rank, nranks, _id) in log.comms.items():
        if process not in best or nranks > best[process][0]:
            best[process] = (nranks, rank)
    unknown = [process for process in log.calls if process not in best]
    if not unknown and len({rank for _, rank in best.values()}) == len(best):
        return {process: rank for process, (_, rank) in best.items()}
    if len(log.calls) == 1:
        return dict.fromkeys(log.calls, 0)
    sizes = {int(found["nranks"]) for found in (of[0] for of in log.calls.values())}
    if len(log.calls) <= max(sizes) < _MAX_RANKS:
        order = sorted(log.calls)
        return {process: number for number, process in enumerate(order)}
    raise TraceError(
        f"{name}: does not say which rank each process is. Log with NCCL_DEBUG_SUBSYS=INIT,COLL."
    )


def _members(log: _Log, ranks: dict[_Process, int]) -> dict[str, tuple[int, ...]]:
    """Return the global ranks of each commId, if all of its members are in the log."""
    places: dict[str, dict[int, int]] = {}
    sizes: dict[str, int] = {}
    for (process, _), (rank, nranks, number) in log.comms.items():
        if number and process in ranks:
            places.setdefault(number, {})[rank] = ranks[process]
            sizes[number] = nranks
    found = {number: _in_order(at, sizes[number]) for number, at in places.items()}
    return {number: known for number, known in found.items() if known}


def _in_order(at: Mapping[int, int], size: int) -> tuple[int, ...]:
    """Return the rank at each place of a communicator, () if not all are known."""
    if len(at) != size or max(at) >= size:
        return ()
    return tuple(at[place] for place in range(size))


def _calls(
    log: _Log, process: _Process, matches: list[re.Match[str]], members: dict[str, tuple[int, ...]]
) -> Iterator[Issued]:
    for found in matches:
        _, _, number = log.comms.get((process, found["comm"]), (0, 0, ""))
        nranks = int(found["nranks"])
        ranks = members.get(number) or _taken(number, nranks)
        op, root = op_of(found["op"]), int(found["root"])
        at = int(found["type"])
        dtype = NCCL_TYPES[at] if at < len(NCCL_TYPES) else ""
        itemsize = element_bytes(dtype) if dtype else -1
        part = in_bytes(int(found["elements"]), itemsize)
        other = ranks[root] if 0 <= root < len(ranks) else -1 if ranks else root
        yield Issued(
            op=op,
            sent=part * nranks if op == "all_to_all" else -1 if op == "reduce_scatter" else part,
            received=part if op == "reduce_scatter" else -1,
            dtype=dtype,
            group=number or f"{nranks} ranks",
            ranks=ranks,
            root=other if op in ROOTED else -1,
            peer=other,
            sequence=int(found["count"], 16) if op not in ("send", "recv") else -1,
            name=found["op"],
        )


def _taken(number: str, nranks: int) -> tuple[int, ...]:
    """Return the first ranks, for a communicator of which no line says more."""
    return () if number or nranks >= _MAX_RANKS else tuple(range(nranks))
