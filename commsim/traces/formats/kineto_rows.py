"""
The rows of a Kineto file, decoded some at a time.

A file that is whole is cut between events, every so many bytes, and each piece is decoded by
itself: its rows are dropped before the next is read. One that cannot be cut so, or that is not
what torch.profiler writes everywhere, is decoded as a whole, and a broken one up to its break.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from commsim.errors import TraceError
from commsim.traces.formats.files import BAD_JSON, Data, Document

__all__ = [
    "LEAVE_OUT",
    "Distributed",
    "KinetoFrame",
    "KinetoRow",
    "OddPieceError",
    "rows_in_pieces",
    "rows_of_whole",
]

LEAVE_OUT = " Copy it again, or leave it out: the other ranks replay without it."
_PIECE = 2**19  # bytes that are decoded at once: their rows stay in the processor's cache
_CHUNK = 4096  # rows that are decoded at once, of a file that is read as a whole
_KEY = b'"traceEvents"'
_EVENTS = re.compile(_KEY + rb"\s*:\s*\[")
_BETWEEN = re.compile(rb'\}\s*(,)\s*\{\s*"ph"')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


class KinetoRow(msgspec.Struct, gc=False):
    """An event as the file has it; `ts` and `dur` in us, not a number if the file has none.

    `args` stay undecoded: of most events they are not used.
    """

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _LooseKinetoRow(KinetoRow):
    ts: int | float | str | None = None  # type: ignore[assignment]
    dur: int | float | str | None = None  # type: ignore[assignment]


class Distributed(msgspec.Struct):
    """What a file says of the run that its rank was part of."""

    backend: Any = None
    rank: Any = None
    world_size: Any = None
    pg_config: Any = None


class KinetoFrame(msgspec.Struct):
    """What stands around the events."""

    distributed: Distributed | None = msgspec.field(name="distributedInfo", default=None)
    base: Any = msgspec.field(name="baseTimeNanoseconds", default=None)


class _WithRows(KinetoFrame):
    rows: list[KinetoRow] = msgspec.field(name="traceEvents", default_factory=list)


class _WithTexts(KinetoFrame, kw_only=True):
    texts: list[msgspec.Raw] = msgspec.field(name="traceEvents")


_ROWS = msgspec.json.Decoder(list[KinetoRow])
_LOOSE_ROWS = msgspec.json.Decoder(list[_LooseKinetoRow])
_ENDS = msgspec.json.Decoder(_WithRows)
_WHOLE = msgspec.json.Decoder(_WithTexts)


class OddPieceError(Exception):
    """A file cannot be read in pieces: it is read as a whole."""


def rows_in_pieces(data: Data, frame: KinetoFrame) -> Iterator[list[KinetoRow]]:
    """Yield the rows of a whole file, and fill in its frame.

    Raises:
        OddPieceError: the file is broken, or not laid out as torch.profiler does.
    """
    events = _EVENTS.search(data)
    if events is None:
        raise OddPieceError
    view, at = memoryview(data), events.end()
    head = _decoded(_ENDS, b"".join((view[:at], b"]}")))
    while (cut := _BETWEEN.search(data, at + _PIECE)) is not None:
        yield _decoded(_ROWS, b"".join((b"[", view[at : cut.start(1)], b"]")))
        at = cut.end(1)
    if data.find(_KEY, at) >= 0:
        raise OddPieceError  # the key is there twice
    last = _decoded(_ENDS, b"".join((b"{", _KEY, b": [", view[at:])))
    frame.distributed = last.distributed or head.distributed
    frame.base = head.base if last.base is None else last.base
    yield last.rows


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except BAD_JSON:
        raise OddPieceError from None


def rows_of_whole(
    document: Document, frame: KinetoFrame, notes: list[str]
) -> Iterator[list[KinetoRow]]:
    """Yield the rows of any file, and fill in its frame; one that was cut gets a note.

    Raises:
        TraceError: not JSON, not a trace, or cut before its first complete event.
    """
    file = _whole(document, notes)
    frame.distributed, frame.base = file.distributed, file.base
    for at in range(0, len(file.texts), _CHUNK):
        yield _loosely(file.texts[at : at + _CHUNK], document.name)


def _loosely(texts: list[msgspec.Raw], name: str) -> list[KinetoRow]:
    """Decode some rows, whatever stands for their times."""
    text = b"[" + b",".join(texts) + b"]"
    try:
        try:
            rows = _LOOSE_ROWS.decode(text)
        except UnicodeDecodeError:
            # A name that is no UTF-8 is a name all the same.
            rows = _LOOSE_ROWS.decode(text.decode("utf-8", "replace"))
    except msgspec.ValidationError as error:
        raise TraceError(f"{name}: not a trace of torch.profiler (traceEvents: {error}).") from None
    except BAD_JSON:
        raise TraceError(f"{name}: nested too deeply; not a trace.") from None
    for row in rows:
        row.ts, row.dur = _number(row.ts), _number(row.dur)
    return list(rows)


def _number(value: Any) -> float:
    try:
        return float(value or 0)
    except (ValueError, OverflowError):
        return math.nan


def _whole(document: Document, notes: list[str]) -> _WithTexts:
    try:
        return _WHOLE.decode(document.data)
    except msgspec.ValidationError as error:
        raise TraceError(f"{document.name}: not a trace of torch.profiler ({error}).") from None
    except RecursionError:
        raise TraceError(f"{document.name}: nested too deeply; not a trace.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        ends = bytes(document.data[-64:]).rstrip().endswith(b"}")
        if not document.cut and "truncated" not in str(error) and ends:
            raise TraceError(f"{document.name}: not valid JSON ({error}).") from None
    return _salvaged(document, notes)


def _salvaged(document: Document, notes: list[str]) -> _WithTexts:
    """Read a trace that ends in the middle, up to its last complete event."""
    end = _last_whole_event(document.data)
    cut = f"{document.name}: cut off before its first complete event.{LEAVE_OUT}"
    if end < 0:
        raise TraceError(cut)
    try:
        file = _WHOLE.decode(document.data[:end] + b"]}")
    except BAD_JSON:
        raise TraceError(cut) from None
    lost = len(document.data) - end
    notes.append(f"cut off: {len(file.texts)} events are whole, the last {lost} bytes are lost.")
    return file


def _last_whole_event(data: Data) -> int:
    """Return where the last complete element of "traceEvents" ends, -1 without one."""
    start = data.find(_KEY)
    depth, end = 0, -1
    for token in _TOKEN.finditer(data, start + len(_KEY)) if start >= 0 else ():
        mark = token[0]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 1:
                end = token.end()
            elif depth < 1:
                break
    return end
