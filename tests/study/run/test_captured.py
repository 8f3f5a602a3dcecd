"""What a capture says of the graph that it made."""

from __future__ import annotations

import pytest
from helpers.captured import recordings
from msgspec.structs import replace

import commsim as cs
from commsim.graph import GraphBuilder
from commsim.study.run import captured_summary
from commsim.study.run.captured import _peak
from commsim.traces.capture.assemble import assemble


def test_a_collective_counts_once_however_many_of_its_members_were_captured() -> None:
    graph = assemble(recordings("ddp-4"))
    assert len(graph.lane_rank) == 4
    counts = [
        int(line.split(" x ")[0]) for line in captured_summary(graph) if " over world " in line
    ]
    assert sum(counts) == len(graph.collectives) > 0


@pytest.mark.parametrize(("half", "whole", "precision"), [(5, 4, "bf16"), (3, 4, "tf32")])
def test_the_peak_is_that_of_the_precision_of_most_work(
    half: int, whole: int, precision: str
) -> None:
    """Work of one precision adds up over its ops: 2 and 3 in bf16 are more than 4 in fp32."""
    build = GraphBuilder()
    lane = build.lane(0)
    for flops, name in ((2.0, "half"), (half - 2.0, "half"), (float(whole), "single")):
        build.compute(lane, 1, name=name, flops=flops)
    build.compute(lane, 1, name="not a product", flops=100.0)
    cluster = cs.Cluster.preset("dgx-h100")
    products = {
        "half": ["matmul", 1, 1, 1, 1, "bfloat16"], "single": ["matmul", 1, 1, 1, 1, "tf32"],
    }  # fmt: skip
    graph = replace(build.build(), meta={"capture": {"products": products}})
    assert _peak(graph, cluster) == cluster.gpu(0).tflops[precision] * 1e12
