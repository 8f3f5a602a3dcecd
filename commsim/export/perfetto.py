"""
Perfetto's own protobuf format: smaller than Chrome JSON, quicker to open, sorted tracks.

    rank 0                 a process per rank, in order of ranks
      compute              a track per stream; more if its spans overlap
      memory               a counter, if ops take and give memory
    links (GB/s)           a counter per busy link

Perfetto counts in whole nanoseconds: times are rounded to the nearest. Waiting is a slice of its
own in front of what waits; an arrow runs from each send to its recv.

A trace is a sequence of packets, so it is written piece by piece. The messages of a packet come
from protobuf; a packet is put together from the bytes of its fields, which protobuf allows in
any order: what a million events share is made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from commsim.arrays import Ints
from commsim.export.counters import Counter, link_counters, memory_counters
from commsim.export.perfetto_schema import (
    CLEARED,
    COUNTER,
    EXPLICIT_CHILDREN,
    EXPLICIT_PROCESSES,
    NEEDS_STATE,
    SIZE_BYTES,
    SLICE_BEGIN,
    SLICE_END,
    PerfettoMessages,
    perfetto_messages,
)
from commsim.export.rows import Rows, arrows, described, lay_out, process_name, track_name
from commsim.files import write_aside
from commsim.timeline import Timeline
from commsim.units import PS_PER_NS

__all__ = ["write_perfetto"]


_CHUNK = 50_000  # spans per write
_SEQUENCE = 1
_WAIT = "wait"
_PACKET, _TIMESTAMP, _EVENT = b"\x0a", b"\x40", b"\x5a"  # fields 1, 8 and 11 with their wire types


def write_perfetto(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` to a .pftrace file; the same timeline gives the same bytes.

    Raises:
        ScenarioError: protobuf is not installed.
    """
    made = perfetto_messages()

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            for piece in _pieces(timeline, made):
                file.write(piece)

    write_aside(path, write)


def _pieces(timeline: Timeline, made: PerfettoMessages) -> Iterator[bytes]:
    """Yield a trace as bytes: names, tracks, slices, counters."""
    rows = lay_out(timeline)
    which, descriptions = described(timeline)
    names = _Names(descriptions)
    yield _packets(made, [names.packet(made), *_tracks(timeline, rows, made)])
    bodies = [names.event(made, *description) for description in descriptions]
    yield from _slices(timeline, rows, made, names, which, bodies)
    for at, counter in enumerate(link_counters(timeline)):
        yield _counter(counter, made, _link_track(timeline, rows, at), "GB/s", at)
    for counter in memory_counters(timeline):
        yield _counter(counter, made, _memory_track(rows, counter.lane), "", -1)


class _Names:
    """Texts that events refer to by number: names of ops, categories, names of arguments."""

    def __init__(self, descriptions: list[tuple[str, str, dict[str, Any]]]) -> None:
        arguments = (key for _, _, known in descriptions for key in known)
        self._events = _numbers([_WAIT, *(name for name, _, _ in descriptions)])
        self._categories = _numbers([_WAIT, *(category for _, category, _ in descriptions)])
        self._arguments = _numbers(["op", *arguments])

    def packet(self, made: PerfettoMessages) -> Any:
        """Return the packet that tells the numbers."""
        packet = made.packet(
            trusted_packet_sequence_id=_SEQUENCE, sequence_flags=CLEARED | NEEDS_STATE
        )
        interned = packet.interned_data
        for table, names in (
            (interned.event_names, self._events),
            (interned.event_categories, self._categories),
            (interned.debug_annotation_names, self._arguments),
        ):
            for name, number in names.items():
                table.add(iid=number, name=name)
        return packet

    def event(
        self, made: PerfettoMessages, name: str, category: str, known: dict[str, Any]
    ) -> bytes:
        """Return the bytes of the start of a slice, all but its track and its op."""
        event = made.event(
            type=SLICE_BEGIN,
            name_iid=self._events[name],
            category_iids=[self._categories[category]],
        )
        for key, value in known.items():
            kind = "int_value" if isinstance(value, int) else "string_value"
            event.debug_annotations.add(**{"name_iid": self._arguments[key], kind: value})
        return bytes(event.SerializeToString(deterministic=True))

    def wait(self, made: PerfettoMessages) -> bytes:
        """Return the bytes of the start of a wait."""
        return self.event(made, _WAIT, _WAIT, {})


