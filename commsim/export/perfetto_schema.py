"""
Perfetto's protobuf messages, described at run time: no generated code, any protobuf version.

Names and field numbers are those of github google/perfetto, protos/perfetto/trace (Apache-2.0):
trace_packet.proto, interned_data.proto, and track_event/*.proto. Only what commsim writes is
described; what it reads back and does not know, protobuf keeps as unknown fields.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from commsim.errors import ScenarioError
from commsim.protobuf_schema import DOUBLE, FIXED64, INT32, INT64, STRING, UINT32, UINT64, Schema

__all__ = [
    "CLEARED", "COUNTER", "EXPLICIT_CHILDREN", "EXPLICIT_PROCESSES", "NEEDS_STATE", "SIZE_BYTES",
    "SLICE_BEGIN", "SLICE_END", "PerfettoMessages", "perfetto_messages",
]  # fmt: skip

SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4  # TrackEvent.Type
CLEARED, NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags
EXPLICIT_CHILDREN, EXPLICIT_PROCESSES = 3, 1  # ChildTracksOrdering, ProcessOrdering
SIZE_BYTES = 3  # CounterDescriptor.Unit

_MANY = True

_MESSAGES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "Trace": (("packet", 1, "TracePacket", _MANY),),
    "TracePacket": (
        ("timestamp", 8, UINT64), ("trusted_packet_sequence_id", 10, UINT32),
        ("track_event", 11, "TrackEvent"), ("interned_data", 12, "InternedData"),
        ("sequence_flags", 13, UINT32), ("track_descriptor", 60, "TrackDescriptor"),
    ),
    "TrackDescriptor": (
        ("uuid", 1, UINT64), ("name", 2, STRING), ("process", 3, "ProcessDescriptor"),
        ("parent_uuid", 5, UINT64), ("counter", 8, "CounterDescriptor"),
        ("child_ordering", 11, INT32), ("sibling_order_rank", 12, INT32),
        ("process_ordering", 19, INT32),
    ),
    "ProcessDescriptor": (
        ("pid", 1, INT32), ("legacy_sort_index", 3, INT32), ("process_name", 6, STRING),
    ),
    "CounterDescriptor": (("unit", 3, INT32), ("unit_name", 6, STRING)),
    "InternedData": (
        ("event_categories", 1, "InternedName", _MANY), ("event_names", 2, "InternedName", _MANY),
        ("debug_annotation_names", 3, "InternedName", _MANY),
    ),
    "InternedName": (("iid", 1, UINT64), ("name", 2, STRING)),
    "TrackEvent": (
        ("category_iids", 3, UINT64, _MANY), ("debug_annotations", 4, "DebugAnnotation", _MANY),
        ("type", 9, INT32), ("name_iid", 10, UINT64), ("track_uuid", 11, UINT64),
        ("double_counter_value", 44, DOUBLE), ("flow_ids", 47, FIXED64, _MANY),
        ("terminating_flow_ids", 48, FIXED64, _MANY),
    ),
    "DebugAnnotation": (
        ("name_iid", 1, UINT64), ("int_value", 4, INT64), ("string_value", 6, STRING),
    ),
}  # fmt: skip


class PerfettoMessages(NamedTuple):
    """The message classes that a trace is made of."""

    trace: Any
    packet: Any
    event: Any
    track: Any


@cache
def perfetto_messages() -> PerfettoMessages:
    """Return the message classes.

    Raises:
        ScenarioError: protobuf is not installed.
    """
    schema = Schema(
        "commsim.perfetto",
        syntax="proto2",  # as Perfetto's
        missing=ScenarioError(
            '.pftrace needs protobuf: pip install "commsim[trace]". Or write .json.'
        ),
    )
    for name, fields in _MESSAGES.items():
        schema.message(name, *fields)
    names = ("Trace", "TracePacket", "TrackEvent", "TrackDescriptor")
    return PerfettoMessages(*schema.classes(*names))
