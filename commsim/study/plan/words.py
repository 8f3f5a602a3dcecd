"""
What decides between the clusters of a plan, and what would change the answer, by its figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from commsim.study.plan.option import PlanOption
from commsim.study.plan.question import PlanQuestion, odd_part
from commsim.study.plan.search import PlanSearch

__all__ = ["changes_of", "decides_of", "headline_of"]

_NEAR = 1 / 16  # of the batch: another one that trains much the same


def headline_of(
    question: Mapping[str, Any],
    smallest: PlanOption | None,
    cheapest: PlanOption | None,
    fastest: PlanOption | None,
    *,
    simulated: int,
    complete: bool,
) -> str:
    """Return the answer in sentences: each winner once, and the software it is reckoned on.

    `simulated` and `complete` tell what makes nothing from what was not looked at.
    """
    if not complete and not simulated:
        return "The search ended before anything was simulated: nothing is known yet."
    titles: dict[str, list[str]] = {}
    told: dict[str, str] = {}
    for title, option in (("smallest", smallest), ("cheapest", cheapest), ("fastest", fastest)):
        if option is not None:
            titles.setdefault(option.name, []).append(title)
            money = "" if option.cost is None else f", {_money(option.cost)} {option.currency}"
            told[option.name] = f"{option.days:.3g} days{money}"
    names = [f"{_joined(which)}: {name}, {told[name]}" for name, which in titles.items()]
    nothing = "nothing makes it" if complete else "nothing that was simulated makes it"
    answer = "; ".join(names) or nothing
    return (
        f"{answer[:1].upper()}{answer[1:]}. Reckoned on stack {question['stack']}"
        " (--set workload.training.compute.stack=NAME takes another)."
    )


def decides_of(
    found: PlanSearch,
    smallest: PlanOption | None,
    cheapest: PlanOption | None,
    fastest: PlanOption | None,
) -> Iterator[str]:
    """Yield why each is what it is: what the next smaller size lacks, what the others cost."""
    if smallest is not None:
        below = _days_below(found, smallest)
        if below:
            nodes, days = max(below.items())
            yield f"smallest: {nodes:,} {smallest.kind} take at least {days:.3g} days"
        mfu = "" if smallest.mfu is None else f"MFU {smallest.mfu:.1%}; "
        yield f"its step: {mfu}waits {'; '.join(smallest.waits)}"
    if cheapest is not None:
        unpriced = dict.fromkeys(one.kind for one in found.options if one.cost is None)
        if unpriced:
            yield (
                f"cheapest: only of what has a price: none is known of {', '.join(unpriced)}, which"
                " may be cheaper. A cluster file with `prices` in place of its name adds it"
            )
        for option in _best_of_others(found, cheapest):
            if option.cost and cheapest.cost:
                more = option.cost / cheapest.cost - 1
                yield (
                    f"cheapest: {option.name} cost {_money(option.cost)} {option.currency},"
                    f" {more:+.0%}"
                )
    if fastest is not None and fastest is not smallest and smallest is not None:
        yield (
            f"fastest: {fastest.gpus / smallest.gpus:.2g} times the GPUs of the smallest for"
            f" {smallest.days / fastest.days:.2g} times the speed"
        )
    yield from found.nothing


def changes_of(
    found: PlanSearch,
    question: PlanQuestion,
    smallest: PlanOption | None,
    cheapest: PlanOption | None,
) -> Iterator[str]:
    """Yield the deadline, the speed and the prices at which another answer would be right."""
    if smallest is not None and question.seconds is not None:
        spare = found.deadline / smallest.days - 1
        yield (
            f"{smallest.name} is done after {smallest.days:.3g} days: steps may be {spare:.0%}"
            " longer (failures, data, a slower stack) before it is late"
        )
        below = _days_below(found, smallest)
        if below:
            nodes = min(below, key=below.__getitem__)
            days = below[nodes]
            yield f"with more than {days:.3g} days, {nodes:,} {smallest.kind} could do"
        yield from _other_batch(question, smallest, found.deadline, found.smaller(smallest))
    if cheapest is not None and cheapest.cost:
        for option in _best_of_others(found, cheapest):
            if option.cost and option.per_hour:
                even = option.per_hour / option.gpus * cheapest.cost / option.cost
                now = option.per_hour / option.gpus
                owned = ", bought and powered" if option.bought is not None else ""
                yield (
                    f"{option.kind} would be the cheapest below {even:.4g} {option.currency} for a"
                    f" GPU and hour (now {now:.4g}{owned})"
                )


def _other_batch(
    question: PlanQuestion, smallest: PlanOption, deadline: float, smaller: Iterable[int]
) -> Iterator[str]:
    """Yield the batch with which fewer nodes could do, as long as steps scale: theirs have a
    factor that the sequences of a step have not, so that hardly a layout divides them.
    """
    per_node = smallest.gpus // smallest.nodes
    for nodes in smaller:
        days = smallest.days * smallest.nodes / nodes
        odd = odd_part(nodes * per_node)
        if days > deadline or question.sequences % odd == 0:
            continue
        batch = _near_multiple(question.sequences, odd)
        if batch is not None:
            tokens = batch * question.sequence
            yield (
                f"{nodes:,} {smallest.kind} could take about {days:.3g} days with"
                f" --batch-tokens {tokens} ({batch:,} sequences, which {nodes * per_node:,} GPUs"
                f" divide; {question.sequences:,} are no multiple of {odd})"
            )
            return


def _near_multiple(sequences: int, odd: int) -> int | None:
    """Return the multiple of `odd` times the highest power of two within a sixteenth of
    `sequences`; None if there is none.
    """
    found = None
    unit = odd
    while unit <= sequences:
        near = round(sequences / unit) * unit
        if abs(near - sequences) <= _NEAR * sequences:
            found = near
        unit *= 2
    return found


def _days_below(found: PlanSearch, option: PlanOption) -> dict[int, float]:
    """Return, by nodes, the least days that smaller clusters of an option's kind take."""
    return {
        nodes: days
        for (kind, nodes), days in found.at_least.items()
        if kind == option.kind and nodes < option.nodes
    }


def _best_of_others(found: PlanSearch, cheapest: PlanOption) -> list[PlanOption]:
    """Return the cheapest option of each other kind that makes it."""
    best: dict[str, PlanOption] = {}
    for option in found.options:
        if option.kind == cheapest.kind or option.cost is None or not found.makes_it(option):
            continue
        known = best.get(option.kind)
        if known is None or option.cost < (known.cost or 0.0):
            best[option.kind] = option
    return list(best.values())


def _joined(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _money(value: float) -> str:
    return f"{value:,.0f}"
