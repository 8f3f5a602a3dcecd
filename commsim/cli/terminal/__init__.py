"""
What commands share at the terminal: options, completion, help, printing, notes and progress.

In: what a user typed, and what a study returned. Out: text on stdout, the rest on stderr.
"""

from commsim.cli.terminal.complete import clusters, presets_of, scenarios, traces
from commsim.cli.terminal.console import Console, output_refused, reader_left
from commsim.cli.terminal.help import GroupedCommand, write_commands
from commsim.cli.terminal.notes import say_notes
from commsim.cli.terminal.numbers import Checked, Count, NcclVersion, Number, Percent
from commsim.cli.terminal.params import (
    INPUT,
    STDOUT,
    InputName,
    OutputFile,
    OutputFolder,
    cluster_option,
    executor_option,
    is_stdout,
    json_option,
    limit_option,
    nodes_option,
    quiet_group,
    quiet_option,
    set_option,
    silent_option,
    verbose_option,
)
from commsim.cli.terminal.progress import ProgressLine, working
from commsim.cli.terminal.result_text import columns, limits_table, summary, what_if_table
from commsim.cli.terminal.streams import closed_stream, named_stdout, never_failing

__all__ = [
    "INPUT",
    "STDOUT",
    "Checked",
    "Console",
    "Count",
    "GroupedCommand",
    "InputName",
    "NcclVersion",
    "Number",
    "OutputFile",
    "OutputFolder",
    "Percent",
    "ProgressLine",
    "closed_stream",
    "cluster_option",
    "clusters",
    "columns",
    "executor_option",
    "is_stdout",
    "json_option",
    "limit_option",
    "limits_table",
    "named_stdout",
    "never_failing",
    "nodes_option",
    "output_refused",
    "presets_of",
    "quiet_group",
    "quiet_option",
    "reader_left",
    "say_notes",
    "scenarios",
    "set_option",
    "silent_option",
    "summary",
    "traces",
    "verbose_option",
    "what_if_table",
    "working",
    "write_commands",
]
