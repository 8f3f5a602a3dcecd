"""What a capture says of the graph that it made."""

from __future__ import annotations

from helpers.captured import recordings

from commsim.study.run import captured_summary
from commsim.traces.capture.assemble import assemble


def test_a_collective_counts_once_however_many_of_its_members_were_captured() -> None:
    graph = assemble(recordings("ddp-4"))
    assert len(graph.lane_rank) == 4
    counts = [
        int(line.split(" x ")[0]) for line in captured_summary(graph) if " over world " in line
    ]
    assert sum(counts) == len(graph.collectives) > 0
