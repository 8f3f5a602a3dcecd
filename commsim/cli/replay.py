"""
`commsim replay`: understand a recorded run, and run it again.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.bench import open_cluster
from commsim.cli.console import Console
from commsim.cli.outputs import Outputs, output_options
from commsim.cli.params import cluster_option, set_option
from commsim.cli.summary import columns

__all__ = ["replay"]


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@cluster_option
@click.option("--nodes", type=int, help="How many nodes; the cluster's own number by default.")
@click.option(
    "--comm", type=click.Choice(["recorded", "modelled"]), default="recorded", show_default=True,
    help="Take each collective's measured transfer time, or ask the library.",
)  # fmt: skip
@set_option
@output_options
def replay(
    traces: tuple[str, ...],
    cluster: str | None,
    nodes: int | None,
    comm: str,
    sets: tuple[str, ...],
    json_path: Path | None,
    gantt: Path | None,
    links: Path | None,
    perfetto: Path | None,
    csv: Path | None,
    quiet: bool,
) -> None:
    """Replay recorded traces: align clocks, tell waiting from transfer, run the step again."""
    from commsim.study.replay import replay as study_replay

    outputs = Outputs(json_path, gantt, links, perfetto, csv)
    console = Console(quiet=quiet, json_only=outputs.json_only)
    place = open_cluster(cluster, nodes, sets) if cluster is not None or sets else None
    with console.working("replaying"):
        result = study_replay([Path(trace) for trace in traces], cluster=place, comm=comm)
    console.show(columns(result.collectives, right=(1, 2, 3, 4, 5)))
    console.show(columns(result.ranks, right=(0, 1, 2, 3)))
    for note in result.result.notes:
        console.say(f"note: {note}")
    outputs.finish(result.result, console)
