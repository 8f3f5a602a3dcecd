"""
Files of one command line that are the same: an output that another output or the work would lose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from commsim.cli.terminal.params import STDOUT, InputName, OutputFile, OutputFolder

__all__ = ["refuse_shared_files"]


def refuse_shared_files(ctx: click.Context) -> None:
    """Raise click.UsageError if an output of a command is one of its inputs, or another output.

    Two names of one file (./r.html, a link) are one. A device takes what several write, and a
    folder the files of several.
    """
    read = {place for param, value in _given(ctx, InputName) for place in _inputs(value)}
    written: dict[str, click.Parameter] = {}
    for param, value in _given(ctx, OutputFile, OutputFolder):
        if value == STDOUT or _is_device(value):
            continue
        try:
            place = os.path.realpath(value)
        except ValueError:  # no file can have this name, which whoever writes it says
            continue
        if place in read:
            raise click.UsageError(
                f"{_called(param)} {value}: the command reads this file. Write to another.", ctx
            )
        other = written.setdefault(place, param)
        if other is not param and not _are_folders(param, other):
            raise click.UsageError(
                f"{_called(other)} and {_called(param)} both write {value}. Give each a file of its"
                " own.",
                ctx,
            )


def _given(ctx: click.Context, *kinds: type) -> Iterator[tuple[click.Parameter, Any]]:
    """Yield the parameters of some kinds, with each of the values that they were given."""
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if isinstance(param.type, kinds) and value is not None:
            for one in value if isinstance(value, tuple) else (value,):
                yield param, one


def _inputs(name: str) -> Iterator[str]:
    """Yield the files that a word stands for; the name of a preset is no file."""
    for part in dict.fromkeys((name, *name.split(","))):
        if part and os.path.exists(part):
            yield os.path.realpath(part)


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _are_folders(*params: click.Parameter) -> bool:
    return all(isinstance(param.type, OutputFolder) for param in params)


def _called(param: click.Parameter) -> str:
    """Return an option as it is written, or an argument's metavar."""
    return (
        max(param.opts, key=len) if isinstance(param, click.Option) else param.human_readable_name
    )
