"""
`commsim advise`: which layout to train with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from commsim.cli.terminal import (
    INPUT,
    STDOUT,
    Console,
    Count,
    GroupedCommand,
    OutputFile,
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
    from commsim.study.advise import Advice, Ranked

__all__ = ["advise"]

_EXPLAINED = 3
_MOST = 1000  # layouts shown, each of which is simulated


@click.command(cls=GroupedCommand)
@click.argument("scenario", type=INPUT, metavar="SCENARIO|NAME")
@set_option
@click.option(
    "--top",
    type=Count(1, _MOST),
    default=5,
    show_default=True,
    metavar="N",
    help="How many to show.",
)
@executor_option
@click.option(
    "-o",
    "--output",
    type=OutputFile(".yaml", ".yml"),
    metavar="F.yaml",
    help="Write the first layout as a scenario; its run says the same.",
)
@limit_option
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

    with working("reading the scenario", quiet=quiet) as told:
        advice = study_advise(
            scenario, sets, top=top, executor=executor, progress=told, follow=told.follow
        )
    _show(advice, console)
    if output is not None:
        advice.save_scenario(output)
        console.say(f"wrote {output}")
    if json_path == STDOUT:
        console.write(json_bytes(advice.to_dict()).decode())
    elif json_path is not None:
        advice.save_json(json_path)
        console.show(f"wrote {json_path}")


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
