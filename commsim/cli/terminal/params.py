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

__all__ = [
    "STDOUT",
    "OutputFile",
    "OutputFolder",
    "cluster_option",
    "executor_option",
    "json_option",
    "quiet_group",
    "quiet_option",
    "set_option",
    "silent_option",
    "verbose_option",
]

STDOUT = Path("-")


class OutputFile(click.ParamType[Path]):
    """A file that can be written when the work is done: known suffix, existing folder."""

    name = "file"

    def __init__(self, *suffixes: str, stdout: bool = False) -> None:
        self._suffixes = suffixes
        self._stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path, or fail as a usage error."""
        path = Path(value)
        if self._stdout and path == STDOUT:
            return STDOUT
        if self._suffixes and not path.name.endswith(self._suffixes):
            self.fail(f"{value!r}: the name must end in {' or '.join(self._suffixes)}.", param, ctx)
        if path.suffix in (".png", ".pdf") and importlib.util.find_spec("kaleido") is None:
            self.fail(
                f'{path.suffix} needs kaleido and Chrome or Chromium: pip install "commsim[png]",'
                " then plotly_get_chrome. Or write .html.",
                param,
                ctx,
            )
        problem = _folder_problem(path.parent)
        if path.is_dir():
            problem = "is a folder"
        elif path.exists() and not os.access(path, os.W_OK):
            problem = "cannot be written"
        if problem:
            self.fail(f"{value!r}: {problem}.", param, ctx)
        return path


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
    metavar="PRESET|FILE.yaml",
    help="The cluster; `commsim presets` lists presets.",
    shell_complete=clusters,
)
executor_option: _Decorator = click.option(
    "--executor",
    default="processes",
    metavar="WHO",
    show_default=True,
    help="processes[:N], serial, or dask[:ADDRESS] (extra dask).",
)
