"""Sentences and tables of a comparison, of sides whose every figure is worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.compare.runs import Side, value_at
from commsim.study.compare.tables import (
    Sheet,
    TablePoint,
    band_of,
    from_bench,
    from_log,
    line_up,
)
from commsim.study.compare.verdict import label, verdict_of_runs, verdict_of_tables
from commsim.traces.formats import NcclTests
from commsim.traces.formats.nccl_tests.table import BenchedRow, BenchedTiming

KIB, MIB = 2**10, 2**20


def side(name: str, step: float, tokens: float | None = 1e6, *, gpus: int = 0, **more: Any) -> Side:
    """A run of so many seconds a step and tokens in it; `more` is of its costs."""
    metrics: dict[str, Any] = {"step_time_s": step, "cost": more.pop("cost", {})}
    if tokens is not None:
        metrics["tokens_per_s"] = tokens / step if step else 0.0
    if gpus:
        metrics["ranks"] = [{"multiplicity": 1}, {"multiplicity": gpus - 1}]
    nodes = more.pop("world", None)
    cluster = None if nodes is None else SimpleNamespace(world_size=nodes)
    return Side(name, "result", False, metrics | more, {}, cluster=cluster)  # type: ignore[arg-type]


def test_sides_are_lettered_then_numbered() -> None:
    assert [label(at) for at in (0, 1, 25, 26)] == ["A", "B", "Z", "#27"]


def test_a_number_under_a_path() -> None:
    data = {"links": [{"use": 1}, {"use": "x"}], "cost": None}
    assert value_at(data, "links.0.use") == 1.0
    assert value_at(data, "links.1.use") is None
    assert value_at(data, "links.2.use") is None
    assert value_at(data, "cost.per_hour") is None


def test_which_is_faster() -> None:
    a, b = side("a", 1.0, None), side("b", 2.5, None)
    assert verdict_of_runs([a, b], None) == ["A is 2.50 times as fast as B: A 1 s, B 2.5 s a step."]
    assert verdict_of_runs([b, a, b], None) == [
        "B is 2.50 times as fast as A: A 2.5 s, B 1 s, C 2.5 s a step."
    ]


def test_steps_of_other_work_are_compared_by_token() -> None:
    """Twice the step for four times the tokens is twice as fast; without tokens it is half."""
    a, b = side("a", 1.0, 1e6), side("b", 2.0, 4e6)
    assert verdict_of_runs([a, b], None)[0].startswith("B is 2.00 times as fast as A")
    assert verdict_of_runs([a, side("b", 2.0, None)], None)[0].startswith("A is 2.00 times")


def test_a_hundredth_is_the_same_time() -> None:
    a = side("a", 1.0, None)
    same = "All take the same time to 1%: A 1 s, B 1.01 s a step."
    assert verdict_of_runs([a, side("b", 1.01, None)], None) == [same]
    assert "times as fast" in verdict_of_runs([a, side("b", 1.011, None)], None)[0]


def test_no_time_is_only_told() -> None:
    assert verdict_of_runs([side("a", 0.0, None), side("b", 1.0, None)], None) == [
        "Step times: A 0 s, B 1 s."
    ]


def priced(name: str, step: float, money: float, **more: Any) -> Side:
    cost = {"per_1e9_tokens": money, "per_step": money / 1000} | more.pop("cost", {})
    return side(name, step, cost=cost, **more)


def test_the_least_money_against_the_least_time() -> None:
    """1e6 tokens in 3.6 s: 1e9 in an hour."""
    lines = verdict_of_runs([priced("a", 3.6, 2200), priced("b", 7.2, 1100)], "EUR")
    assert lines[0] == (
        "Take B (b) for the least money, A (a) for the least time: 1e9 tokens in 1 h instead of"
        " 2 h, for 1,100 EUR more (100%)."
    )
    assert lines[2] == ("1e9 tokens cost, in EUR: A 2,200, B 1,100; they take A 1 h, B 2 h.")
    assert len(lines) == 3


def test_costs_nearer_than_a_tenth_are_equal() -> None:
    def advice(dear: float, slow: float = 7.2, **gpus: int) -> str:
        first = priced("a", 3.6, dear, gpus=gpus.get("a", 0))
        second = priced("b", slow, 100.0, gpus=gpus.get("b", 0))
        return verdict_of_runs([first, second], "EUR")[0]

    assert advice(111.0).startswith("Take B (b) for the least money, A (a) for the least time")
    assert advice(109.0) == (
        "Take A (a): 1e9 tokens take 1 h against 2 h on B (2.00 times as fast), and 109 EUR"
        " against 100 (+9.0%)."
    )
    assert advice(109.0, 3.62) == (
        "Take either: 1e9 tokens take 1 h on both, and 109 EUR against 100 (+9.0%)."
    )
    assert advice(109.0, 3.65).startswith("Take A (a)")
    assert advice(50.0, 3.62) == (
        "Take A (a): 1e9 tokens take 1 h against 1.01 h on B (1.01 times as fast), and 50 EUR"
        " against 100 (-50.0%)."
    )
    assert "(2.00 times as fast, on 8 GPUs each)" in advice(50.0, a=8, b=8)
    assert "(2.00 times as fast on 4 GPUs instead of 8: per GPU 4.00 times)" in advice(
        50.0, a=4, b=8
    )
    assert "on B (2.00 times as fast), and" in advice(50.0, a=8)
    assert "on B (2.00 times as fast), and" in advice(50.0, b=8)


def test_a_step_without_tokens_has_its_own_price() -> None:
    sides = [
        side("a", 1.0, None, cost={"per_step": 1.5}), side("b", 2.0, None, cost={"per_step": 2.0}),
    ]  # fmt: skip
    assert verdict_of_runs(sides, "EUR")[1:] == ["A step costs, in EUR: A 1.5, B 2."]
    assert len(verdict_of_runs(sides, None)) == 1
    assert len(verdict_of_runs([sides[0], side("b", 2.0, None)], "EUR")) == 1


def test_the_price_at_which_both_cost_the_same() -> None:
    """The dearer costs twice as much: at half its price it would not."""
    a = priced("a", 3.6, 200.0, cost={"per_hour": 8.0}, world=4)
    b = priced("b", 7.2, 100.0, cost={"per_hour": 6.0}, world=2)
    told = "They cost the same where an hour of a GPU of {} is {} EUR instead of {}."
    assert verdict_of_runs([a, b], "EUR")[-1] == told.format("A", 1, 2)
    assert verdict_of_runs([b, a], "EUR")[-1] == told.format("B", 1, 2)
    alone = priced("a", 3.6, 200.0, cost={"per_hour": 8.0})
    one = priced("a", 3.6, 200.0, cost={"per_hour": 8.0}, world=1)
    for other in (alone, one):
        whole = verdict_of_runs([other, b], "EUR")[-1]
        assert whole == told.format("A", 4, 8).replace("GPU", "cluster")
    assert not any("cost the same" in line for line in verdict_of_runs([a, b, b], "EUR"))
    assert not any("cost the same" in line for line in verdict_of_runs([a, b], None))


def test_what_costs_nothing_is_not_weighed_against_anything() -> None:
    """Machines that are paid for already have the price 0."""
    free = priced("a", 3.6, 0.0, cost={"per_hour": 0.0})
    for other in (free, priced("b", 7.2, 100.0, cost={"per_hour": 6.0})):
        lines = verdict_of_runs([free, other], "EUR")
        assert len(lines) == 2
        assert lines[1].startswith("1e9 tokens cost, in EUR: A 0, B ")


def test_energy_decides_where_nothing_is_priced() -> None:
    def powered(name: str, step: float, energy: float) -> Side:
        return side(name, step, cost={"energy_kwh_per_1e9_tokens": energy})

    lines = verdict_of_runs([powered("a", 3.6, 99.5), powered("b", 7.2, 40.0)], None)
    assert lines[0].startswith("Take B (b) for the least energy, A (a) for the least time")
    assert lines[0].endswith("for 59.5 kWh more (149%).")
    assert lines[2] == (
        "1e9 tokens take at most A 99.5 kWh, B 40 kWh at the nodes' rated power; they take A 1 h,"
        " B 2 h."
    )
    assert len(verdict_of_runs([powered("a", 3.6, 1.0), side("b", 7.2)], None)) == 1
    nothing = verdict_of_runs([powered("a", 3.6, 0.0), powered("b", 7.2, 40.0)], None)
    assert len(nothing) == 2
    assert nothing[1].startswith("1e9 tokens take at most A 0 kWh, B 40 kWh")


def test_what_a_side_waits_for_and_its_mfu() -> None:
    sides = [
        side("a", 1.0, None, headline="waits 3\N{NO-BREAK SPACE}ms.", mfu=0.456),
        side("b", 1.0, None, headline="computes."), side("c", 1.0, None),
    ]  # fmt: skip
    assert verdict_of_runs(sides, None)[1:] == ["A: waits 3 ms. MFU 45.6%.", "B: computes."]


def sheet(*points: tuple[int, float, float | None], measured: bool = False, **more: Any) -> Sheet:
    fixed = {"name": "x", "op": "all_reduce", "dtype": "float", "ranks": 8, "nodes": 1}
    made = tuple(TablePoint(size, time, rate) for size, time, rate in points)
    return Sheet(measured=measured, points=made, **fixed | more)  # type: ignore[arg-type]


def test_bands_begin_at_64_kib_and_16_mib() -> None:
    sizes = [0, 64 * KIB - 1, 64 * KIB, 16 * MIB - 1, 16 * MIB]
    assert [band_of(size) for size in sizes] == ["small", "small", "mid", "mid", "large"]


def test_errors_are_of_the_reference_and_medians_of_a_band() -> None:
    held = sheet((1024, 10.0, 1.0), (2048, 10.0, 2.0), (4096, 10.0, 3.0), (MIB, 0.0, 4.0),
                 (32 * MIB, 100.0, 5.0), measured=True)  # fmt: skip
    mine = sheet((1024, 11.0, 1.0), (2048, 8.0, 9.0), (4096, 13.0, 3.0), (MIB, 7.0, None),
                 (32 * MIB, 99.0, 6.0))  # fmt: skip
    (table,) = line_up([[held], [mine]], 0)
    assert [table.error(row, 1) for row in range(5)] == [
        pytest.approx(0.1), pytest.approx(-0.2), pytest.approx(0.3), None, pytest.approx(-0.01),
    ]  # fmt: skip
    assert table.error(0, 0) is None
    assert table.bands(1) == {
        "large": {"n": 1, "median_abs_err": pytest.approx(0.01),
                  "median_err": pytest.approx(-0.01), "worst_err": pytest.approx(-0.01)},
        "mid": {"n": 0, "median_abs_err": None, "median_err": None, "worst_err": None},
        "small": {"n": 3, "median_abs_err": pytest.approx(0.2), "median_err": pytest.approx(0.1),
                  "worst_err": pytest.approx(0.3)},
    }  # fmt: skip
    assert (table.within(0.21), table.within(0.19)) == (True, False)
    told = "1.0% from 16 MiB on, 20.0% below 64 KiB (medians)"
    assert verdict_of_tables([table], ["held", "mine"]) == [
        f"all-reduce: mine is off by {told}; peak busbw 9.0 GB/s against 5.0 GB/s."
    ]
    (turned,) = line_up([[mine], [held]], 0)
    assert verdict_of_tables([turned], ["mine", "held"])[0].startswith(
        "all-reduce: held differs by"
    )
    plain = table.to_dict(0.21)
    assert (plain["type"], plain["ranks"], plain["nodes"]) == ("float", [8, 8], [1, 1])
    assert (plain["reference"], plain["within"], plain["bands"][0]) == (0, True, None)
    assert plain["rows"][3]["busbw_gbs"] == [4.0, None]


def test_a_source_without_rates_has_no_peak() -> None:
    held, mine = sheet((1024, 10.0, None), measured=True), sheet((1024, 10.0, 3.0))
    (table,) = line_up([[held], [mine]], 0)
    assert verdict_of_tables([table], ["a", "b"]) == [
        "all-reduce: b is off by 0.0% below 64 KiB (medians)."
    ]


def test_sizes_within_a_hundredth_are_one_row_and_lonely_ones_are_left_out() -> None:
    held = sheet((1000, 1.0, 1.0), (2000, 2.0, 1.0))
    mine = sheet((1010, 3.0, 1.0), (2021, 4.0, 1.0))
    (table,) = line_up([[held], [mine], []], 0)
    assert table.sizes == (1000,)
    assert [point.time_us if point else None for point in table.points[0]] == [1.0, 3.0, None]
    assert table.to_dict(1.0)["ranks"] == [8, 8, None]
    assert line_up([[held], []], 0) == []
    assert line_up([[held], [sheet((1000, 1.0, 1.0), op="reduce")]], 0) == []


def test_a_log_gives_medians_and_todays_busbw() -> None:
    """All-reduce of 4 ranks: busbw is 1.5 of algbw, 8000 bytes in 2 us are 4 GB/s."""

    def row(size: int, time: float, *, inside: bool = False) -> BenchedRow:
        timing = BenchedTiming(time, 1.0, 77.0, 0)
        sides = (None, timing) if inside else (timing, None)
        return BenchedRow(size, 1, "float", "sum", -1, *sides)

    rows = (row(8000, 1.0), row(8000, 2.0), row(8000, 9.0, inside=True), row(0, 1.0), row(16, 0.0))

    def read(op: str, ranks: int) -> Sheet:
        return from_log(NcclTests(op, rows, (), None, "x", ranks=ranks, nodes=2), "log")

    found = read("all_reduce", 4)
    (point,) = found.points
    assert (point.size, point.time_us) == (8000, 2.0)
    assert point.busbw_gbs == pytest.approx(6.0)
    assert (found.name, found.ranks, found.nodes, found.measured) == ("log", 4, 2, True)
    assert read("send_recv", 4).points[0].busbw_gbs == pytest.approx(4.0)
    assert read("all_reduce", 2).points[0].busbw_gbs == pytest.approx(4.0)
    assert read("all_reduce", 1).points[0].busbw_gbs == 77.0


def test_a_bench_gives_the_librarys_choice_else_the_fastest() -> None:
    def row(size: int, time: float, **more: Any) -> dict[str, Any]:
        return {"op": "all_reduce", "type": "float", "size": size, "time_us": time,
                "busbw_gbs": 1.0, "algo": f"a{time:g}", "proto": "p"} | more  # fmt: skip

    data = {"system": {"gpus": 8, "nodes": 2}, "results": [
        row(2, 5.0, chosen=True), row(2, 3.0), row(1, 4.0), row(1, 2.0, op="reduce")]}  # fmt: skip
    first, second = from_bench(data, "b")
    assert [(point.size, point.algo) for point in first.points] == [(1, "a4"), (2, "a5")]
    assert (first.ranks, first.nodes, first.measured, first.notes) == (8, 2, False, ())
    assert (second.op, [point.time_us for point in second.points]) == ("reduce", [2.0])
    (bare,) = from_bench({"results": [row(1, 5.0), row(1, 3.0)]}, "b")
    assert [point.time_us for point in bare.points] == [3.0]
    assert (bare.ranks, bare.nodes) == (0, 0)
    assert bare.notes[0].endswith("without the library's own choice: the fastest is taken.")
