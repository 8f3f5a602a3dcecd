"""
The short table that every run ends with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from commsim.units import format_time

if TYPE_CHECKING:
    from commsim.cli.terminal.console import Console
    from commsim.metrics import Metrics
    from commsim.study.next_dollar.what_if import WhatIfGrid
    from commsim.study.run import Result

__all__ = ["columns", "limits_table", "summary", "what_if_table"]

_NONE = "–"
_UNEVEN = 0.005  # ranks whose steps end that far apart: the account is of their mean
_HIDDEN = 0.01  # of the step: transfers under compute from here on are worth a line
_ALWAYS = ("compute", "exposed_transfer", "waiting")  # parts that are shown though they be zero


def summary(
    metrics: Metrics,
    written: Iterable[str],
    console: Console,
    *,
    memory: str = "",
    span_name: str = "step time",
) -> str:
    """Return step time, its parts, bubble, busiest link, memory, and the files written.

    `memory` says whether the fullest GPU holds it, `span_name` what the step time is of.
    """
    rows = [(span_name, console.strong(_time(metrics.step_time_s))), *_account(metrics)]
    if metrics.bubble_fraction is not None:
        rows.append(("bubble", f"{metrics.bubble_fraction:>19.1%}  of the stages' own span"))
    if metrics.mfu is not None:
        rows.append(("MFU", f"{metrics.mfu:>19.1%}{_of_peak(metrics)}"))
    if metrics.tokens_per_s is not None:
        rows.append(("tokens", f"{metrics.tokens_per_s:,.0f} per second"))
    if metrics.cost is not None and metrics.cost.get("per_step") is not None:
        rows.append(("cost", _cost(metrics.cost)))
    if metrics.links:
        busiest = metrics.links[0]
        rows.append(("busiest link", f"{busiest.name}, {busiest.utilization:.1%} of the step"))
    if metrics.memory_gib is not None:
        told = memory if metrics.memory_gib["fits"] else console.alarm(memory)
        rows.append(("memory", told))
    rows += [("wrote", name) for name in written]
    return columns(rows)


def limits_table(result: Result) -> str:
    """Return what the step would save without each part, with half of it, and how to try that."""
    from commsim.metrics import limit_name, limit_remarks

    step = result.metrics.step_time_s
    rows: list[tuple[str, ...]] = [("the step would be shorter without", "gone", "half", "")]
    for limit in result.limits:
        half = "" if limit.halved_s is None else f"{limit.halved_s / step:.1%}"
        tried = f"--set {limit.setting}" if half and limit.setting else ""
        rows.append((f"  {limit_name(limit)}", f"{limit.removed_s / step:.1%}", half, tried))
    told = columns(rows, right=(1, 2))
    told += "".join(f"\n  ({remark})" for remark in limit_remarks(result.limits))
    compute = result.metrics.breakdown.compute_s / step if step else 0.0
    gone = next((one.removed_s / step for one in result.limits if one.kind == "compute"), compute)
    if compute - gone > _HIDDEN:
        told += (
            f"\n  (compute is {compute:.1%}, without it {gone:.1%} is saved: transfers that ran"
            " under it would stand alone)"
        )
    return told


def what_if_table(found: WhatIfGrid) -> str:
    """Return the step along each axis of a what-if, the others as they were given."""
    base = found.result.metrics.step_time_s
    rows: list[tuple[str, ...]] = []
    titles: list[tuple[int, str]] = []
    failed: dict[str, None] = {}
    for axis in found.axes:
        titles.append((len(rows), axis.title))
        for place, (label, point) in enumerate(zip(axis.labels, found.along(axis), strict=True)):
            step = point.step_time_s
            if step is None:
                failed[point.error or ""] = None
                rows.append((f"  {label}", "cannot run", "", ""))
                continue
            change = "as given" if place == axis.given else _change(step, base)
            tokens = (point.metrics or {}).get("tokens_per_s")
            told = f"{tokens:,.0f} tokens/s" if tokens else ""
            rows.append((f"  {label}", _time(step), change, told))
    lines = columns(rows, right=(0, 1, 2, 3)).split("\n")
    for at, title in reversed(titles):
        lines.insert(at, f"what if: {title}")
    return "\n".join([*lines, *(f"cannot run: {why}" for why in failed)])


def _change(step: float, base: float) -> str:
    share = step / base - 1 if base else 0.0
    return f"{share:+.1%}" if abs(share) >= 0.0005 else "the same"


def _account(metrics: Metrics) -> list[tuple[str, str]]:
    from commsim.metrics import PARTS

    parts, whole = metrics.breakdown, metrics.breakdown.whole_s
    uneven = abs(whole - metrics.step_time_s) > _UNEVEN * metrics.step_time_s
    mean = [("  mean of the ranks", f"{_time(whole):>10}, of which")] if uneven else []
    return mean + [
        (f"  {name}", f"{_time(value):>10}  {_share(value, whole)}")
        for part, name in PARTS.items()
        if (value := getattr(parts, f"{part}_s")) or part in _ALWAYS
    ]


def _of_peak(metrics: Metrics) -> str:
    """Say what MFU is a share of; a model without FLOPs has none."""
    if not metrics.mfu or metrics.tflops_per_gpu is None:
        return ""
    return f"  of {metrics.tflops_per_gpu / metrics.mfu:,.4g} TFLOP/s"


def _cost(cost: dict[str, float | str | None]) -> str:
    per_tokens = cost.get("per_1e9_tokens")
    more = f", {per_tokens:,.0f} per 1e9 tokens" if isinstance(per_tokens, float) else ""
    return f"{cost['per_step']:.3g} {cost.get('currency') or ''} a step{more}"


def columns(rows: Sequence[tuple[str, ...]], *, right: Iterable[int] = ()) -> str:
    """Return rows as aligned text columns; those numbered in `right` are flush right."""
    flush = set(right)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        cells = (
            cell.rjust(width) if at in flush else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:6.1%}" if whole else ""
