"""
One module or folder per file format, its reader and its writer side by side.

In: the bytes of a file (`files` opens and unpacks within limits, `detect` recognises a format by
content). Out: typed records of that format: Kineto events, Execution Trace nodes, and
`RankRecord` for formats that hold calls without times. `words` has their names of ops and types.
"""

from commsim.traces.formats.chakra import write_chakra
from commsim.traces.formats.detect import GroupsFile, format_of, register_format
from commsim.traces.formats.event_args import EventArgs
from commsim.traces.formats.events import Event, EventKind, Events
from commsim.traces.formats.execution_calls import record_of
from commsim.traces.formats.execution_trace import CommNode, ExecutionTrace
from commsim.traces.formats.files import (
    BAD_JSON,
    Document,
    documents,
    find_files,
    is_tar,
    wrong_encoding,
)
from commsim.traces.formats.goal import write_goal
from commsim.traces.formats.kineto import KinetoFile, is_kineto, read_kineto
from commsim.traces.formats.nccl_log import join_nccl_logs
from commsim.traces.formats.nccl_tests import (
    NcclTests,
    is_bench_json,
    is_nccl_tests,
    merged,
    read_bench_json,
    read_nccl_tests,
)
from commsim.traces.formats.param import is_param_bench, read_param_bench, write_param
from commsim.traces.formats.profiler_tables import ProfilerTable, recordings_of
from commsim.traces.formats.records import Issued, RankRecord, buffer_size
from commsim.traces.formats.values import dtype_of, in_bytes, integer, numbers_of, splits_in_bytes

__all__ = [
    "BAD_JSON",
    "CommNode",
    "Document",
    "Event",
    "EventArgs",
    "EventKind",
    "Events",
    "ExecutionTrace",
    "GroupsFile",
    "Issued",
    "KinetoFile",
    "NcclTests",
    "ProfilerTable",
    "RankRecord",
    "buffer_size",
    "documents",
    "dtype_of",
    "find_files",
    "format_of",
    "in_bytes",
    "integer",
    "is_bench_json",
    "is_kineto",
    "is_nccl_tests",
    "is_param_bench",
    "is_tar",
    "join_nccl_logs",
    "merged",
    "numbers_of",
    "read_bench_json",
    "read_kineto",
    "read_nccl_tests",
    "read_param_bench",
    "record_of",
    "recordings_of",
    "register_format",
    "splits_in_bytes",
    "write_chakra",
    "write_goal",
    "write_param",
    "wrong_encoding",
]
