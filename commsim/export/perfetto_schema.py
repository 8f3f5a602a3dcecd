"""
Perfetto's protobuf messages, described at run time: no generated code, any protobuf version.

Names and field numbers are those of github google/perfetto, protos/perfetto/trace (Apache-2.0):
trace_packet.proto, interned_data.proto, and track_event/*.proto. Only what commsim writes is
described; what it reads back and does not know, protobuf keeps as unknown fields.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from commsim.errors import ScenarioError

__all__ = [
    "CLEARED", "COUNTER", "EXPLICIT_CHILDREN", "EXPLICIT_PROCESSES", "NEEDS_STATE", "SIZE_BYTES",
    "SLICE_BEGIN", "SLICE_END", "PerfettoMessages", "perfetto_messages",
]  # fmt: skip

SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4  # TrackEvent.Type
CLEARED, NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags
EXPLICIT_CHILDREN, EXPLICIT_PROCESSES = 3, 1  # ChildTracksOrdering, ProcessOrdering
SIZE_BYTES = 3  # CounterDescriptor.Unit

_DOUBLE, _INT64, _UINT64, _INT32, _FIXED64, _STRING, _MESSAGE, _UINT32 = 1, 3, 4, 5, 6, 9, 11, 13
_PACKAGE = "commsim.perfetto"
_MANY = True

_MESSAGES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "Trace": (("packet", 1, "TracePacket", _MANY),),
    "TracePacket": (
        ("timestamp", 8, _UINT64), ("trusted_packet_sequence_id", 10, _UINT32),
        ("track_event", 11, "TrackEvent"), ("interned_data", 12, "InternedData"),
        ("sequence_flags", 13, _UINT32), ("track_descriptor", 60, "TrackDescriptor"),
    ),
    "TrackDescriptor": (
        ("uuid", 1, _UINT64), ("name", 2, _STRING), ("process", 3, "ProcessDescriptor"),
        ("parent_uuid", 5, _UINT64), ("counter", 8, "CounterDescriptor"),
        ("child_ordering", 11, _INT32), ("sibling_order_rank", 12, _INT32),
        ("process_ordering", 19, _INT32),
    ),
    "ProcessDescriptor": (
        ("pid", 1, _INT32), ("legacy_sort_index", 3, _INT32), ("process_name", 6, _STRING),
    ),
    "CounterDescriptor": (("unit", 3, _INT32), ("unit_name", 6, _STRING)),
    "InternedData": (
        ("event_categories", 1, "InternedName", _MANY), ("event_names", 2, "InternedName", _MANY),
        ("debug_annotation_names", 3, "InternedName", _MANY),
    ),
    "InternedName": (("iid", 1, _UINT64), ("name", 2, _STRING)),
    "TrackEvent": (
        ("category_iids", 3, _UINT64, _MANY), ("debug_annotations", 4, "DebugAnnotation", _MANY),
        ("type", 9, _INT32), ("name_iid", 10, _UINT64), ("track_uuid", 11, _UINT64),
        ("double_counter_value", 44, _DOUBLE), ("flow_ids", 47, _FIXED64, _MANY),
        ("terminating_flow_ids", 48, _FIXED64, _MANY),
    ),
    "DebugAnnotation": (
        ("name_iid", 1, _UINT64), ("int_value", 4, _INT64), ("string_value", 6, _STRING),
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
    try:
        descriptor = import_module("google.protobuf.descriptor_pb2")
        pool = import_module("google.protobuf.descriptor_pool")
        factory = import_module("google.protobuf.message_factory")
    except ImportError:
        raise ScenarioError(
            '.pftrace needs protobuf: pip install "commsim[trace]". Or write .json.'
        ) from None
    own = pool.DescriptorPool()
    # proto2, as Perfetto's: a field that is set to 0 is written.
    file = descriptor.FileDescriptorProto(
        name="commsim_perfetto.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add(message, *field)
    own.Add(file)
    return PerfettoMessages(*(
        factory.GetMessageClass(own.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Trace", "TracePacket", "TrackEvent", "TrackDescriptor")
    ))  # fmt: skip


def _add(message: Any, name: str, number: int, kind: int | str, many: bool = False) -> None:
    field = message.field.add(name=name, number=number, label=3 if many else 1)
    if isinstance(kind, str):
        field.type, field.type_name = _MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = kind
