"""CSV tables of profilers: `nsys stats`, rocprofv3 and rocprof, joined to recordings of ranks."""

from commsim.traces.formats.profiler_tables.recordings import recordings_of
from commsim.traces.formats.profiler_tables.rows import ProfilerTable
from commsim.traces.formats.profiler_tables.tables import is_profiler_table, read_profiler_tables

__all__ = ["ProfilerTable", "is_profiler_table", "read_profiler_tables", "recordings_of"]
