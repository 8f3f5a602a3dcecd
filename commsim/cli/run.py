"""
`commsim run`: simulate a scenario.
"""

from __future__ import annotations

import click

from commsim.cli.complete import scenarios
from commsim.cli.help import GroupedCommand
from commsim.cli.outputs import Outputs, output_options
from commsim.cli.params import set_option

__all__ = ["run"]


@click.command(cls=GroupedCommand)
@click.argument("scenario", metavar="SCENARIO|NAME", shell_complete=scenarios)
@set_option
@output_options
def run(
    scenario: str,
    sets: tuple[str, ...],
    outputs: Outputs,
) -> int:
    """Simulate a scenario: a YAML file, or a NAME from `commsim presets scenarios`."""
    console = outputs.console()
    from commsim.study import run as study_run

    with console.working(f"simulating {scenario}"):
        result = study_run(scenario, sets)
    console.show(result.scenario)
    return outputs.finish(result, console)
