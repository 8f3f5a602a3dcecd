"""Nsight Systems: `nsys export --type sqlite`, a database of all processes of a node (reader)."""

from commsim.traces.formats.nsight.reader import is_nsight, read_nsight

__all__ = ["is_nsight", "read_nsight"]
