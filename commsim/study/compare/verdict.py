"""
The answer in sentences, with its numbers: which is faster, which is cheaper, where each waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from commsim.study.compare.runs import Side, value_at
from commsim.study.compare.tables import TableRows
from commsim.study.next_dollar import differing, spare_words
from commsim.units import format_time

__all__ = ["label", "verdict_of_runs", "verdict_of_tables"]

_HOUR = 3600.0
_BILLION = 1e9
_SAME = 0.01
_EQUAL_COST = 0.10
"""Costs that are nearer than this are equal: a step's time is not known better."""
_WORDS = {"large": "from 16 MiB on", "mid": "from 64 KiB on", "small": "below 64 KiB"}


def label(at: int) -> str:
    """Return A, B, C, ... for the sides in order."""
    return chr(ord("A") + at) if at < 26 else f"#{at + 1}"


def verdict_of_runs(sides: Sequence[Side], currency: str | None) -> list[str]:
    """Return what to take, if prices or power tell; then speed, cost, and where each waits."""
    cost = _money(sides, currency) or _energy(sides)
    waits = [line for at, side in enumerate(sides) if (line := _waits(at, side))]
    even = _even(sides, currency)
    spare = _spare(sides)
    return [*_advice(sides, currency), _speed(sides), *spare, *cost, *even, *waits]


def _pace(sides: Sequence[Side]) -> list[float]:
    """Return seconds per unit of work: per token if all know theirs, else per step."""
    steps = [float(side.metrics["step_time_s"]) for side in sides]
    tokens = [side.tokens for side in sides]
    if all(tokens):
        return [step / float(count or 1) for step, count in zip(steps, tokens, strict=True)]
    return steps


def _speed(sides: Sequence[Side]) -> str:
    pace = _pace(sides)
    best = min(range(len(sides)), key=pace.__getitem__)
    worst = max(range(len(sides)), key=pace.__getitem__)
    steps = [format_time(float(side.metrics["step_time_s"]) * 1e12) for side in sides]
    told = ", ".join(f"{label(at)} {step}" for at, step in enumerate(steps))
    if not pace[best]:
        line = f"Step times: {told}."
    elif pace[worst] <= pace[best] * (1 + _SAME):
        line = f"All take the same time to {_SAME:.0%}: {told} a step."
    else:
        ratio = pace[worst] / pace[best]
        line = f"{label(best)} is {ratio:.2f} times as fast as {label(worst)}: {told} a step."
    return line


def _spare(sides: Sequence[Side]) -> list[str]:
    """Say why what differs between clusters changes nothing, if two runs take the same time."""
    pace = _pace(sides)
    lines = []
    for at in range(1, len(sides)):
        first, other = sides[0], sides[at]
        equal = abs(pace[at] - pace[0]) <= _SAME * min(pace[0], pace[at])
        if not equal or first.ran is None or other.ran is None:
            continue
        if first.cluster is None or other.cluster is None:
            continue
        less = at if pace[at] >= pace[0] else 0
        held = sides[less].ran
        assert held is not None
        keys = differing(first.cluster, other.cluster)
        lines += [f"{label(less)}: {line}." for line in spare_words(*held, keys)]
    return lines


def _money(sides: Sequence[Side], currency: str | None) -> list[str]:
    prices = [value_at(side.metrics, "cost.per_1e9_tokens") for side in sides]
    per_step = [value_at(side.metrics, "cost.per_step") for side in sides]
    if currency is None or None in per_step:
        return []
    if None not in prices:
        told = ", ".join(f"{label(at)} {_amount(price or 0)}" for at, price in enumerate(prices))
        return [f"1e9 tokens cost, in {currency}: {told}; {_hours(sides)}."]
    told = ", ".join(f"{label(at)} {price:,.4g}" for at, price in enumerate(per_step))
    return [f"A step costs, in {currency}: {told}."]


def _hours(sides: Sequence[Side]) -> str:
    hours = [pace * _BILLION / _HOUR for pace in _pace(sides)]
    told = ", ".join(f"{label(at)} {value:,.3g} h" for at, value in enumerate(hours))
    return f"they take {told}"


def _even(sides: Sequence[Side], currency: str | None) -> list[str]:
    """Return the price at which the dearer of two would cost what the other does."""
    money = [value_at(side.metrics, "cost.per_1e9_tokens") for side in sides]
    hours = [value_at(side.metrics, "cost.per_hour") for side in sides]
    if currency is None or len(sides) != 2 or not all(money) or not all(hours):
        return []
    dear = int(float(money[1] or 0) > float(money[0] or 0))
    cluster = sides[dear].cluster
    gpus = 1 if cluster is None else cluster.world_size
    unit = "GPU" if gpus > 1 else "cluster"
    now = float(hours[dear] or 0) / gpus
    even = now * float(money[1 - dear] or 0) / float(money[dear] or 1)
    return [
        f"They cost the same where an hour of a {unit} of {label(dear)} is {even:,.4g} {currency}"
        f" instead of {now:,.4g}."
    ]


