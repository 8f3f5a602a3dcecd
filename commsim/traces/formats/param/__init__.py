"""PARAM's comms traces ("basic" JSON): read and written."""

from commsim.traces.formats.param.reader import is_param, read_param
from commsim.traces.formats.param.writer import write_param

__all__ = ["is_param", "read_param", "write_param"]