def _numbers(names: list[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names), start=1)}


def _packets(made: PerfettoMessages, packets: list[Any]) -> bytes:
    return bytes(made.trace(packet=packets).SerializeToString(deterministic=True))


def _process_track(lane: int) -> int:
    return lane + 1


def _span_track(rows: Rows, track: Ints | int) -> Any:
    """Return the id of a track of spans: those of processes come before."""
    return track + 1 + int(rows.lane.max(initial=-1)) + 1


def _memory_track(rows: Rows, lane: int) -> int:
    return int(_span_track(rows, len(rows.lane))) + 1 + lane


def _link_track(timeline: Timeline, rows: Rows, at: int) -> int:
    """Return the id of the `at`-th counter of a link; -1 is what they stand under."""
    return _memory_track(rows, len(timeline.graph.lane_rank)) + 2 + at


def _tracks(timeline: Timeline, rows: Rows, made: PerfettoMessages) -> Iterator[Any]:
    """Yield packets that describe all tracks, parents first."""
    graph = timeline.graph
    # Ranks of processes count only if the root says so.
    yield _track(made, uuid=0, process_ordering=EXPLICIT_PROCESSES)
    for lane in np.argsort(graph.lane_rank, kind="stable").tolist():
        rank = int(graph.lane_rank[lane])
        packet = _track(
            made,
            uuid=_process_track(lane),
            child_ordering=EXPLICIT_CHILDREN,
            sibling_order_rank=rank,
        )
        process = packet.track_descriptor.process
        # Process 0 is the idle task of a kernel to Perfetto.
        process.pid, process.legacy_sort_index = rank + 1, rank
        process.process_name = process_name(graph, lane)
        yield packet
    columns = (rows.lane.tolist(), rows.stream.tolist(), rows.copy.tolist())
    for track, (lane, stream, copy) in enumerate(zip(*columns, strict=True)):
        yield _track(
            made,
            uuid=_span_track(rows, track),
            parent_uuid=_process_track(lane),
            name=track_name(graph, stream, copy),
            sibling_order_rank=stream,
        )


def _track(made: PerfettoMessages, **fields: Any) -> Any:
    return made.packet(trusted_packet_sequence_id=_SEQUENCE, track_descriptor=made.track(**fields))


def _slices(
    timeline: Timeline,
    rows: Rows,
    made: PerfettoMessages,
    names: _Names,
    which: Ints,
    bodies: list[bytes],
) -> Iterator[bytes]:
    """Yield the slices, track by track and in time, so that ends come before next starts."""
    state = made.packet(trusted_packet_sequence_id=_SEQUENCE, sequence_flags=NEEDS_STATE)
    head = bytes(state.SerializeToString(deterministic=True))
    tracks = [
        bytes(made.event(track_uuid=_span_track(rows, at)).SerializeToString())
        for at in range(len(rows.lane))
    ]
    close = bytes(made.event(type=SLICE_END).SerializeToString())
    ends = [_tail(head, close + track) for track in tracks]
    waits = [_tail(head, names.wait(made) + track) for track in tracks]
    flows = _flows(timeline, made)
    for first in range(0, len(rows.order), _CHUNK):
        spans = rows.order[first : first + _CHUNK]
        op = timeline.op[spans]
        columns = (
            spans.tolist(), rows.track[spans].tolist(), which[op].tolist(), _op_notes(op),
            _stamps(rows.begin[spans]), _stamps(timeline.start[spans]),
            _stamps(timeline.end[spans]), (rows.begin[spans] < timeline.start[spans]).tolist(),
        )  # fmt: skip
        out: list[bytes] = []
        for span, track, number, note, begin, start, end, waited in zip(*columns, strict=True):
            if waited:
                out += (_packet(begin, waits[track]), _packet(start, ends[track]))
            body = bodies[number] + tracks[track] + note + flows.get(span, b"")
            out += (_packet(start, _tail(head, body)), _packet(end, ends[track]))
        yield b"".join(out)