def _energy(sides: Sequence[Side]) -> list[str]:
    energy = [value_at(side.metrics, "cost.energy_kwh_per_1e9_tokens") for side in sides]
    if None in energy:
        return []
    told = ", ".join(f"{label(at)} {_amount(value or 0)} kWh" for at, value in enumerate(energy))
    return [f"1e9 tokens take at most {told} at the nodes' rated power; {_hours(sides)}."]


def _advice(sides: Sequence[Side], currency: str | None) -> list[str]:
    """Say which to take, if all do work that is priced or whose power is known.

    What costs nothing has no price that another's could be a multiple of.
    """
    money = [value_at(side.metrics, "cost.per_1e9_tokens") for side in sides]
    energy = [value_at(side.metrics, "cost.energy_kwh_per_1e9_tokens") for side in sides]
    if currency is not None and all(money):
        return [_take(sides, [float(one or 0) for one in money], currency, "money")]
    if all(energy):
        return [_take(sides, [float(one or 0) for one in energy], "kWh", "energy")]
    return []


def _take(sides: Sequence[Side], needs: Sequence[float], unit: str, what: str) -> str:
    """Return which one to take, or which for the least money and which for the least time."""
    pace = _pace(sides)
    order = range(len(sides))
    fast, cheap = min(order, key=pace.__getitem__), min(order, key=needs.__getitem__)
    names = [f"{label(at)} ({side.name})" for at, side in enumerate(sides)]
    more = needs[fast] / needs[cheap] - 1
    if more >= _EQUAL_COST:
        hours = [one * _BILLION / _HOUR for one in pace]
        return (
            f"Take {names[cheap]} for the least {what}, {names[fast]} for the least time: 1e9"
            f" tokens in {hours[fast]:.3g} h instead of {hours[cheap]:.3g} h, for"
            f" {_amount(needs[fast] - needs[cheap])} {unit} more ({more:.0%})."
        )
    other = min((at for at in order if at != fast), key=needs.__getitem__)
    ratio, off = pace[other] / pace[fast], needs[fast] / needs[other] - 1
    hours = [one * _BILLION / _HOUR for one in pace]
    told = f"{_amount(needs[fast])} {unit} against {_amount(needs[other])} ({off:+.1%})"
    if off > -_EQUAL_COST and ratio <= 1 + _SAME:
        return f"Take either: 1e9 tokens take {hours[fast]:.3g} h on both, and {told}."
    return (
        f"Take {names[fast]}: 1e9 tokens take {hours[fast]:.3g} h against {hours[other]:.3g} h on"
        f" {label(other)}{_per_gpu(sides[fast], sides[other], ratio)}, and {told}."
    )


def _per_gpu(fast: Side, other: Side, ratio: float) -> str:
    """Say on how many GPUs each is, and what is left of the speed per GPU if they differ."""
    mine, theirs = fast.gpus, other.gpus
    if not mine or not theirs:
        return f" ({ratio:.2f} times as fast)"
    if mine == theirs:
        return f" ({ratio:.2f} times as fast, on {mine:,} GPUs each)"
    return (
        f" ({ratio:.2f} times as fast on {mine:,} GPUs instead of {theirs:,}: per GPU"
        f" {ratio * theirs / mine:.2f} times)"
    )


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _waits(at: int, side: Side) -> str:
    """Say what a side's step is lost on, and its MFU."""
    headline = str(side.metrics.get("headline") or "").replace("\N{NO-BREAK SPACE}", " ")
    if not headline:
        return ""
    mfu = side.metrics.get("mfu")
    return f"{label(at)}: {headline}{'' if mfu is None else f' MFU {mfu:.1%}.'}"


def verdict_of_tables(tables: Sequence[TableRows], names: Sequence[str]) -> list[str]:
    """Return per op and source how far it is from the reference: medians by band, and the peak."""
    lines = []
    for table in tables:
        for source, sheet in enumerate(table.sheets):
            if sheet is None or source == table.reference:
                continue
            bands = table.bands(source)
            told = [
                f"{band['median_abs_err']:.1%} {_WORDS[name]}"
                for name, band in bands.items()
                if band["n"]
            ]
            op = table.op.replace("_", "-")
            peak = _peak(table, source)
            held = table.sheets[table.reference]
            verb = "is off by" if held is not None and held.measured else "differs by"
            lines.append(f"{op}: {names[source]} {verb} {', '.join(told)} (medians){peak}.")
    return lines


def _peak(table: TableRows, source: int) -> str:
    def top(at: int) -> float:
        rates = [row[at].busbw_gbs for row in table.points if row[at] is not None]  # type: ignore[union-attr]
        return max((rate for rate in rates if rate is not None), default=0.0)

    here, held = top(source), top(table.reference)
    return f"; peak busbw {here:.1f} GB/s against {held:.1f} GB/s" if here and held else ""
