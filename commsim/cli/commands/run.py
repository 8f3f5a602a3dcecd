"""
`commsim run`: simulate a scenario.
"""

from __future__ import annotations

import gc
from typing import Any

import click

from commsim.cli.commands.outputs import Outputs, output_options
from commsim.cli.terminal import (
    INPUT,
    GroupedCommand,
    limit_option,
    scenarios,
    set_option,
    working,
)

__all__ = ["run"]


@click.command(
    cls=GroupedCommand, extra="`commsim compare` takes several scenarios, `sweep` several settings."
)
@click.argument("scenario", type=INPUT, metavar="SCENARIO|NAME", shell_complete=scenarios)
@set_option
@click.option(
    "--goodput",
    is_flag=True,
    help="Say what failures and checkpoints leave of months of such steps (section goodput).",
)
@click.option(
    "--what-if",
    "vary",
    multiple=True,
    metavar="NAME,...|NAME=A,B",
    help="Run it at other values too (nic.bandwidth,nodes), each alone: a table. With a report or"
    " JSON all combinations: sliders.",
)
@limit_option
@output_options
def run(
    scenario: str,
    sets: tuple[str, ...],
    goodput: bool,
    vary: tuple[str, ...],
    outputs: Outputs,
) -> int:
    """Simulate a scenario: a YAML file, or a NAME from `commsim presets scenarios`."""
    console = outputs.console()
    from commsim.engine import gc_paused
    from commsim.study.run import run as study_run

    if vary:
        return _varied(scenario, sets, vary, goodput, outputs)
    asked: dict[str, Any] = {"goodput": {}} if goodput else {}
    with gc_paused():  # to the end of the process: else all that stays is looked through once
        with working(f"reading {scenario}", quiet=outputs.quiet) as told:
            result = study_run(scenario, sets, progress=told.say, follow=told.follow, **asked)
        if len(result.timeline) > _MANY_SPANS:
            gc.enable()
        console.show(result.scenario)
        return outputs.finish(result, console)


_MANY_SPANS = 500_000  # what is worked out of so many leaves more in cycles than a pause is worth


def _varied(
    scenario: str, sets: tuple[str, ...], vary: tuple[str, ...], goodput: bool, outputs: Outputs
) -> int:
    """Run the grid, show the run as it was given, then the step along each axis."""
    from commsim.study.next_dollar.what_if import what_if

    console = outputs.console()
    if goodput:
        sets = (*sets, "goodput={}")
    combined = outputs.report is not None or outputs.json_path is not None
    with working("runs", quiet=outputs.quiet) as told:
        found = what_if(scenario, vary, sets=sets, combined=combined, progress=told.count)
    console.show(found.scenario)
    return outputs.finish(found.result, console, what_if=found)
