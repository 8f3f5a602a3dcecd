"""
`commsim sweep`: one scenario at many settings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Console,
    GroupedCommand,
    OutputFile,
    executor_option,
    json_option,
    limit_option,
    quiet_option,
    scenarios,
    set_option,
    working,
)

if TYPE_CHECKING:
    from commsim.study.sweep import Sweep

__all__ = ["sweep"]

_SHOWN = 24  # rows that the terminal gets; the files have all
_NONE_RAN = 2  # a wrong setting or scenario, as in other commands


@click.command(cls=GroupedCommand)
@click.argument("scenario", type=INPUT, metavar="SCENARIO|NAME", shell_complete=scenarios)
@click.option(
    "--vary",
    multiple=True,
    metavar="PATH=a,b,c",
    help="Values of a setting: a list, or a range like 1..64x2 or 2..8+2. Repeat it for all"
    ' combinations; write "PATH=1,2; PATH=8,16" for settings that go side by side.'
    " Left out: the scenario's section `sweep`.",
)
@click.option(
    "--zip", "zipped", is_flag=True, help="Take all values side by side, not all combinations."
)
@set_option
@executor_option
@click.option(
    "--store",
    type=OutputFile(),
    metavar="F.sqlite",
    help="Keep results here: a sweep that was stopped goes on where it was.",
)
@limit_option
@json_option
@click.option(
    "--csv", "csv_path", type=OutputFile(".csv"), metavar="F.csv", help="A row per point."
)
@click.option(
    "--parquet",
    type=OutputFile(".parquet"),
    metavar="F.parquet",
    help="The same as Parquet (needs pandas and pyarrow).",
)
@click.option(
    "--report",
    type=OutputFile(".html"),
    metavar="F.html",
    help="Charts of what was varied, and a page for every point beside it.",
)
@quiet_option
def sweep(
    scenario: str,
    vary: tuple[str, ...],
    zipped: bool,
    sets: tuple[str, ...],
    executor: str,
    store: Path | None,
    json_path: Path | None,
    csv_path: Path | None,
    parquet: Path | None,
    report: Path | None,
    quiet: bool,
) -> int:
    """Run SCENARIO at every combination of the settings that are varied, as a table."""
    from commsim.study.sweep import sweep as study_sweep

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    folder = None if report is None else report.with_name(f"{report.stem}_points")
    counted = (0, 0)

    def count(done: int, of: int) -> None:
        nonlocal counted
        counted = done, of
        told.count(done, of)

    try:
        with working("points", quiet=quiet) as told:
            found = study_sweep(
                scenario,
                vary,
                zipped=zipped,
                sets=sets,
                executor=executor,
                store=store,
                reports=folder,
                progress=count,
            )
    except KeyboardInterrupt:
        console.say(_stopped(*counted, store))
        raise
    rows = found.rows()
    console.show(_table(rows, [axis.path for axis in found.axes]))
    if len(rows) > _SHOWN:
        console.show(f"and {len(rows) - _SHOWN} more: write --csv or --json for all.")
    for setting in found.unmoved():
        console.show(f"{setting}: every value gives the same step here (`commsim next` says why).")
    if beside := found.replicas_beside():
        console.show(f'Replicas can follow: --vary "{beside}"')
    console.say(f"{len(rows)} points: {_counts(found)}.")
    if json_path == STDOUT:
        from commsim.files import json_bytes

        console.write(json_bytes(found.to_dict()).decode())
    for path in (json_path, csv_path, parquet, report):
        if path is not None and path != STDOUT:
            with working(f"writing {path}", quiet=quiet):
                found.save(path)
            console.say(f"wrote {path}")
    if all(error is not None for error in found.errors):
        console.say("no point could run.")
        return _NONE_RAN
    return 0


def _counts(found: Sweep) -> str:
    """Say how many points were run, and why those that had been run before."""
    again = f" ({found.paged} of them again, for their pages)" if found.paged else ""
    return f"{found.ran} run now{again}, the rest kept from before or equal to another"


def _stopped(done: int, of: int, store: Path | None) -> str:
    """Say what is left of a sweep that was stopped."""
    if store is None:
        return f"{done} of {of} points had been run, and are lost: --store F.sqlite keeps them."
    return f"{done} of {of} points are kept in {store}: the same command goes on from there."


def _table(rows: list[dict[str, object]], paths: list[str]) -> str:
    """Return the first rows as text: settings by the end of their paths, and the main figures."""
    shown = {
        "step_time_s": "step",
        "tokens_per_s": "tokens/s",
        "mfu": "MFU",
        "bubble_fraction": "bubble",
        "memory_gib.peak": "peak GiB",
        "cost.per_1e9_tokens": "cost of 1e9 tokens",
        "cost.per_step": "cost of a step",
        "cost.capital": "bought",
    }
    columns = [*paths, *(key for key in shown if any(row[key] is not None for row in rows))]
    heads = [shown.get(key, key.rsplit(".", 1)[-1]) for key in columns]
    lines = [heads]
    for row in rows[:_SHOWN]:
        cells = [_cell(key, row[key]) for key in columns]
        lines.append([*cells, *_remark(row)])
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return "\n".join(
        "  ".join(
            [
                *(cell.rjust(width) for cell, width in zip(line, widths, strict=False)),
                *line[len(columns) :],
            ]
        ).rstrip()
        for line in lines
    )


def _remark(row: dict[str, object]) -> list[str]:
    """Return what stands behind a point that did not run, or cannot."""
    if row["error"]:
        return [f"failed: {row['error']}"]
    return ["does not fit"] if row["memory_gib.fits"] is False else []


def _cell(key: str, value: object) -> str:
    from commsim.units import PS_PER_SECOND, format_time

    if value is None:
        return "-"
    if key == "step_time_s" and isinstance(value, float):
        return format_time(value * PS_PER_SECOND)
    if key in ("mfu", "bubble_fraction") and isinstance(value, float):
        return f"{value:.1%}"
    if key.startswith("cost.") and isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return str(value)
