"""
The charts that `run` and `replay` can write: an option each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from commsim.errors import ScenarioError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from commsim.metrics import Metrics
    from commsim.study.run import Result
    from commsim.timeline import Timeline

__all__ = ["CHARTS", "Chart", "write_chart"]


def write_chart(kind: str, result: Result, path: Path) -> list[Path]:
    """Draw one of CHARTS; return the files written.

    A page shows what was measured above its replay; pictures of the two are two files.

    Raises:
        ScenarioError: the run has nothing for this chart, or the format needs kaleido.
    """
    from commsim.charts import save_figure, save_page

    if kind == "gantt" and path.suffix == ".html":
        result.viewer(path)
        return [path]
    if path.suffix == ".html":
        save_page(_figures(kind, result), path)
        return [path]
    if kind == "gantt" and path.suffix == ".svg":
        return _gantt_svg(result, path)
    files = _files(result, path)
    for figure, file in zip(_figures(kind, result), files, strict=False):
        save_figure(figure, file)
    return files


def _figures(kind: str, result: Result) -> list[Figure]:
    """Return the chart of the run; of a replay, the measured one before it."""
    chart = CHARTS[kind]
    draw = chart.draw
    if result.measured is None or not chart.measured:
        return [draw(result, result.timeline, result.metrics)]
    from commsim.charts import one_above_other

    return one_above_other(
        [
            ("measured", draw(result, *result.measured)),
            ("replayed", draw(result, result.timeline, result.metrics)),
        ]
    )


def _files(result: Result, path: Path) -> list[Path]:
    if result.measured is None:
        return [path]
    return [path.with_suffix(f".measured{path.suffix}"), path]


def _gantt_svg(result: Result, path: Path) -> list[Path]:
    from commsim.charts import gantt_svg
    from commsim.files import write_text

    runs = [(result.timeline, result.metrics)]
    if result.measured is not None:
        runs.insert(0, result.measured)
    files = _files(result, path)
    for (timeline, metrics), file in zip(runs, files, strict=True):
        write_text(file, gantt_svg(timeline, metrics=metrics))
    return files


def _gantt(_: Result, timeline: Timeline, metrics: Metrics) -> Figure:
    from commsim.charts import gantt

    return gantt(timeline, metrics=metrics)


def _breakdown(_: Result, __: Timeline, metrics: Metrics) -> Figure:
    from commsim.charts import breakdown

    return breakdown(metrics)


def _links(_: Result, timeline: Timeline, __: Metrics) -> Figure:
    from commsim.charts import link_use

    return link_use(timeline)


def _matrix(result: Result, timeline: Timeline, _: Metrics) -> Figure:
    from commsim.charts import traffic_matrix

    return traffic_matrix(timeline, cluster=result.cluster, library=result.library)


def _memory(_: Result, timeline: Timeline, __: Metrics) -> Figure:
    from commsim.charts import memory

    return memory(timeline)


def _topology(result: Result, timeline: Timeline, _: Metrics) -> Figure:
    from commsim.charts import topology

    if result.cluster is None:
        raise ScenarioError("--topology: this run has no cluster. Add `cluster:` or --cluster.")
    return topology(result.cluster, timeline)


class Chart(msgspec.Struct, frozen=True):
    """A chart of a run: the option that asks for it, its help, how it is drawn.

    `measured`: of a replay, the measured run is drawn next to it.
    """

    name: str
    help: str
    draw: Callable[[Result, Timeline, Metrics], Figure]
    measured: bool = False


_EVERY = (
    Chart("gantt", "Draw every rank on one timeline.", _gantt, measured=True),
    Chart(
        "breakdown", "Draw what each rank or stage spends its time on.", _breakdown, measured=True
    ),
    Chart("links", "Draw the use of the busiest links over time.", _links),
    Chart("matrix", "Draw the bytes that each GPU sends to each other.", _matrix),
    Chart("memory", "Draw the memory of each rank or stage over time.", _memory, measured=True),
    Chart("topology", "Draw the cluster, its links coloured by their use.", _topology),
)
CHARTS = {chart.name: chart for chart in _EVERY}
"""Charts by the name of their option; each takes F.html, .svg, .png or .pdf."""
