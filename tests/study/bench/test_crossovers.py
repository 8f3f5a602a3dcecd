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


def test_a_gain_of_just_three_percent_counts() -> None:
    assert len(changes(a=lambda _: 103.0, b=stairs(2**15, 10**9, low=100.0, high=200.0))) == 1


def test_a_size_is_located_by_as_few_runs_as_a_hundredth_takes() -> None:
    """Seven times half of an octave: 2 ** (1 / 2 ** 7) is 1.0054, and one less would be 1.011."""
    asked: list[int] = []

    def choice(size: int) -> str:
        asked.append(size)
        return "a" if size < 5000 else "b"

    choice_changes("op", SIZES, choice)
    assert len(asked) - len(SIZES) == 7


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


def stairs(begin: int, end: int, low: float = 5.0, high: float = 11.0):
    """Take less from the beginning to before the end than elsewhere."""
    return lambda size: low if begin <= size < end else high


def test_small_sizes_are_located_to_the_byte_from_zero_on() -> None:
    found = fastest_changes("op", [0, 8, 16, 32], ["a", "b"], lambda name, size: (
        10.0 if name == "a" else stairs(3, 10**9)(size)
    ))  # fmt: skip
    assert [(c.before, c.to, c.size) for c in found] == [("a", "b", 3)]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (20, [("a", "c", 20)]),
        (23, [("a", "c", 23)]),
        (24, [("a", "b", 3), ("b", "c", 24)]),
        (28, [("a", "b", 3), ("b", "c", 28)]),
    ],
)
def test_a_step_from_zero_is_one_from_a_byte(end: int, told: list[tuple[str, str, int]]) -> None:
    """From 3 bytes on 8 times as many are 24, less 1 %."""
    times = {"a": lambda _: 10.0, "b": stairs(3, end), "c": stairs(end, 10**9)}
    found = fastest_changes("op", [0, 8, 16, 32], list("abc"), lambda name, s: times[name](s))
    assert [(c.before, c.to, c.size) for c in found] == told
    chosen = choice_changes("op", [0, 8, 16, 32], lambda s: "abc"[(s >= 3) + (s >= end)])
    assert [(c.before, c.to, c.size) for c in chosen] == told


def test_of_two_that_are_equal_the_first_stays() -> None:
    """Equal up to 5000 bytes, which lie between two sizes."""
    base = line(10.0, 100.0)
    ((before, to, size),) = changes(a=base, b=lambda s: base(s) / (2 if s >= 5000 else 1))
    assert (before, to) == ("a", "b")
    assert 5000 <= size <= 5000 * 1.01


def test_a_gain_counts_only_where_the_one_that_takes_over_is_fastest() -> None:
    """b gains 2 % on a up to where c is twice as fast as both; there it would gain a half."""

    def a(size: int) -> float:
        return 100.0 if size < 2**20 else 150.0

    def b(size: int) -> float:
        return 101.0 if size < 2**15 else 98.0

    found = changes(a=a, b=b, c=lambda s: 102.0 if s < 2**19 else 49.0)
    assert found == [("a", "c", found[0][2])]


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
