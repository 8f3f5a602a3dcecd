"""
`commsim advise`: which layout to train with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from commsim.cli.terminal import (
    FIRST_LINE,
    INPUT,
    STDOUT,
    Console,
    GroupedCommand,
    OutputFile,
    Waiting,
    columns,
    executor_option,
    json_option,
    quiet_option,
    set_option,
    waiting,
)
from commsim.units import format_time

if TYPE_CHECKING:
    from commsim.study.advise import Advice, Ranked

__all__ = ["advise"]

_EXPLAINED = 3


@click.command(cls=GroupedCommand)
@click.argument("scenario", type=INPUT, metavar="SCENARIO|NAME")
@set_option
@click.option("--top", default=5, show_default=True, metavar="N", help="How many to show.")
@executor_option
@click.option(
    "-o",
    "--output",
    type=OutputFile(".yaml", ".yml"),
    metavar="F.yaml",
    help="Write the first layout as a scenario; its run says the same.",
)
@json_option
@quiet_option
def advise(
    scenario: str,
    sets: tuple[str, ...],
    top: int,
    executor: str,
    output: Path | None,
    json_path: Path | None,
    quiet: bool,
) -> None:
    """Find the fastest layouts for a training scenario's model, batch and cluster.

    Every layout that fits is considered, whatever the scenario says of `parallel`,
    `data_parallel`, `batch.micro` and `recompute`.
    """
    console = Console(quiet=quiet, json_only=json_path == STDOUT)
    from commsim.files import json_bytes
    from commsim.study.advise import advise as study_advise

    watched = sys.stderr.isatty()
    with (
        waiting("bounding", quiet=quiet or watched, first=FIRST_LINE) as told,
        _Bar(shown=not quiet and watched, told=told) as bar,
    ):
        advice = study_advise(scenario, sets, top=top, executor=executor, progress=bar)
    _show(advice, console)
    if output is not None:
        advice.save_scenario(output)
        console.say(f"wrote {output}")
    if json_path == STDOUT:
        console.write(json_bytes(advice.to_dict()).decode())
    elif json_path is not None:
        advice.save_json(json_path)
        console.show(f"wrote {json_path}")


class _Bar:
    """A progress bar on stderr; lines where that is no terminal."""

    def __init__(self, *, shown: bool, told: Waiting) -> None:
        self._shown, self._told = shown, told
        self._done = 0
        self._what = ""
        self._total: int | None = None
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console as Terminal
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Terminal(stderr=True),
                transient=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, what: str, total: int | None) -> None:
        """Start a part of the work."""
        self._what, self._total, self._done = what, total, 0
        self._told.say(what)
        if self._progress is not None:
            self._task = self._progress.add_task(what, total=total)

    def tick(self) -> None:
        """One piece is done."""
        self._done += 1
        of = "" if self._total is None else f" of {self._total:,}"
        self._told.what = f"{self._what}, {self._done:,}{of} done"
        if self._progress is not None:
            self._progress.advance(self._task)


def _show(advice: Advice, console: Console) -> None:
    console.show(advice.scenario)
    for fact in advice.facts:
        console.show(fact)
    for note in advice.notes:
        console.say(f"note: {note}")
    console.show("")
    console.show(_table(advice))
    console.show("")
    for one in advice.layouts[:_EXPLAINED]:
        console.show(f"{one.rank}. {one.name}")
        console.show(f"   waits: {'; '.join(one.waits_for)}")
        for reason in one.reasons:
            console.show(f"   {reason}")
    if advice.kinds:
        console.show("")
        console.show("the best of other kinds, against the first")
        console.show(columns([(f"  {kind.kind}", kind.says) for kind in advice.kinds]))
    console.show(f"\nreckoned on stack {advice.stack}")
    for other in advice.others:
        took = f"{format_time(other.step_s * 1e12)} ({other.more:+.1%})"
        console.show(f"  on {other.stack}: {took}, {other.layout}")
        console.show(f"    --set {other.setting} ranks all layouts there")
    if not advice.others:
        console.show("  --set workload.training.compute.stack=NAME ranks all layouts on another")
    if len(advice.layouts) > _EXPLAINED:
        console.say("the reasons of the others are in --json")


def _table(advice: Advice) -> str:
    priced = any(one.cost_per_1e9_tokens is not None for one in advice.layouts)
    rows = [_HEAD + ((f"{_currency(advice)} per 1e9 tokens",) if priced else ())]
    rows += [_row(one, str(one.rank), priced=priced) for one in advice.layouts]
    given = advice.given
    if given is not None and given.rank > len(advice.layouts):
        rows.append(_row(given, "yours", priced=priced))
    return columns(rows, right=range(2, len(rows[0])))


def _currency(advice: Advice) -> str:
    cost = advice.layouts[0].metrics.cost
    return str(cost["currency"]) if cost is not None else ""


_HEAD = ("", "layout", "step", "tokens/s", "MFU", "bubble", "GiB")


def _row(one: Ranked, place: str, *, priced: bool) -> tuple[str, ...]:
    metrics = one.metrics
    cost = one.cost_per_1e9_tokens
    row = (
        place, one.name, format_time(metrics.step_time_s * 1e12),
        f"{metrics.tokens_per_s:,.0f}" if metrics.tokens_per_s else "–",
        _percent(metrics.mfu), _percent(metrics.bubble_fraction), f"{one.memory_gib:.1f}",
    )  # fmt: skip
    return (*row, "–" if cost is None else f"{cost:,.2f}") if priced else row


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
