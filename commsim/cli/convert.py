"""
`commsim convert`: between trace formats.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.console import Console
from commsim.cli.help import GroupedCommand
from commsim.cli.params import quiet_option
from commsim.cli.summary import columns

__all__ = ["convert"]

_TO = ("graph", "goal", "chakra", "chakra-json", "param", "csv")


@click.command(cls=GroupedCommand)
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option(
    "--to",
    type=click.Choice(_TO),
    default=None,
    help="What to write; by default what OUT's suffix says (.npz, .goal, .et, .csv).",
)
@quiet_option
def convert(source: str, target: str, to: str | None, quiet: bool) -> None:
    """Convert a trace: IN (a file or folder, recognised by its content) becomes OUT.

    Read are Kineto, PyTorch Execution Traces, flight recorder dumps, Chakra, PARAM comms, NCCL
    logs, GOAL, pipeline schedules (.csv) and commsim's graphs (.npz). What OUT's format cannot
    carry is listed.
    """
    from commsim.export import convert as export_convert

    console = Console(quiet=quiet)
    with console.working("converting"):
        done = export_convert(Path(source), Path(target), to=to or "")
    for note in done.notes:
        console.say(f"note: {note}")
    first, rest = done.written[:4], done.written[4:]
    graph = done.graph
    rows = [
        ("from", done.source),
        ("ranks", f"{len(graph.lane_rank):,}"),
        ("ops", f"{len(graph):,}"),
        ("collectives", f"{len(graph.collectives):,}"),
        ("messages", f"{len(graph.messages):,}"),
        *(("wrote", str(path)) for path in first),
    ]
    if rest:
        rows.append(("", f"and {len(rest)} more files"))
    console.show(columns(rows))
