"""What notebooks show: small, escaped, and with the figures of the JSON."""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.charts.figures.notebook import bench_html
from commsim.cluster import Cluster
from commsim.study.bench import bench
from commsim.study.run import Result, run
from commsim.units import format_time

HOSTILE = "<script>alert('x')</script>&amp;"


@cache
def quickstart() -> Result:
    return run("quickstart")


def words(html: str) -> str:
    """Return the text of HTML that must be well-formed."""
    return " ".join(ElementTree.fromstring(html.replace("&nbsp;", " ")).itertext())


def test_a_result_says_what_its_json_says() -> None:
    result = quickstart()
    html = result._repr_html_()
    assert len(html) < 4_000
    text = words(html)
    assert f"{result.metrics.mfu:.1%}" in text
    assert result.metrics.links[0].name in text
    bars = [float(width) for width in re.findall(r'"width:([0-9.]+)%', html)]
    assert sum(bars) == pytest.approx(100, abs=0.05)


def test_names_are_escaped() -> None:
    result = replace(quickstart(), scenario=HOSTILE)
    assert "<script>" not in result._repr_html_()
    assert HOSTILE in words(result._repr_html_())
    timeline = replace(result.timeline, source=HOSTILE)
    assert "<script>" not in timeline._repr_html_()
    assert HOSTILE in words(timeline._repr_html_())


def test_a_timeline_counts_its_spans() -> None:
    timeline = quickstart().timeline
    text = words(timeline._repr_html_())
    collectives = int((timeline.kind == 1).sum())
    assert f"{collectives:,} spans" in text


def test_weeks_of_many_spans_add_up() -> None:
    line = quickstart().timeline
    long = replace(line, start=np.zeros_like(line.end), end=np.full_like(line.end, 2**61))
    assert f"{format_time(2.0**61 * (line.kind == 1).sum())} in all" in words(long._repr_html_())


def test_a_cluster_names_its_kinds_of_nodes() -> None:
    text = words(Cluster.preset("dgx-h100", nodes=64)._repr_html_())
    assert "64 × dgx-h100" in text
    assert "512 GPUs" in text


def test_a_long_bench_is_cut_and_says_so() -> None:
    cluster = Cluster.preset("dgx-a100", nodes=2)
    sizes = [2**k for k in range(10, 34)]
    result = bench(cluster, "all_reduce", sizes, algo="all", proto="all", library="nccl")
    html = bench_html(result.to_dict())
    assert html == result._repr_html_()
    assert html.count("<tr>") == 49
    assert f"and {len(result.results) - 48:,} more rows" in words(html)
