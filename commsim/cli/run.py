"""
`commsim run`: simulate a scenario.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.console import Console
from commsim.cli.outputs import Outputs, output_options
from commsim.cli.params import set_option

__all__ = ["run"]


@click.command()
@click.argument("scenario", metavar="SCENARIO|NAME")
@set_option
@output_options
def run(
    scenario: str,
    sets: tuple[str, ...],
    json_path: Path | None,
    gantt: Path | None,
    links: Path | None,
    perfetto: Path | None,
    csv: Path | None,
    quiet: bool,
) -> None:
    """Simulate a scenario: a YAML file, or a NAME from `commsim presets scenarios`."""
    outputs = Outputs(json_path, gantt, links, perfetto, csv)
    console = Console(quiet=quiet, json_only=outputs.json_only)
    from commsim.study import run as study_run

    with console.working(f"simulating {scenario}"):
        result = study_run(scenario, sets)
    console.show(result.scenario)
    for note in result.notes:
        console.say(f"note: {note}")
    outputs.finish(result, console)
