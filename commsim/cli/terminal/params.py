"""
Parameter types and options that commands share. Output files are checked before anything runs.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from commsim.cli.terminal.complete import clusters, settings
from commsim.cli.terminal.numbers import Checked, Count
from commsim.errors import UnitError
from commsim.units import parse_size

__all__ = [
    "INPUT",
    "STDOUT",
    "InputName",
    "OutputFile",
    "OutputFolder",
    "cluster_option",
    "executor_option",
    "is_stdout",
    "json_option",
    "limit_option",
    "nodes_option",
    "quiet_group",
    "quiet_option",
    "set_option",
    "silent_option",
    "verbose_option",
]

STDOUT = Path("-")
_STDOUT_FILES = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


class InputName(click.ParamType[str]):
    """A file that is read, a name that stands for one, or several of them with commas."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name: whoever reads it says what is wrong with it."""
        return str(value)


INPUT = InputName()


class OutputFile(click.ParamType[Path]):
    """A file that can be written when the work is done: known suffix, existing folder.

    `stdout`: it may be standard output. `stem`: files are named after it, which may be a folder's
    name.
    """

    name = "file"

    def __init__(self, *suffixes: str, stdout: bool = False, stem: bool = False) -> None:
        self._suffixes = suffixes
        self._stdout = stdout
        self._stem = stem

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path, or fail as a usage error."""
        path = Path(value)
        if self._stdout and (str(value) == str(STDOUT) or is_stdout(path)):
            return STDOUT
        if not self._suffixes and str(value) == str(STDOUT):
            self.fail(f"{value!r}: give a file's name, or /dev/stdout.", param, ctx)
        if self._suffixes and not path.name.endswith(self._suffixes):
            self.fail(f"{value!r}: the name must end in {' or '.join(self._suffixes)}.", param, ctx)
        if path.suffix in (".png", ".pdf") and importlib.util.find_spec("kaleido") is None:
            self.fail(
                f'{path.suffix} needs kaleido and Chrome or Chromium: pip install "commsim[png]",'
                " then plotly_get_chrome. Or write .html.",
                param,
                ctx,
            )
        if problem := self._problem(path):
            self.fail(f"{value!r}: {problem}.", param, ctx)
        return path

    def _problem(self, path: Path) -> str:
        """Return why a file cannot be written; a link's file is written, and not the link."""
        place = Path(os.path.realpath(path)) if path.is_symlink() else path
        if place.is_symlink():
            return "is a link that leads back to itself"
        if place.is_dir() and not self._stem:
            return "is a folder"
        if place.exists() and not os.access(place, os.W_OK):
            return "cannot be written"
        return _folder_problem(place.parent)


class OutputFolder(click.ParamType[Path]):
    """A folder to write into; made if its parent exists."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path, or fail as a usage error."""
        path = Path(value)
        if path.exists() and not path.is_dir():
            self.fail(f"{value!r}: is a file, not a folder.", param, ctx)
        problem = _folder_problem(path if path.exists() else path.parent)
        if problem:
            self.fail(f"{value!r}: {problem}.", param, ctx)
        return path


def is_stdout(path: Path) -> bool:
    """Say whether a file is standard output by another name."""
    return str(path) in _STDOUT_FILES


def _folder_problem(folder: Path) -> str:
    if not folder.is_dir():
        return f"there is no folder {str(folder)!r}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {str(folder)!r} cannot be written to"
    return ""


def _here_or_before(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    """Return whether `-q` stands behind the command, or stood before it."""
    return value or bool((ctx.obj or {}).get("quiet"))


def _remember(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    ctx.ensure_object(dict)["quiet"] = value
    return value


def _memory(text: str) -> int:
    """Return a size of memory in which something can run. Raises UnitError."""
    size = parse_size(text)
    if not size:
        raise UnitError(f"{text!r}: nothing runs in no memory. Give a size like '8GiB'.")
    return size


def _within(ctx: click.Context, _: click.Parameter, size: str | None) -> None:
    """Let the command take that much memory."""
    if size is not None:
        from commsim.limits import limited_to

        ctx.with_resource(limited_to(_memory(size)))


_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

set_option: _Decorator = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Change a setting; repeatable.",
    shell_complete=settings,
)
json_option: _Decorator = click.option(
    "--json",
    "json_path",
    type=OutputFile(stdout=True),
    metavar="F",
    help="Write the result as JSON; - for stdout alone.",
)
limit_option: _Decorator = click.option(
    "--limit",
    type=Checked(_memory),
    metavar="SIZE",
    expose_value=False,
    callback=_within,
    help="Memory that a run may take, like 8GiB; by default 9/10 of the machine's.",
)
quiet_option: _Decorator = click.option(
    "-q", "--quiet", is_flag=True, callback=_here_or_before, help="No narration on stderr."
)
verbose_option: _Decorator = click.option(
    "-v", "--verbose", is_flag=True, help="Show all notes, in full."
)
quiet_group: _Decorator = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    help="No narration on stderr; may stand behind the command too.",
)
silent_option: _Decorator = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    help="As elsewhere; this command narrates nothing.",
)
cluster_option: _Decorator = click.option(
    "--cluster",
    type=INPUT,
    metavar="PRESET|FILE.yaml",
    help="The cluster; `commsim presets` lists presets.",
    shell_complete=clusters,
)
nodes_option: _Decorator = click.option(
    "--nodes", type=Count(), help="How many nodes; the cluster's own number by default."
)
executor_option: _Decorator = click.option(
    "--executor",
    default="processes",
    metavar="WHO",
    show_default=True,
    help="processes[:N], serial, or dask[:ADDRESS] (extra dask).",
)
