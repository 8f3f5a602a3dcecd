"""
`commsim explain`: how an algorithm works, step by step.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.help import GroupedCommand
from commsim.cli.params import OutputFile, silent_option

__all__ = ["explain"]


@click.command(cls=GroupedCommand)
@click.argument("algorithm", metavar="ALGO|FILE.xml")
@click.option("-n", "ranks", type=int, help="How many ranks: 4, or as many as the file has.")
@click.option("--op", help="The collective: all_reduce, or the first that the algorithm can do.")
@click.option(
    "--root", type=int, default=0, show_default=True, help="The root, where there is one."
)
@click.option(
    "--pieces",
    type=int,
    default=1,
    show_default=True,
    help="Into how many pieces a pipelined buffer is cut.",
)
@click.option(
    "--per-node",
    type=int,
    default=0,
    help="Ranks per node (or row), for algorithms on two levels.",
)
@click.option(
    "-o",
    "output",
    type=OutputFile(".html", ".svg", ".txt"),
    metavar="F.html|.svg|.txt",
    help="Write a page that plays the steps, or a strip of them.",
)
@silent_option
def explain(
    algorithm: str,
    ranks: int | None,
    op: str | None,
    root: int,
    pieces: int,
    per_node: int,
    output: Path | None,
) -> None:
    """Show which chunk moves where in every step of an algorithm."""
    from commsim.study.explain import explain as study_explain

    result = study_explain(algorithm, ranks, op=op, root=root, pieces=pieces, per_node=per_node)
    if output is None:
        click.echo(result.text())
        return
    result.save(output)
    click.echo("\n".join((*result.headline(), f"wrote  {output}")))
