"""
The head of a report: the finding with its number, and the figures that everybody asks for.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.charts.gantt import schedule_words
from commsim.charts.report.facts import Facts
from commsim.charts.report.markup import percent
from commsim.charts.theme import ACCOUNT, heading, op_label
from commsim.graph import Phase
from commsim.metrics import Metrics
from commsim.units import format_bandwidth, format_size, format_time

__all__ = ["Figure", "figures", "finding"]

_FULL = 0.95  # above this share compute is the finding


class Figure(NamedTuple):
    """A number of the head: what it is, the number, and a remark."""

    label: str
    value: str
    remark: str = ""


def finding(facts: Facts) -> str:
    """Say in a sentence what the run shows, with its number."""
    metrics = facts.metrics
    step = heading(metrics.step_time_s * 1e12).replace(" ", "\N{NO-BREAK SPACE}")
    parts = metrics.breakdown
    if not parts.compute_s and metrics.collectives:
        return _collective(metrics, step)
    if metrics.bubble_fraction is not None and metrics.bubble_fraction * metrics.step_time_s >= max(
        parts.exposed_transfer_s, parts.exposed_copy_s
    ):
        bubble = percent(metrics.bubble_fraction)
        return f"{schedule_words(facts.timeline)}: {step}, of which {bubble} is bubble"
    whole = parts.whole_s
    if not whole:
        return f"The run takes {step}"
    if parts.compute_s >= _FULL * whole:
        return f"{_name(facts)} takes {step}: {percent(parts.compute_s / whole)} of it is compute"
    share, words = max(
        (parts.exposed_transfer_s, "is exposed communication"),
        (parts.exposed_copy_s, "is exposed copies"),
        (parts.waiting_s, "waits for peers"),
        (parts.host_s, "waits for the host"),
        (parts.idle_s, "is idle"),
    )
    most = _mostly(metrics, words)
    return f"{_name(facts)} takes {step}: {percent(share / whole)} of it {words}{most}"


def _name(facts: Facts) -> str:
    """Return what the figures are about: a training step, or all of the run."""
    stepped = bool((facts.timeline.graph.phase == Phase.OPTIMIZER).any())
    return "A step" if stepped or (facts.timeline.graph.window >= 0).any() else "The run"


def _collective(metrics: Metrics, step: str) -> str:
    most = max(metrics.collectives, key=lambda use: use.time_s)
    name = op_label(most.op)
    if most.busbw_gbs is None:
        return f"{name.capitalize()} on {most.group}: {step}"
    rate = format_bandwidth(most.busbw_gbs * 1e9)
    size = format_size(most.bytes / most.count)
    return f"{name.capitalize()} of {size}: {step}, {rate} on the bus"


def _mostly(metrics: Metrics, words: str) -> str:
    if "communication" not in words or not metrics.collectives:
        return ""
    most = max(metrics.collectives, key=lambda use: use.exposed_s)
    return f", most for {op_label(most.op)} on {most.group}" if most.exposed_s > 0 else ""


def figures(facts: Facts) -> list[Figure]:
    """Return the figures that the run has, the most asked for first."""
    metrics, parts = facts.metrics, facts.metrics.breakdown
    whole = parts.whole_s or 1.0
    found = [Figure("step time", format_time(metrics.step_time_s * 1e12), _against(facts))]
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


def _against(facts: Facts) -> str:
    if facts.measured is None or not facts.measured[1].step_time_s:
        return ""
    before = facts.measured[1].step_time_s
    return f"measured {format_time(before * 1e12)}, {facts.metrics.step_time_s / before - 1:+.1%}"


def _efficiency(metrics: Metrics) -> list[Figure]:
    found = []
    if metrics.mfu is not None:
        per_gpu = metrics.tflops_per_gpu
        found.append(
            Figure("MFU", percent(metrics.mfu), f"{per_gpu:.0f} TFLOP/s per GPU" if per_gpu else "")
        )
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
