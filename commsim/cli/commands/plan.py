"""
`commsim plan`: which cluster for a training.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Console,
    Count,
    GroupedCommand,
    Number,
    OutputFile,
    OutputFolder,
    columns,
    executor_option,
    json_option,
    limit_option,
    quiet_option,
    set_option,
    working,
)
from commsim.units import format_time

if TYPE_CHECKING:
    from commsim.study.plan import ClusterPlan

__all__ = ["plan"]

_UNKNOWN = "–"
_NONE_MAKES_IT, _INTERRUPTED = 1, 130


@click.command(cls=GroupedCommand)
@click.option("--model", required=True, metavar="M", help="A preset (`commsim presets models`).")
@click.option("--tokens", required=True, metavar="N", help="To train on: 2e12, or 2T.")
@click.option("--in", "days", metavar="TIME", help="The deadline: 30d, 4w, 12h.")
@click.option(
    "--budget", type=Number("2000000 or 2e6"), metavar="MONEY", help="For the whole training."
)
@click.option(
    "--on",
    type=INPUT,
    required=True,
    metavar="A,B,...",
    help="Presets, or cluster files with a fabric and prices of their own.",
)
@click.option(
    "--seq-len",
    type=Count(),
    default=8192,
    show_default=True,
    metavar="N",
    help="Tokens of a sequence.",
)
@click.option(
    "--batch-tokens",
    type=Count(),
    default=2**22,
    show_default=True,
    metavar="N",
    help="Tokens of a step.",
)
@click.option(
    "--most-gpus",
    type=Count(),
    default=8192,
    show_default=True,
    metavar="N",
    help="The largest size to look at.",
)
@click.option(
    "--layouts",
    type=click.Choice(["usual", "all"]),
    default="usual",
    show_default=True,
    help="Those that people run, or all that `advise` tries (slow beyond a few nodes).",
)
@click.option(
    "--runs",
    type=Count(),
    default=12,
    show_default=True,
    metavar="N",
    help="Simulations to spend at most.",
)
@set_option
@executor_option
@limit_option
@json_option
@click.option(
    "--report", type=OutputFile(".html"), metavar="F.html", help="Money against days, as a page."
)
@click.option(
    "--scenarios",
    type=OutputFolder(),
    metavar="DIR",
    help="Write smallest.yaml, cheapest.yaml and fastest.yaml, to run and to change.",
)
@quiet_option
def plan(
    model: str,
    tokens: str,
    days: str | None,
    budget: float | None,
    on: str,
    seq_len: int,
    batch_tokens: int,
    most_gpus: int,
    layouts: str,
    runs: int,
    sets: tuple[str, ...],
    executor: str,
    json_path: Path | None,
    report: Path | None,
    scenarios: Path | None,
    quiet: bool,
) -> int:
    """Find the smallest, the cheapest and the fastest cluster that trains a model in time.

    Ctrl-C ends the search and prints the best so far.
    """
    from commsim.study.plan import plan as study_plan

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    with working("reading the clusters", quiet=quiet) as told:
        found = study_plan(
            model,
            tokens=tokens,
            days=days,
            budget=budget,
            on=on,
            seq_len=seq_len,
            batch_tokens=batch_tokens,
            most_gpus=most_gpus,
            layouts=layouts,
            runs=runs,
            sets=sets,
            executor=executor,
            progress=told.say,
            follow=told.follow,
        )
    _show(found, console)
    if json_path == STDOUT:
        from commsim.files import json_bytes

        console.write(json_bytes(found.to_dict()).decode())
    for path in (json_path, report):
        if path is not None and path != STDOUT:
            with working(f"writing {path}", quiet=quiet):
                found.save(path)
            console.say(f"wrote {path}")
    for path in found.save_scenarios(scenarios) if scenarios is not None else ():
        console.say(f"wrote {path}")
    if any(note.startswith("interrupted") for note in found.notes):
        return _INTERRUPTED
    return 0 if found.smallest is not None else _NONE_MAKES_IT


def _show(found: ClusterPlan, console: Console) -> None:
    marked = {id(getattr(found, title)): title for title in ("fastest", "cheapest", "smallest")}
    titles = {
        key: ", ".join(
            title for title in ("smallest", "cheapest", "fastest")
            if id(getattr(found, title)) == key
        )
        for key in marked
    }  # fmt: skip
    rows: list[tuple[str, ...]] = [
        ("", "cluster", "layout", "step", "days", "MFU", "goodput", "cost", "to buy", "MWh")
    ]
    for option in found.options:
        rows.append(
            (
                titles.get(id(option), ""),
                option.name,
                option.layout,
                format_time(option.step_s * 1e12),
                f"{option.days:.3g}",
                _UNKNOWN if option.mfu is None else f"{option.mfu:.1%}",
                _UNKNOWN if option.goodput is None else f"{option.goodput:.1%}",
                _UNKNOWN if option.cost is None else f"{option.cost:,.0f} {option.currency}",
                _UNKNOWN if option.bought is None else f"{option.bought:,.0f} {option.currency}",
                _UNKNOWN if option.energy_kwh is None else f"{option.energy_kwh / 1e3:,.0f}",
            )
        )
    console.show(f"{found.headline}\n")
    console.show(_known_columns(rows))
    for title, lines in (("what decides", found.decides), ("what would change it", found.changes)):
        if lines:
            console.show(f"\n{title}")
            console.show("\n".join(f"  {line}" for line in lines))
    for note in found.notes:
        console.say(f"note: {note}")


def _known_columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the table without the columns that no row knows anything for."""
    head, *options = rows
    kept = [
        at for at in range(len(head)) if not options or any(row[at] != _UNKNOWN for row in options)
    ]
    return columns([tuple(row[at] for at in kept) for row in rows], right=range(3, len(kept)))
