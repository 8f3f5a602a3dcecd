"""
Commands as all of commsim's are: help in groups, and nothing given may be empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import click

from commsim.cli.terminal.shared_files import refuse_shared_files

__all__ = ["GroupedCommand", "write_commands"]

_COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Simulate", ("run", "bench", "replay", "explore")),
    ("Decide", ("compare", "advise", "plan", "next", "sweep", "calibrate", "check")),
    ("Understand", ("explain", "topo")),
    ("Start", ("presets", "examples", "new", "schema", "completion")),
)
_FILES = frozenset(
    ("json_path", "report", "gantt", "breakdown", "links", "matrix", "memory", "topology",
     "perfetto", "kineto", "csv", "chart", "nccl_tests", "nccl_xml_out", "output", "html", "svg")
)  # fmt: skip
_SPOKEN = frozenset(("quiet", "verbose", "allow_oom"))
_SETTINGS, _WRITTEN, _OTHER = "Options", "Files to write", "Other"


class GroupedCommand(click.Command):
    """A command whose help lists settings first, then files that it writes, then the rest.

    An option or argument that is given and empty, like that of a shell's unset variable, is
    refused: it would pass for one that is left out. No two of its files may be one. `extra` is what
    to tell who gives more arguments than there are.
    """

    def __init__(self, *args: Any, extra: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._extra = extra

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the line; refuse what is empty, and an output that is another file of the line."""
        if not ctx.resilient_parsing:
            try:
                given, _, _ = self.make_parser(ctx).parse_args(list(args))
            except click.NoSuchOption as error:
                raise _with_setting(error, self) from None
            for param in self.params:
                if not isinstance(param.type, click.types.UnprocessedParamType):
                    _refuse_empty(param, given.get(param.name or ""), ctx)
        told = _apart(args) or self._extra  # click empties the list
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as error:
            if told and "extra argument" in error.message:
                raise click.UsageError(f"{error.format_message()}. {told}", ctx) from None
            raise
        refuse_shared_files(ctx)
        return left

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one section per group."""
        groups: dict[str, list[tuple[str, str]]] = {_SETTINGS: [], _WRITTEN: [], _OTHER: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups[_group_of(param)].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _apart(args: Sequence[str]) -> str:
    """Say how a setting is written that stands on the line in several words; "" if none does."""
    if "=" in args:
        return "Write no blanks around '='."
    for option, setting in pairwise(args):
        if option in ("--set", "--vary") and "=" not in setting:
            return f"Write {option} {setting}=VALUE."
    return ""


def _with_setting(error: click.NoSuchOption, command: click.Command) -> click.UsageError:
    """Return the error with the setting that an unknown option is called, if it is one."""
    takes = {param.name for param in command.params}
    if not {"scenario", "sets"} <= takes:
        return error
    from commsim.scenario import option_setting  # imports all sections: only where one is wrong

    path = option_setting(error.option_name.lstrip("-").replace("-", "_"))
    if not path:
        return error
    told = f"no such option {error.option_name}: it is a setting. Write --set {path}=VALUE."
    if path.startswith("sweep."):
        told = f"no such option {error.option_name}: `commsim sweep` has it, which varies settings."
    return click.UsageError(told, error.ctx)


def _refuse_empty(param: click.Parameter, given: object, ctx: click.Context) -> None:
    values = given if isinstance(given, list | tuple) else (given,)
    if any(isinstance(one, str) and not one.strip() for one in values):
        how = "Give a value." if param.required else "Give a value, or leave it out."
        raise click.BadParameter(f"is empty. {how}", ctx, param)


def _group_of(option: click.Option) -> str:
    if option.name in _FILES:
        return _WRITTEN
    return _OTHER if option.name in _SPOKEN or "--help" in option.opts else _SETTINGS


def write_commands(
    commands: Iterable[tuple[str, click.Command]], formatter: click.HelpFormatter
) -> None:
    """Write all commands by group, each with the whole first sentence of its help."""
    left = dict(commands)
    for title, names in (*_COMMANDS, ("Files", tuple(left))):
        chosen = [(name, left.pop(name)) for name in names if name in left]
        _section(title, chosen, formatter)


def _section(
    title: str, chosen: Sequence[tuple[str, click.Command]], formatter: click.HelpFormatter
) -> None:
    if chosen:
        with formatter.section(title):
            formatter.write_dl([(name, _sentence(command.help or "")) for name, command in chosen])


def _sentence(text: str) -> str:
    """Return the first sentence of a help text; a colon or an abbreviation does not end one."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."
