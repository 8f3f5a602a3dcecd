"""
The commands: a module each, imported when it is asked for, since nobody runs twenty at once.

In: parsed options. Out: what is printed and written. `outputs` and `charts` write the files that
`run` and `replay` have in common.
"""

from importlib import import_module
from typing import cast

import click

__all__ = ["COMMANDS", "load"]

COMMANDS = {
    "run": "run", "bench": "bench", "replay": "replay", "advise": "advise", "plan": "plan",
    "calibrate": "calibrate", "check": "calibrate", "sweep": "sweep", "next": "next_dollar",
    "compare": "compare", "capture": "capture", "convert": "convert", "explain": "explain",
    "explore": "explore", "topo": "topo", "presets": "presets", "examples": "start",
    "new": "start", "schema": "start", "completion": "start",
}  # fmt: skip
"""Every command, and the module that holds it."""

_FUNCTIONS = {"next": "next_dollar"}
"""The function of a command that is not called as the command is: `next` is Python's."""


def load(name: str) -> click.Command:
    """Return a command of COMMANDS."""
    module = import_module(f"commsim.cli.commands.{COMMANDS[name]}")
    return cast(click.Command, getattr(module, _FUNCTIONS.get(name, name)))
