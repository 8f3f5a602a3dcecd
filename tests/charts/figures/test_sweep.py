"""Charts of a sweep: what fits what was varied, in a unit that people read."""

from __future__ import annotations

from typing import Any

from commsim.charts import sweep_figures


def data(*axes: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "scenario": "a <b>",
        "axes": [
            {"path": path, "values": v, "beside": beside[0] if beside else ""}
            for path, v, *beside in axes
        ],
    }


def row(step: float | None, cost: float | None = None, **settings: str) -> dict[str, Any]:
    return {
        **settings, "step_time_s": step, "tokens_per_s": None, "mfu": None,
        "bubble_fraction": None, "memory_gib.peak": None, "cost.per_1e9_tokens": cost,
        "error": None if step else "no such <preset>",
    }  # fmt: skip


def test_one_number_is_a_line_in_a_readable_unit() -> None:
    rows = [row(2e-6, nodes="1"), row(3e-6, nodes="2"), row(None, nodes="x")]
    line, table = sweep_figures(data(("nodes", ["1", "2", "x"])), rows, ["", "", ""])
    assert list(line.data[0].x) == [1, 2]
    assert list(line.data[0].y) == [2, 3]
    assert line.layout.yaxis.title.text == "step (us)"
    assert [len(column) for column in table.data[0].cells["values"]] == [3, 3, 3]
    assert "&lt;preset&gt;" in table.data[0].cells["values"][2][2]


def test_two_settings_are_a_map() -> None:
    rows = [row(float(n * k), nodes=str(n), micro=str(k)) for n in (1, 2) for k in (1, 2, 4)]
    heat, _ = sweep_figures(data(("nodes", ["1", "2"]), ("micro", ["1", "2", "4"])), rows, [""] * 6)
    assert list(heat.data[0].x) == ["1", "2"]
    assert [list(line) for line in heat.data[0].z] == [[1, 2], [2, 4], [4, 8]]


def test_costs_join_what_nothing_beats() -> None:
    rows = [
        row(1.0, 9.0, preset="a"), row(2.0, 9.5, preset="b"), row(3.0, 4.0, preset="c"),
        row(4.0, 5.0, preset="d"),
    ]  # fmt: skip
    figures = sweep_figures(data(("preset", ["a", "b", "c", "d"])), rows, [""] * 4)
    every, front = figures[1].data
    assert len(every.x) == 4
    assert list(front.y) == [9.0, 4.0]


def test_settings_side_by_side_are_a_line_over_the_first() -> None:
    rows = [row(float(n), nodes=str(n), rate=f"{n}00Gbps") for n in (1, 2, 4)]
    axes = (("rate", ["100Gbps", "200Gbps", "400Gbps"]), ("nodes", ["1", "2", "4"], "rate"))
    line, _ = sweep_figures(data(*axes), rows, [""] * 3)
    assert list(line.data[0].x) == [100, 200, 400]
    assert line.layout.xaxis.title.text == "rate (Gbps)"
    assert line.data[0].text[2] == "rate 400Gbps, nodes 4: 4 s"


def test_three_settings_are_lines_over_the_one_with_most_values() -> None:
    rows = [
        row(float(n * k) + m, nodes=str(n), micro=str(k), model=f"m{m}")
        for n in (1, 2) for k in (1, 2, 4) for m in range(8)
    ]  # fmt: skip
    axes = (
        ("nodes", ["1", "2"]), ("micro", ["1", "2", "4"]), ("model", [f"m{m}" for m in range(8)]),
    )  # fmt: skip
    drawn, _ = sweep_figures(data(*axes), rows, [""] * 48)
    assert [line.name for line in drawn.data][0] == "nodes 1, micro 1"
    assert len(drawn.data) == 6
    assert list(drawn.data[0].x) == [f"m{m}" for m in range(8)]
    assert list(drawn.data[0].y) == [1 + m for m in range(8)]


def test_weak_scaling_says_where_most_is_trained() -> None:
    """Steps grow a little with the nodes, tokens a second much; the table reads as text."""
    rows = [
        {**row(2.6 + n / 10, nodes=str(n)), "tokens_per_s": 24_990.4 * n, "mfu": 0.4364}
        for n in (1, 2, 4)
    ]
    line, table = sweep_figures(data(("nodes", ["1", "2", "4"])), rows, [""] * 3)
    assert (
        "shortest at nodes 1: 2.7 s; most tokens at nodes 4: 99,962/s"
        in line.layout.title.subtitle.text
    )
    cells = {column[0] for column in table.data[0].cells["values"]}
    assert {"24,990", "43.6%"} <= cells
    alike, _ = sweep_figures(data(("nodes", ["1", "2"])), rows[:1] * 2, [""] * 2)
    assert "most tokens" not in alike.layout.title.subtitle.text
