"""
`commsim explain`: how an algorithm works, step by step.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commsim.cli.terminal import (
    INPUT,
    Count,
    GroupedCommand,
    OutputFile,
    limit_option,
    quiet_option,
    working,
)

if TYPE_CHECKING:
    from commsim.study.explain import Explanation

__all__ = ["explain"]


@click.command(cls=GroupedCommand)
@click.argument("algorithms", type=INPUT, metavar="ALGO|FILE.xml...", nargs=-1, required=True)
@click.option("-n", "ranks", type=Count(), help="How many ranks: 4, or as many as the file has.")
@click.option("--op", help="The collective: all_reduce, or the first that the algorithm can do.")
@click.option(
    "--root", type=Count(0), default=0, show_default=True, help="The root, where there is one."
)
@click.option(
    "--pieces",
    type=Count(),
    default=1,
    show_default=True,
    help="Into how many pieces a pipelined buffer is cut.",
)
@click.option(
    "--per-node",
    type=Count(0),
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
@limit_option
@quiet_option
def explain(
    algorithms: tuple[str, ...],
    ranks: int | None,
    op: str | None,
    root: int,
    pieces: int,
    per_node: int,
    output: Path | None,
    quiet: bool,
) -> None:
    """Show which chunk moves where in every step of an algorithm.

    Several stand side by side on a page (-o F.html), played on one clock: ring or tree?
    """
    from commsim.study.explain import explain as study_explain
    from commsim.study.explain import save_together

    found: list[Explanation] = []
    with working("running algorithms step by step", quiet=quiet) as told:
        for one in algorithms:
            told.count(len(found), len(algorithms))
            found.append(
                study_explain(
                    one,
                    ranks,
                    op=op,
                    root=root,
                    pieces=pieces,
                    per_node=per_node,
                    follow=told.follow,
                )
            )
        told.say("drawing the steps")
        if output is None:
            text = "\n\n".join(one.text() for one in found)
        elif len(found) > 1:
            save_together(found, output)
        else:
            found[0].save(output)
    if output is None:
        click.echo(text)
        return
    click.echo("\n".join((*(line for one in found for line in one.headline()), f"wrote  {output}")))
