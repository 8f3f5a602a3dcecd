"""
`commsim replay`: understand a recorded run, and run it again.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import click

from commsim.cli.bench import open_cluster
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
    outputs: Outputs,
) -> None:
    """Replay recorded traces: align clocks, tell waiting from transfer, run the step again."""
    from commsim.study.replay import replay as study_replay

    console = outputs.console()
    place = open_cluster(cluster, nodes, sets) if cluster is not None or sets else None
    with console.working("replaying"):
        result = study_replay([Path(trace) for trace in traces], cluster=place, comm=comm)
    console.show(columns(result.collectives, right=(1, 2, 3, 4, 5)))
    console.show(columns(result.ranks, right=(0, 1, 2, 3)))
    for note in result.result.notes:
        console.say(f"note: {note}")
    command = _command(traces, cluster, nodes, comm, sets)
    outputs.finish(replace(result.result, command=command), console)


def _command(
    traces: tuple[str, ...], cluster: str | None, nodes: int | None, comm: str,
    sets: tuple[str, ...],
) -> str:  # fmt: skip
    """Return the command line that replays the traces again."""
    words = ["commsim", "replay", *traces]
    words += ["--cluster", cluster] if cluster is not None else []
    words += ["--nodes", str(nodes)] if nodes is not None else []
    words += ["--comm", comm] if comm != "recorded" else []
    return shlex.join([*words, *(word for one in sets for word in ("--set", one))])
