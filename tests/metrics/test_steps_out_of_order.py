"""A timeline from a file whose steps do not follow each other is measured as a whole."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

import commsim as cs


def test_steps_out_of_order_make_no_negative_step() -> None:
    """Seed 28747 of the damaged timelines: an op of the first step is called the last one."""
    timeline = cs.run("quickstart").timeline
    graph = timeline.graph
    assert set(graph.step.tolist()) == {0, 1}
    turned = replace(timeline, graph=replace(graph, step=1 - graph.step))
    begin = np.where(timeline.arrive < 0, timeline.start, timeline.arrive).min()
    whole = int(timeline.end.max() - begin) / 1e12
    assert cs.measure(turned).step_time_s == whole
    assert 0 < cs.measure(timeline).step_time_s < whole
