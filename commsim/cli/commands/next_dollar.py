"""
`commsim next`: what the next dollar should buy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Console,
    GroupedCommand,
    OutputFile,
    columns,
    json_option,
    limit_option,
    quiet_option,
    say_notes,
    scenarios,
    set_option,
    verbose_option,
    working,
)

if TYPE_CHECKING:
    from commsim.study.next_dollar import NextDollar

__all__ = ["next_dollar"]

_TITLES = {"hardware": "hardware", "size": "more of everything", "setting": "settings, for nothing"}


class _Price(click.ParamType[tuple[str, float]]):
    """What twice as much of a resource costs per GPU and hour: "nic=0.15"."""

    name = "price"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Return the resource and its price, or fail as a usage error."""
        key, equals, text = str(value).partition("=")
        try:
            return (key.strip(), float(text)) if equals else self.fail(_HOW, param, ctx)
        except ValueError:
            self.fail(f"{value!r}: {text!r} is no number. {_HOW}", param, ctx)


_HOW = "Give a resource and money per GPU and hour, like --price nic=0.15."


@click.command("next", cls=GroupedCommand)
@click.argument("scenario", type=INPUT, metavar="SCENARIO|NAME", shell_complete=scenarios)
@set_option
@click.option(
    "--price",
    "prices",
    type=_Price(),
    multiple=True,
    metavar="RESOURCE=MONEY",
    help="What twice as much of a resource costs per GPU and hour, for money per second saved.",
)
@click.option(
    "--executor", metavar="WHO", help="processes[:N], serial, or dask[:ADDRESS]. Default: by size."
)
@limit_option
@json_option
@click.option(
    "--report", type=OutputFile(".html"), metavar="F.html", help="Write the tornado chart."
)
@verbose_option
@quiet_option
def next_dollar(
    scenario: str,
    sets: tuple[str, ...],
    prices: tuple[tuple[str, float], ...],
    executor: str | None,
    json_path: Path | None,
    report: Path | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Say what the next dollar should buy: SCENARIO with more and less of everything.

    Each resource is halved, made 10 % worse, 10 % better and doubled, one at a time; every
    figure is a run.
    """
    from commsim.files import json_bytes
    from commsim.study.next_dollar import next_dollar as study_next_dollar

    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    with working("runs", quiet=quiet) as told:
        found = study_next_dollar(
            scenario, sets, prices=dict(prices), executor=executor, progress=told.count
        )
    console.show(found.scenario)
    console.show(console.strong(found.headline))
    console.show("")
    console.show(_table(found))
    for line in _alternatives(found):
        console.show(line)
    reasons = [(f"  {one.title}:", one.why) for one in found.upgrades if one.why]
    if reasons:
        console.show("")
        console.show("why more changes nothing, and how much less would be felt")
        console.show(columns(reasons))
    bought = [(f"  {one.title}:", one.buys) for one in found.upgrades if one.buys]
    if bought:
        console.show("")
        console.show("what as much again is, by the cluster's prices")
        console.show(columns(bought))
    if report is not None:
        with working(f"writing {report}", quiet=quiet):
            found.report(report)
        console.show(f"wrote  {report}")
    if json_path == STDOUT:
        console.write(json_bytes(found.to_dict()).decode())
    elif json_path is not None:
        found.save_json(json_path)
        console.show(f"wrote  {json_path}")
    console.say(f"{found.runs} runs")
    say_notes(found.result.notes, console, verbose=verbose)


def _table(found: NextDollar) -> str:
    money = [one for one in found.upgrades if one.worth_per_hour is not None]
    gained = [one for one in found.upgrades if one.price_per_hour is not None]
    heads = ["", "now", "half", "-10 %", "+10 %", "twice", "ends at"]
    heads += [f"worth {found.currency}/h"] if money else []
    heads += [f"costs {found.currency}/h", "per s saved"] if gained else []
    rows: list[tuple[str, ...]] = [tuple(heads)]
    kind = ""
    for one in found.upgrades:
        if one.kind != kind:
            kind = one.kind
            rows.append((_TITLES[kind], *[""] * (len(heads) - 1)))
        cells = [_percent(change.saved_s, found.step_time_s) for change in one.changes]
        ends = "" if one.saturates is None else f"x{one.saturates:g}"
        row = [f"  {one.title}", one.now, *cells, ends]
        row += [_number(one.worth_per_hour)] if money else []
        row += [_number(one.price_per_hour), _number(one.per_saved_second)] if gained else []
        rows.append(tuple(row))
    return columns(rows, right=range(2, len(heads)))


def _alternatives(found: NextDollar) -> list[str]:
    """Return the settings that shorten the step with what to type, then those that do not."""
    least = _SHORTER * found.step_time_s
    better = [one for one in found.alternatives if (one.saved_s or 0.0) >= least]
    rows = [
        (
            f"  {one.title}",
            _percent(one.saved_s, found.step_time_s),
            " ".join(f"--set {text}" for text in one.sets),
            "does not fit in memory" if one.fits is False else "",
        )
        for one in better
    ]
    lines = ["", "other settings, for nothing", columns(rows, right=(1,))] if rows else []
    rest = [one.title for one in found.alternatives if one.saved_s is not None][len(better) :]
    if rest:
        lines += [] if lines else [""]
        lines.append(f"other settings that save less than {_SHORTER:.1%}: {'; '.join(rest)}")
    return lines


_SHORTER = 0.001  # of the step


def _percent(saved: float | None, step: float) -> str:
    """Return the change of the step; minus is shorter."""
    if saved is None:
        return "-"
    share = -saved / step if step else 0.0
    return f"{share:+.1%}" if abs(share) >= 0.0005 else "0"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"
