"""
The default title of a Gantt chart: the finding with its number.

"1F1B, 8 stages × 16 microbatches" with "iteration 69 ms · bubble 30.4%" if lanes are pipeline
stages, else "16 ranks, step 412 ms" with what the step is made of.
"""

from __future__ import annotations

from typing import NamedTuple

from commsim.charts.gantt.scene import Scene
from commsim.charts.theme import ACCOUNT
from commsim.metrics import Metrics, schedule_words, short_time
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND

__all__ = ["Headline", "headline"]


_HATCHED = "not computing"  # what the hatching of a row means


class Headline(NamedTuple):
    """Title, subtitle, and what the legend calls the time in which nothing is computed."""

    title: str
    subtitle: str
    idle: str


def headline(timeline: Timeline, picture: Scene, metrics: Metrics | None) -> Headline:
    """Return the default texts; without `metrics` they say only what the spans show."""
    step = picture.end - picture.begin
    if metrics and metrics.step_time_s is not None:
        step = round(metrics.step_time_s * PS_PER_SECOND)
    bubble = metrics.bubble_fraction if metrics else None
    if picture.by_stage:
        subtitle = f"iteration {short_time(step)}"
        if bubble is not None:
            subtitle += f" · bubble {bubble:.1%} of the stages' own span"
        return Headline(schedule_words(timeline), subtitle, _HATCHED)
    ranks = int(timeline.graph.multiplicity.sum())
    title = f"{ranks:,} rank{'' if ranks == 1 else 's'}, step {short_time(step)}"
    return Headline(title, _shares(metrics) if metrics else "", _HATCHED)


def _shares(metrics: Metrics) -> str:
    """Say what the mean rank does with its step."""
    parts = metrics.breakdown
    shares = [(part.label, getattr(parts, part.key)) for part in ACCOUNT]
    whole = parts.whole_s
    if not whole:
        return ""
    return " · ".join(f"{name} {s / whole:.1%}" for name, s in shares if s / whole >= 0.0005)
