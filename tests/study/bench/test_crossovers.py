"""Crossovers are what a user would see: long enough, and worth it."""

from __future__ import annotations

import pytest

from commsim.cluster import Cluster
from commsim.study.bench import bench
from commsim.study.bench.crossovers import choice_changes, fastest_changes

SIZES = [2**k for k in range(10, 24)]


def line(latency: float, rate: float):
    return lambda size: latency + size / rate


def changes(**algorithms):
    found = fastest_changes("op", SIZES, list(algorithms), lambda name, s: algorithms[name](s))
    return [(c.before, c.to, c.size) for c in found]


def test_two_lines_cross_where_they_meet() -> None:
    ((before, to, size),) = changes(tree=line(10.0, 100.0), ring=line(100.0, 1000.0))
    assert (before, to) == ("tree", "ring")
    assert size == pytest.approx(10000, rel=0.02)


def test_a_gain_of_two_percent_is_none() -> None:
    assert changes(a=line(10.0, 100.0), b=line(11.0, 102.0)) == []
    assert len(changes(a=line(10.0, 100.0), b=line(11.0, 104.0))) == 1


def test_a_range_shorter_than_a_step_is_none() -> None:
    """b is fastest at 64 KiB alone, from 1.5 steps of sizes below to above, or from 0.5."""
    base = line(0.0, 100.0)

    def near(width: float):
        return lambda s: base(s) * (0.5 if 2**16 / width < s < 2**16 * width else 1.5)

    assert changes(a=base, b=near(1.3)) == []
    assert [c[:2] for c in changes(a=base, b=near(1.9))] == [("a", "b"), ("b", "a")]


def test_choices_that_change_for_less_than_a_step_are_left_out() -> None:
    def choice(size: int) -> str:
        return "LL" if size < 5000 else "LL128" if size < 9000 else "Simple"

    found = choice_changes("op", SIZES, choice)
    assert [(c.before, c.to) for c in found] == [("LL", "Simple")]
    assert found[0].size == pytest.approx(9000, rel=0.02)


def test_bench_tells_nccls_choice_from_what_is_fastest() -> None:
    result = bench(Cluster.preset("dgx-h100", nodes=4), "all_reduce", SIZES, algo="all")
    rows = {(r.size, f"{r.algo} {r.proto}"): r for r in result.results}
    for change in result.choices:
        after = min(size for size in SIZES if size >= change.size)
        assert rows[after, change.to].chosen
    assert [c.to for c in result.choices] == ["Tree LL128", "NVLSTree Simple"]
    for change in result.crossovers:
        after = [size for size in SIZES if size >= change.size]
        assert any(
            rows[s, change.before].time_us > 1.03 * rows[s, change.to].time_us for s in after
        )


def test_a_library_without_a_choice_has_none() -> None:
    result = bench(
        Cluster.preset("dgx-h100"), "all_reduce", SIZES[:3], algo="ring,tree", library="ideal"
    )
    assert result.choices == ()
