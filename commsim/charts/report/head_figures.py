"""
The key figures in the head of a report.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.charts.report.facts import ReportFacts
from commsim.charts.report.markup import percent
from commsim.charts.theme import ACCOUNT
from commsim.metrics import Metrics
from commsim.units import format_time

__all__ = ["Figure", "figures"]


class Figure(NamedTuple):
    """A number of the head: what it is, the number, and a remark."""

    label: str
    value: str
    remark: str = ""


def figures(facts: ReportFacts) -> list[Figure]:
    """Return the figures that the run has, the most asked for first."""
    metrics, parts = facts.metrics, facts.metrics.breakdown
    whole = parts.whole_s or 1.0
    found = [Figure(facts.span_name, format_time(metrics.step_time_s * 1e12), _against(facts))]
    for part in ACCOUNT:
        seconds = getattr(parts, part.key)
        if seconds > 0 or part.look == "comm":
            found.append(Figure(part.label, percent(seconds / whole), format_time(seconds * 1e12)))
    if metrics.bubble_fraction is not None:
        ratio = f"ratio {metrics.bubble_ratio:.3f}" if metrics.bubble_ratio is not None else ""
        found.append(Figure("bubble fraction", percent(metrics.bubble_fraction), ratio))
    found += _efficiency(metrics)
    if metrics.links:
        busiest = metrics.links[0]
        found.append(Figure("busiest link", percent(busiest.utilization), busiest.name))
    return found


def _against(facts: ReportFacts) -> str:
    if facts.measured is None or not facts.measured[1].step_time_s:
        return ""
    before = facts.measured[1].step_time_s
    return f"measured {format_time(before * 1e12)}, {facts.metrics.step_time_s / before - 1:+.1%}"


def _efficiency(metrics: Metrics) -> list[Figure]:
    found = []
    if metrics.mfu is not None:
        per_gpu, remark = metrics.tflops_per_gpu, ""
        if per_gpu and metrics.mfu:
            remark = f"{per_gpu:.0f} of {per_gpu / metrics.mfu:,.0f} TFLOP/s per GPU"
        found.append(Figure("MFU", percent(metrics.mfu), remark))
    if metrics.tokens_per_s is not None:
        each = metrics.tokens_per_s_per_gpu
        found.append(
            Figure(
                "tokens per second",
                f"{metrics.tokens_per_s:,.0f}",
                f"{each:,.0f} per GPU" if each else "",
            )
        )
    if metrics.memory_gib is not None:
        fits = "fits" if metrics.memory_gib["fits"] else "does not fit"
        found.append(
            Figure("memory of the fullest GPU", f"{metrics.memory_gib['peak']:.1f} GiB", fits)
        )
    cost = metrics.cost or {}
    if cost.get("per_step") is not None:
        each = cost.get("per_1e9_tokens")
        remark = f"{each:,.0f} per 1e9 tokens" if each is not None else ""
        found.append(
            Figure(
                "cost per step",
                f"{cost['per_step']:.3g} {cost.get('currency') or ''}".strip(),
                remark,
            )
        )
    return found
