"""
`commsim compare`: scenarios, results, traces and nccl-tests logs side by side.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Console,
    GroupedCommand,
    OutputFile,
    Percent,
    json_option,
    limit_option,
    quiet_option,
    scenarios,
    working,
)

__all__ = ["compare"]

_OUTSIDE = 1


@click.command(cls=GroupedCommand)
@click.argument(
    "items", type=INPUT, nargs=-1, required=True, metavar="A B...", shell_complete=scenarios
)
@click.option(
    "--tolerance",
    type=Percent(),
    default="5%",
    show_default=True,
    metavar="SHARE",
    help="How far a step time, or the median error of a band of sizes, may be off.",
)
@click.option("--check", is_flag=True, help="Exit with 1 where one is further off than that.")
@limit_option
@json_option
@click.option(
    "--report",
    type=OutputFile(".html"),
    metavar="F.html",
    help="Write a page with all on one time axis.",
)
@quiet_option
def compare(
    items: tuple[str, ...],
    tolerance: float,
    check: bool,
    json_path: Path | None,
    report: Path | None,
    quiet: bool,
) -> int:
    """Compare scenarios, results (JSON), traces, and nccl-tests logs or JSON.

    A and B are files, folders of traces, or names of scenarios; with an nccl-tests log a
    cluster's name stands for what commsim predicts there.
    """
    if len(items) < 2:
        raise click.UsageError("give two or more to compare.")
    from commsim.cli.commands.compare_text import comparison_text
    from commsim.study.compare import compare as study_compare

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    with working(f"comparing {' and '.join(items)}", quiet=quiet) as told:
        opened = iter(range(len(items)))
        result = study_compare(
            *items,
            tolerance=tolerance,
            progress=lambda _: told.count(next(opened), len(items)),
            follow=told.follow,
        )
    console.show(comparison_text(result.to_dict()))
    for side in result.to_dict()["sides"]:
        for note in side["notes"] if side["kind"] != "scenario" else ():
            console.say(f"note: {side['label']}: {note}")
    if report is not None:
        with working(f"drawing {report}", quiet=quiet):
            result.report(report)
        console.show(f"wrote  {report}")
    if json_path == STDOUT:
        from commsim.files import json_bytes

        console.write(json_bytes(result.to_dict()).decode())
    elif json_path is not None:
        result.save_json(json_path)
        console.show(f"wrote  {json_path}")
    return _OUTSIDE if check and not result.within else 0
