"""PARAM: its comms traces ("basic" JSON), and what its comms benchmark prints."""

from commsim.traces.formats.param.bench import is_param_bench, read_param_bench
from commsim.traces.formats.param.reader import is_param, read_param
from commsim.traces.formats.param.writer import write_param

__all__ = ["is_param", "is_param_bench", "read_param", "read_param_bench", "write_param"]
