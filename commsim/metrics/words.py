"""How figures and names are written in headlines and on charts."""

from __future__ import annotations

from commsim.arrays import distinct
from commsim.metrics.stages import lane_stages
from commsim.timeline import Timeline
from commsim.units import format_time
from commsim.workload.schedules import title_of

__all__ = ["op_label", "schedule_words", "short_time"]


def op_label(op: str) -> str:
    """Write an op as people do: "all_reduce" is "all-reduce"."""
    return op.replace("_", "-")


def short_time(step: float) -> str:
    """Write a time in ps for a title: three digits, "412 ms"."""
    number, unit = format_time(step).split(" ")
    value = float(number)
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def schedule_words(timeline: Timeline) -> str:
    """Name the schedule, its stages and microbatches: "1F1B, 8 stages × 16 microbatches".

    Where devices hold several: "Interleaved 1F1B, 4 stages × 2 virtual × 8 microbatches".
    """
    graph = timeline.graph
    schedule = str(graph.meta.get("schedule", ""))
    stages, microbatches = int(graph.stage.max()) + 1, int(graph.microbatch.max()) + 1
    name = title_of(schedule) if schedule else "Pipeline"
    plural = "" if microbatches == 1 else "es"
    devices = len(distinct(lane_stages(graph)[lane_stages(graph) >= 0]))
    virtual = ""
    if devices and stages > devices and stages % devices == 0:
        each = stages // devices
        virtual = "" if schedule == "dualpipe" else f" × {each} virtual"  # its two are copies
        stages = devices
    return f"{name}, {stages} stages{virtual} × {microbatches} microbatch{plural}"
