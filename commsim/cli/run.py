"""
`commsim run`: simulate a scenario.
"""

from __future__ import annotations

from typing import Any

import click

from commsim.cli.complete import scenarios
from commsim.cli.help import GroupedCommand
from commsim.cli.outputs import Outputs, output_options
from commsim.cli.params import set_option

__all__ = ["run"]


@click.command(cls=GroupedCommand)
@click.argument("scenario", metavar="SCENARIO|NAME", shell_complete=scenarios)
@set_option
@click.option(
    "--goodput",
    is_flag=True,
    help="Say what failures and checkpoints leave of months of such steps (section goodput).",
)
@output_options
def run(
    scenario: str,
    sets: tuple[str, ...],
    goodput: bool,
    outputs: Outputs,
) -> int:
    """Simulate a scenario: a YAML file, or a NAME from `commsim presets scenarios`."""
    console = outputs.console()
    from commsim.study.run import run as study_run

    asked: dict[str, Any] = {"goodput": {}} if goodput else {}
    with console.working(f"simulating {scenario}"):
        result = study_run(scenario, sets, **asked)
    console.show(result.scenario)
    return outputs.finish(result, console)
