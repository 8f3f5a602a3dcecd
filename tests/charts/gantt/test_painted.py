"""What a row paints is what was busy: a Gantt of many short spans is not darker than the run."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.hand_made import timeline

from commsim.charts import gantt_svg
from commsim.charts.gantt.scene import below_compute, drawn_spans, scene
from commsim.graph import GraphBuilder
from commsim.metrics import arrivals
from commsim.metrics.intervals import Intervals, lengths, union
from commsim.scenario import scenario_names
from commsim.study.run import run
from commsim.timeline import Timeline

WIDTH = 1290.0  # pixels of the time axis
RECT = re.compile(
    r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" fill="([^"]+)"'
)
CHEAP = ("1f1b", "ddp", "dp-pp", "quickstart", "zero-3-three-layers", "parameter-server")


def painted(timeline: Timeline) -> list[float]:
    """Return, per row of the SVG, the share of its width that boxes cover."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for left, y, width, height, fill in RECT.findall(gantt_svg(timeline)):
        key = f"{y} {height}"
        if float(width) == WIDTH and fill in ("url(#idle)", "#FAFAFB"):
            rows.setdefault(key, [])
        elif key in rows:
            rows[key].append(
                (round(1000 * float(left)), round(1000 * (float(left) + float(width))))
            )
    shares = []
    for boxes in rows.values():
        start, end = np.array(boxes, np.int64).reshape(-1, 2).T
        both = union(Intervals(np.zeros(len(boxes), np.int64), start, end))
        shares.append(lengths(both, 1)[0] / (1000 * WIDTH))
    return shares


def busy(timeline: Timeline) -> list[float]:
    """Return, per row, the share of the window in which something was there."""
    picture = scene(timeline)
    lanes = np.array(sorted({row.lane for row in picture.rows}))
    spans = drawn_spans(timeline, lanes)
    below = below_compute(timeline, spans)
    position = {row.lane: at for at, row in reversed(list(enumerate(picture.rows))) if row.compute}
    first = [timeline.lane[spans] == lane for lane in position]
    found = []
    for mine, lane in zip(first, position, strict=True):
        line = np.zeros(int((mine & ~below).sum()), np.int64)
        chosen = spans[mine & ~below]
        both = union(Intervals(line, arrivals(timeline)[chosen], timeline.end[chosen]))
        share = lengths(both, 1)[0] / (picture.end - picture.begin)
        found.append((position[lane], float(share)))
    return [share for _, share in sorted(found)]


def check(name: str) -> None:
    timeline = run(name).timeline
    compute = [row.compute for row in scene(timeline).rows]
    shares = [
        share for share, is_compute in zip(painted(timeline), compute, strict=True) if is_compute
    ]
    assert shares == pytest.approx(busy(timeline), abs=0.05)


def test_short_spans_between_long_ones_are_painted_beside_them() -> None:
    """Gathered across a long span, they would lie on it, and their own time be painted nowhere."""
    build, times = GraphBuilder(), []
    lane = build.lane(0)
    for at in range(0, 400 * 5000, 5000):
        for begin, length in ((0, 4000), (4100, 350), (4550, 350)):
            build.compute(lane, length, name="work", stream="s")
            times.append((at + begin, at + begin + length))
    line = timeline(build, times)
    assert painted(line) == pytest.approx(busy(line), abs=0.05)


@pytest.mark.parametrize("name", CHEAP)
def test_share_painted_is_share_busy(name: str) -> None:
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(scenario_names()) - set(CHEAP)))
def test_share_painted_is_share_busy_all_of_the_catalogue(name: str) -> None:
    check(name)
