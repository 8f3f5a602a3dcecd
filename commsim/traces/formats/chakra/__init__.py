"""Chakra execution traces: .et (protobuf) and JSON, read and written."""

from commsim.traces.formats.chakra.reader import is_chakra, read_chakra
from commsim.traces.formats.chakra.writer import write_chakra

__all__ = ["is_chakra", "read_chakra", "write_chakra"]
