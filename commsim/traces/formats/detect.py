"""
Which format a document is in: asked of each reader in turn, by content.

One interface: a reader says whether it knows a document, and reads it into a `Part` of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from commsim.registry import Registry
from commsim.traces.formats.chakra import is_chakra, read_chakra
from commsim.traces.formats.execution_trace import (
    ExecutionTrace,
    is_execution_trace,
    read_execution_trace,
)
from commsim.traces.formats.files import BAD_JSON, Data, Document
from commsim.traces.formats.flight_recorder import is_flight_recorder, read_flight_recorder
from commsim.traces.formats.goal import is_goal, read_goal
from commsim.traces.formats.kineto import KinetoFile, is_kineto, read_kineto
from commsim.traces.formats.nccl_log import is_nccl_log, read_nccl_log
from commsim.traces.formats.nsight import is_nsight, read_nsight
from commsim.traces.formats.param import is_param, read_param
from commsim.traces.formats.profiler_tables import (
    ProfilerTable,
    is_profiler_table,
    read_profiler_tables,
)
from commsim.traces.formats.records import RankRecord

__all__ = ["FORMATS", "Format", "GroupsFile", "Part", "format_of", "register_format"]


class GroupsFile(msgspec.Struct, frozen=True):
    """Process groups in a file of their own, as astra-sim has them next to Chakra traces."""

    ranks: dict[str, tuple[int, ...]]


Part = (
    KinetoFile
    | ExecutionTrace
    | RankRecord
    | GroupsFile
    | Sequence[KinetoFile]
    | Sequence[RankRecord]
    | Sequence[ProfilerTable]
)


class Format(msgspec.Struct, frozen=True):
    """A format: its name, how to recognise it, and its reader."""

    name: str
    knows: Callable[[Document], bool]
    read: Callable[[Document], Part]


def _by_data(is_it: Callable[[Data], bool]) -> Callable[[Document], bool]:
    return lambda document: is_it(document.data)


def _is_groups(document: Document) -> bool:
    head = document.data.lstrip()[:1]
    if head != b"{" or len(document.data) > 2**26 or b"[" not in document.data[:4096]:
        return False
    try:
        return bool(msgspec.json.decode(document.data, type=dict[str, list[int]]))
    except BAD_JSON:
        return False


def _read_groups(document: Document) -> Part:
    found: dict[str, Any] = msgspec.json.decode(document.data)
    return GroupsFile({name: tuple(ranks) for name, ranks in found.items()})


FORMATS: Registry[str, Format] = Registry("trace format")
"""Every format by its name, in the order in which documents are held against them."""


def register_format(
    name: str, knows: Callable[[Document], bool]
) -> Callable[[Callable[[Document], Part]], Callable[[Document], Part]]:
    """Return a decorator that registers a reader of a trace format.

    `knows` says from a document's `data` and `name` whether it is of this format. The reader
    returns a `RankRecord` (what one rank issued, in order), or several; it raises TraceError for
    a document that it cannot read.

    Raises:
        ScenarioError: the name is taken.
    """

    def register(read: Callable[[Document], Part]) -> Callable[[Document], Part]:
        FORMATS.add(name, Format(name, knows, read))
        return read

    return register


for _format in (
    Format("Nsight Systems", _by_data(is_nsight), read_nsight),
    Format("Kineto", _by_data(is_kineto), read_kineto),
    Format("flight recorder", _by_data(is_flight_recorder), read_flight_recorder),
    Format("Chakra", lambda d: is_chakra(d.data, d.name), read_chakra),
    Format("PyTorch Execution Trace", _by_data(is_execution_trace), read_execution_trace),
    Format("PARAM comms", _by_data(is_param), read_param),
    Format("profiler tables", _by_data(is_profiler_table), read_profiler_tables),
    Format("GOAL", _by_data(is_goal), read_goal),
    Format("NCCL log", _by_data(is_nccl_log), read_nccl_log),
    Format("groups", _is_groups, _read_groups),
):
    FORMATS.add(_format.name, _format)


def format_of(document: Document) -> Format | None:
    """Return the format of a document, None if no reader knows it."""
    return next((each for each in FORMATS.records() if each.knows(document)), None)
