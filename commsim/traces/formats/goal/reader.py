"""
GOAL, the text that LogGOPSim and ATLAHS read: sends, receives and calculations per rank.

    num_ranks 2
    rank 0 {
    l1: calc 500
    l2: send 1024b to 1 tag 5 cpu 0 nic 0
    l2 requires l1
    }

`calc` counts nanoseconds. `a requires b`: a starts after b has ended; `irequires`: after b has
started, which is kept as: after what b waits for. A label may be left out. `from -1` and `tag -1`
stand for any source and any tag: such a receive takes, in the order of the file, a send to its
rank that no other receive names. The grammar is that of LogGOPSim's txt2bin.re.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from commsim.errors import TraceError
from commsim.traces.formats.files import Data, Document
from commsim.traces.formats.goal.any_source import with_sources
from commsim.traces.formats.ordering import in_order
from commsim.traces.formats.records import Issued, RankRecord
from commsim.units import PS_PER_NS

__all__ = ["is_goal", "read_goal"]

_OP = re.compile(
    r"(?:(?P<label>\w+)\s*:\s*)?"
    r"(?:(?P<way>send|recv)\s+(?P<size>\d+)b?\s+(?:to|from)\s+(?P<peer>-1|\d+)"
    r"(?:\s+tag\s+(?P<tag>-1|\d+))?|calc\s+(?P<time>\d+))(?:\s+cpu\s+(?P<cpu>\d+))?(?:\s+nic\s+\d+)?\s*"
)
_TIE = re.compile(r"(\w+)\s+(i?requires)\s+(\w+)\s*")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RANK = re.compile(r"rank\s+(\d+)\s*\{\s*")
_HEAD = re.compile(rb"\s*(?:/\*.*?\*/\s*|//[^\n]*\n\s*|#[^\n]*\n\s*)*num_ranks\s+\d+", re.DOTALL)
_MAX_RANKS = 1_000_000


class _ReadRank(msgspec.Struct):
    number: int
    place: dict[str, int] = msgspec.field(default_factory=dict)
    found: list[re.Match[str]] = msgspec.field(default_factory=list)
    needs: list[list[int]] = msgspec.field(default_factory=list)
    begun: list[tuple[int, int]] = msgspec.field(default_factory=list)


def is_goal(data: Data) -> bool:
    """Say whether a text begins as a GOAL file does."""
    return _HEAD.match(data[: 2**16]) is not None


def read_goal(document: Document) -> list[RankRecord]:
    """Read all ranks of a file.

    Raises:
        TraceError: a line that is no GOAL, a label that is not there, or a cycle.
    """
    text = _COMMENT.sub(_lines_only, document.data.decode("utf-8", errors="replace"))
    world, ranks = _parse(document.name, text.splitlines())
    note = "GOAL: sends, receives and calculations; which collectives they were is not in it."
    return with_sources(
        [
            RankRecord(
                name=document.name,
                format="GOAL",
                rank=rank.number,
                world_size=world,
                calls=tuple(_calls(document.name, rank)),
                notes=(note,),
            )
            for rank in ranks
        ]
    )


def _lines_only(comment: re.Match[str]) -> str:
    """Keep the line ends of a comment, so that messages name the right line."""
    return "\n" * comment[0].count("\n")


def _parse(name: str, lines: Sequence[str]) -> tuple[int, list[_ReadRank]]:
    world, ranks = -1, list[_ReadRank]()
    current: _ReadRank | None = None
    for number, line in enumerate(lines, start=1):
        text = line.split("//")[0].split("#")[0].strip().removesuffix(";")
        if not text:
            continue
        if current is None and text.startswith("num_ranks"):
            count = text.split()[-1]
            world = int(count) if count.isdecimal() and len(count) < 8 else _MAX_RANKS + 1
            if world > _MAX_RANKS:
                raise TraceError(f"{name}: line {number}: {count[:40]!r} is no number of ranks.")
        elif current is None and (found := _RANK.fullmatch(text)):
            current = _ReadRank(int(found[1][:9]))
            ranks.append(current)
        elif current is not None and text == "}":
            current = None
        elif current is None or not _statement(current, text):
            raise TraceError(f"{name}: line {number}: {text[:60]!r} is no GOAL.")
    if current is not None:
        raise TraceError(f"{name}: ends inside rank {current.number}; it is cut off.")
    return world, ranks


def _statement(rank: _ReadRank, text: str) -> bool:
    """Take one statement; say whether it is one."""
    if found := _OP.fullmatch(text):
        if found["label"]:
            rank.place[found["label"]] = len(rank.found)
        rank.found.append(found)
        rank.needs.append([])
        return True
    tie = _TIE.fullmatch(text)
    if tie is None or tie[1] not in rank.place or tie[3] not in rank.place:
        return False
    op, on = rank.place[tie[1]], rank.place[tie[3]]
    if tie[2] == "requires":
        rank.needs[op].append(on)
    else:
        rank.begun.append((op, on))
    return True


def _calls(name: str, rank: _ReadRank) -> Iterator[Issued]:
    begun: list[list[int]] = [[] for _ in rank.found]
    for op, on in rank.begun:
        begun[op].append(on)
    for op in dict.fromkeys([*in_order(begun), *range(len(begun))]):
        for on in begun[op]:
            rank.needs[op] += rank.needs[on]
    order = in_order(rank.needs)
    if len(order) < len(rank.found):
        kept = set(order)
        left = next(at for at in range(len(rank.found)) if at not in kept)
        raise TraceError(
            f"{name}: rank {rank.number}: what {rank.found[left]['label']!r} requires forms a"
            " cycle."
        )
    place = {at: number for number, at in enumerate(order)}
    for at in order:
        found = rank.found[at]
        after = tuple(sorted({place[need] for need in rank.needs[at]}))
        yield _call(found, after)


def _call(found: re.Match[str], after: tuple[int, ...]) -> Issued:
    if found["time"] is not None:
        cpu = found["cpu"] or "0"
        return Issued(
            "compute",
            duration=min(int(found["time"][:19]), 2**50) * PS_PER_NS,
            name="calc",
            stream=f"cpu {cpu}",
            on_cpu=True,
            after=after,
        )
    size = min(int(found["size"][:19]), 2**60)
    return Issued(
        found["way"],
        sent=size,
        received=size,
        peer=min(int(found["peer"][:19]), 2**40),
        tag=int((found["tag"] or "0")[:12]),
        after=after,
    )