def _packet(stamp: bytes, tail: bytes) -> bytes:
    return _PACKET + _SIZES[len(stamp) + len(tail)] + stamp + tail


def _tail(head: bytes, event: bytes) -> bytes:
    """Return what follows a packet's time: `head`, and the event."""
    return head + _EVENT + _SIZES[len(event)] + event


class _Sizes(dict[int, bytes]):
    """Lengths as varints, each computed once."""

    def __missing__(self, value: int) -> bytes:
        self[value] = found = _varints(np.array([value]))[0]
        return found


_SIZES = _Sizes()


def _varints(values: Ints) -> list[bytes]:
    """Return each value in protobuf's seven bits per byte, lowest first."""
    most = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    parts = values[:, None] >> (7 * np.arange(most))
    counts = np.maximum(1, np.count_nonzero(parts > 0, axis=1))
    digits = (parts & 0x7F) | 0x80
    digits[np.arange(len(values)), counts - 1] &= 0x7F
    raw = digits.astype(np.uint8).tobytes()
    return [raw[at * most : at * most + count] for at, count in enumerate(counts.tolist())]


def _stamps(times: Ints) -> list[bytes]:
    """Return the timestamp fields of picoseconds, rounded to ns."""
    return [_TIMESTAMP + value for value in _varints((times + PS_PER_NS // 2) // PS_PER_NS)]


def _op_notes(ops: Ints) -> list[bytes]:
    """Return the annotation "op" of each slice: field 4 of an event, name 1, an integer."""
    values = _varints(ops)
    return [b"\x22" + _SIZES[len(value) + 3] + b"\x08\x01\x20" + value for value in values]


def _flows(timeline: Timeline, made: PerfettoMessages) -> dict[int, bytes]:
    """Return the arrows that begin or end at a span."""
    found: dict[int, bytes] = {}
    for message, send, recv in arrows(timeline):
        found[send] = bytes(made.event(flow_ids=[message + 1]).SerializeToString())
        found[recv] = bytes(made.event(terminating_flow_ids=[message + 1]).SerializeToString())
    return found


def _counter(counter: Counter, made: PerfettoMessages, track: int, unit: str, place: int) -> bytes:
    """Return a counter's track and its values; `place` among the links, -1 for memory."""
    packets = []
    if place == 0:
        packets.append(
            _track(
                made,
                uuid=track - 1,
                name="links (GB/s)",
                child_ordering=EXPLICIT_CHILDREN,
                sibling_order_rank=2**31 - 1,
            )
        )
    above = track - 1 - place if place >= 0 else _process_track(counter.lane)
    packet = _track(
        made, uuid=track, parent_uuid=above, name=counter.name, sibling_order_rank=max(place, -1)
    )
    described = packet.track_descriptor.counter
    if unit:
        described.unit_name = unit
    else:
        described.unit = SIZE_BYTES
    packets.append(packet)
    for when, value in zip(counter.time, counter.value, strict=True):
        event = made.event(type=COUNTER, track_uuid=track, double_counter_value=value)
        packets.append(
            made.packet(
                timestamp=(when + PS_PER_NS // 2) // PS_PER_NS,
                trusted_packet_sequence_id=_SEQUENCE,
                track_event=event,
            )
        )
    return _packets(made, packets)
